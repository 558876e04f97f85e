package computeserver

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// renewed is a cluster of two servers, each with half of the keys and a TLS directory of its own,
// under load: SDKs insert, and connections of RESP insert at server 1 what it forwards to server 2.
type renewed struct {
	*cluster
	dirs map[uint32]string

	inserted atomic.Int64
	stop     chan struct{}
	load     sync.WaitGroup
}

// newRenewed writes the directories by write first. The SDKs trust what ca has.
func newRenewed(t *testing.T, age time.Duration, ca string, write func(dir string)) *renewed {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &renewed{dirs: map[uint32]string{}, stop: make(chan struct{})}
	r.cluster = newCluster(t, config.RoutingOwner, func(cfg *Config) {
		dir := t.TempDir()
		write(dir)
		files, err := identity.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		r.dirs[cfg.ID] = dir
		cfg.TLS, cfg.ConnectionAge = files, age
		cfg.Users.PasswordFile, cfg.AllowNoPassword = password, false
	}, 1, 2)
	r.split([]uint32{1, 2}, "m")
	for n := range 2 {
		cl, err := client.Connect(context.Background(), client.Options{
			Endpoints: []string{r.servers[1].addresses.RPC}, Password: "secret", CAFile: ca, Limit: time.Minute, Attempt: 20 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.Close() })
		for m := range 2 {
			r.load.Go(func() {
				for i := 0; r.goesOn(); i++ {
					key := fmt.Sprintf("%csdk %d %d %d", "ax"[i%2], n, m, i)
					if err := cl.Insert(context.Background(), []byte(key), []byte(key)); err != nil {
						t.Errorf("insert %s: %v", key, err)
						return
					}
					r.inserted.Add(1)
				}
			})
		}
	}
	for n := range 2 {
		raw := r.raw(1)
		raw.Send(computeservertest.Command("AUTH", "secret"))
		raw.Expect("+OK\r\n")
		r.load.Go(func() {
			for i := 0; r.goesOn(); i++ {
				key := fmt.Sprintf("xresp %d %d", n, i)
				raw.Send(computeservertest.Command("SETNX", key, key))
				if got := strings.TrimSpace(raw.Line()); got != ":1" {
					t.Errorf("insert %s: %s", key, got)
					return
				}
				r.inserted.Add(1)
			}
		})
	}
	t.Cleanup(r.end)
	return r
}

// caFile is a file with authorities.
func caFile(t *testing.T, all ...*identitytest.CA) string {
	path := filepath.Join(t.TempDir(), "ca.crt")
	writeCA(t, path, all...)
	return path
}

func writeCA(t *testing.T, path string, all ...*identitytest.CA) {
	t.Helper()
	var text []byte
	for _, ca := range all {
		text = append(text, ca.PEM...)
	}
	replaceFile(t, path, string(text))
}

func (r *renewed) goesOn() bool {
	select {
	case <-r.stop:
		return false
	default:
		return true
	}
}

// end ends the load.
func (r *renewed) end() {
	if r.goesOn() {
		close(r.stop)
	}
	r.load.Wait()
}

// more waits until the load has done more.
func (r *renewed) more() {
	r.t.Helper()
	before := r.inserted.Load()
	computeservertest.Await(r.t, "the load goes on", func() bool { return r.t.Failed() || r.inserted.Load() >= before+20 })
}

// check ends the load and looks whether each key is there once.
func (r *renewed) check() {
	r.t.Helper()
	r.end()
	if got, want := int64(r.store.Len()), r.inserted.Load(); got != want {
		r.t.Errorf("%d keys are stored, %d were inserted", got, want)
	}
}

// TestOldConnections: connections are replaced all the time, and no insert fails or is done twice.
func TestOldConnections(t *testing.T) {
	ca := identitytest.NewCA(t, "index")
	r := newRenewed(t, 50*time.Millisecond, caFile(t, ca), func(dir string) {
		ca.Write(dir, identitytest.Options{URIs: []*url.URL{identity.Compute(computeservertest.Index)}}, ca)
	})
	seen := map[*termConn]bool{}
	const connections = 60 // of two SDKs and another server, at two servers
	computeservertest.Await(t, "connections are replaced", func() bool {
		for _, s := range r.servers {
			for _, c := range s.callers.openConns() {
				seen[c] = true
			}
		}
		return t.Failed() || len(seen) >= connections
	})
	r.more()
	r.check()
	t.Logf("%d inserts over %d connections", r.inserted.Load(), len(seen))
}

// TestRenewedCertificates: certificates that end soon are renewed again and again. Connections that
// a former certificate admitted are not used for long after that has ended, and no request fails.
func TestRenewedCertificates(t *testing.T) {
	ca := identitytest.NewCA(t, "index")
	life := 5 * time.Second // of the first ones
	write := func(dir string) {
		ca.Write(dir, identitytest.Options{URIs: []*url.URL{identity.Compute(computeservertest.Index)}, NotAfter: time.Now().Add(life)}, ca)
	}
	r := newRenewed(t, time.Hour, caFile(t, ca), write)
	first := r.link(1, 2)
	life = time.Minute
	until := func() (end float64) {
		_, body := r.servers[1].get(t, "/metrics")
		_, rest, _ := strings.Cut(body, "\ndmindex_compute_tls_not_after_timestamp_seconds ")
		if _, err := fmt.Sscan(rest, &end); err != nil {
			t.Error(err)
		}
		return end
	}
	before := until()
	computeservertest.Await(t, "no connection is used whose certificate has ended", func() bool {
		for _, dir := range r.dirs {
			write(dir)
		}
		r.more()
		return t.Failed() || r.link(1, 2) != first
	})
	if now := until(); now < before+30 {
		t.Errorf("the metric says that the certificate ends %v s later than the first one", now-before)
	}
	r.more()
	r.check()
}

// TestReplacedAuthority: the authority of an index is replaced as the operator does it: both are
// trusted everywhere, also by programs, then servers have certificates of the new one, then the
// former one is not trusted any more. No request fails, and what the former one admitted is not
// used any more. Connections that last long, and those that are made anew all the time, go through
// it.
func TestReplacedAuthority(t *testing.T) {
	for _, age := range []time.Duration{100 * time.Millisecond, time.Hour} {
		t.Run(age.String(), func(t *testing.T) { replaceAuthority(t, age) })
	}
}

func replaceAuthority(t *testing.T, age time.Duration) {
	former, next := identitytest.NewCA(t, "index"), identitytest.NewCA(t, "index")
	self := []*url.URL{identity.Compute(computeservertest.Index)}
	speaks := []*url.URL{identity.Operator(), identity.Index(computeservertest.Index)}
	write := func(dir string, by *identitytest.CA, trusted ...*identitytest.CA) {
		by.Write(dir, identitytest.Options{URIs: self}, trusted...)
		var all []identity.Authority
		for _, ca := range trusted {
			all = append(all, ca.SpeaksFor(speaks...))
		}
		identitytest.WriteAuthorities(t, dir, all...)
	}
	ca := caFile(t, former)
	r := newRenewed(t, age, ca, func(dir string) { write(dir, former, former) })
	first := r.link(1, 2)
	for _, step := range []struct {
		by      *identitytest.CA
		trusted []*identitytest.CA
	}{
		{former, []*identitytest.CA{former, next}},
		{next, []*identitytest.CA{former, next}},
		{next, []*identitytest.CA{next}},
	} {
		for _, id := range []uint32{1, 2} { // one after the other: mounts differ for a while
			write(r.dirs[id], step.by, step.trusted...)
			r.more()
		}
		writeCA(t, ca, step.trusted...)
		began := time.Now()
		for time.Since(began) < 2*certificateEvery && !t.Failed() {
			r.more()
		}
	}
	if age > time.Minute && r.link(1, 2) == first {
		t.Error("a connection is used whose authority is not trusted")
	}
	r.check()
}
