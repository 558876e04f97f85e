package memserver

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
	"github.com/dmindex/dmindex/pkg/pool"
)

// countedListener counts what it accepts.
type countedListener struct {
	net.Listener
	n atomic.Int64
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return c, err
}

// TestRenewedCertificates: certificates of a memory server and its clients end soon and are renewed
// all the time, and control connections are replaced all the time. No call fails, and a connection
// of the fabric is the same all the while. A client whose certificate has ended is refused, and
// goes on when it has a new one.
func TestRenewedCertificates(t *testing.T) {
	ca := identitytest.NewCA(t, "index")
	const index = "mine"
	server, member, chief := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(life time.Duration, dirs ...string) {
		for _, dir := range dirs {
			o := identitytest.Options{NotAfter: time.Now().Add(life)}
			switch dir {
			case member:
				o.URIs = []*url.URL{identity.Index(index)}
			case chief:
				o.URIs = []*url.URL{identity.Operator()}
			}
			ca.Write(dir, o, ca)
		}
	}
	write(5*time.Second, server, member, chief)
	config := localConfig(t)
	config.Insecure, config.TLSDir, config.maxAge = false, server, 100*time.Millisecond
	s := must(New(config))
	accepted := &countedListener{Listener: s.rpc}
	s.rpc = accepted
	run(t, s)
	operator := admin(t, s.Addresses().Control, must(identity.Open(chief)))
	must(operator.Admit(t.Context(), &rpcv1.AdmitRequest{Index: index, QuotaChunks: 4}))
	c := client(t, s.Addresses().Control, index, "tcp", must(identity.Open(member)))
	h := newHolder(t, c, must(c.Register(limit)))

	stop := make(chan struct{})
	var load sync.WaitGroup
	var calls atomic.Int64
	again := func(f func() error) {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					t.Errorf("after %d calls: %v", calls.Load(), err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for range 2 {
		again(func() error {
			offset, err := c.AllocateChunk(7, h.id, 1024, false, limit)
			if err != nil {
				return err
			}
			return c.FreeChunk(7, h.id, offset, limit)
		})
	}
	again(func() error {
		_, err := operator.Describe(t.Context(), &rpcv1.DescribeMemoryRequest{})
		return err
	})
	again(func() error { _, err := h.add(0, 1); return err })

	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !t.Failed() && (time.Since(began) < 6*time.Second || accepted.n.Load() < 40); <-tick.C {
		write(time.Minute, server, member, chief)
	}
	close(stop)
	load.Wait()
	t.Logf("%d calls over %d connections", calls.Load(), accepted.n.Load())

	write(time.Second, member)
	call := func() error { _, err := c.Renew(7, h.id, pool.Epochs{}, limit); return err }
	for began := time.Now(); call() == nil; <-tick.C {
		if time.Since(began) > time.Minute {
			t.Fatal("a client is served whose certificate has ended")
		}
	}
	// the files stand still for a tick: certificate and key are not written at once
	for began := time.Now(); call() != nil; <-tick.C {
		if time.Since(began) > time.Minute {
			t.Fatal("a client is refused whose certificate is good again")
		}
		write(time.Minute, member)
	}
}
