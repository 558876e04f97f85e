package memserver

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/mirror"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// copied is a pod that has a copy of a volume, whose processes run until they are replaced.
type copied struct {
	*Server
	rpcv1.VolumeClient
	t     testing.TB
	pod   string
	stop  func()
	ended chan error
}

// startCopy starts a pod, of a pool with that authority; nil = without TLS.
func startCopy(t *testing.T, dir, pod string, ca *identitytest.CA, pool string) *copied {
	t.Helper()
	return startCopyOf(t, volumeConfig(t, dir, pod), ca, pool)
}

// startCopyOf starts a pod with that configuration.
func startCopyOf(t testing.TB, c Config, ca *identitytest.CA, pool string) *copied {
	t.Helper()
	pod := c.Pod
	c.Mirror = "127.0.0.1:0"
	c.Logger = c.Logger.With("pod", pod)
	files := (*identity.Files)(nil)
	if ca != nil {
		c.Insecure, c.TLSDir = false, ca.Dir(identitytest.Options{URIs: []*url.URL{identity.Memory(pool)}})
		files = tlsFiles(t, ca, identity.Operator())
	}
	s := must(New(c))
	ctx, cancel := context.WithCancel(context.Background())
	p := &copied{Server: s, t: t, pod: pod, ended: make(chan error, 1)}
	over := make(chan struct{})
	go func() {
		p.ended <- s.Run(ctx)
		close(over)
	}()
	p.stop = func() {
		cancel()
		<-over
	}
	t.Cleanup(p.stop)
	p.VolumeClient = asked(t, s.Addresses().Control, files)
	return p
}

func (p *copied) report() *rpcv1.ReportVolumeReply {
	p.t.Helper()
	return must(p.Report(p.t.Context(), &rpcv1.ReportVolumeRequest{}))
}

func (p *copied) proc() *rpcv1.VolumeProcess { return p.report().Process }

func (p *copied) obey(v *rpcv1.VolumeView) {
	p.t.Helper()
	must(p.Obey(p.t.Context(), &rpcv1.ObeyViewRequest{View: v}))
}

// awaits looks until the report of the pod is one.
func (p *copied) awaits(what string, is func(r *rpcv1.ReportVolumeReply) bool) *rpcv1.ReportVolumeReply {
	p.t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	over := time.After(limit)
	for {
		r := p.report()
		if is(r) {
			return r
		}
		select {
		case <-look.C:
		case <-over:
			p.t.Fatalf("%s never comes: %v", what, r)
		}
	}
}

// join makes b a backup of the primary a, in the view of a number.
func join(a, b *copied, number uint64) {
	a.t.Helper()
	must(a.Join(a.t.Context(), &rpcv1.JoinCopyRequest{View: number - 1, Copy: b.proc(), Mirror: b.Addresses().Mirror}))
	a.awaits("a copy in sync", func(r *rpcv1.ReportVolumeReply) bool { return r.InSync })
	v := &rpcv1.VolumeView{Number: number, Primary: a.proc(), Backup: b.proc()}
	a.obey(v)
	b.obey(v)
}

// equal checks that two copies have the same memory and ledger, once the backup has all.
func equal(t *testing.T, primary, backup *copied) {
	t.Helper()
	primary.control.Accounts.Read(func(*ledger.Ledger) {
		j := primary.region.Journal
		if err := j.Wait(nil, j.Last()); err != nil {
			t.Fatal(err)
		}
		primary.region.SpansFrom(0, func(at, n uint64) bool {
			if !bytes.Equal(primary.region.Bytes()[at:at+n], backup.region.Bytes()[at:at+n]) {
				t.Fatalf("%d bytes at %#x differ", n, at)
			}
			return true
		})
		if !bytes.Equal(primary.mirrored.last, backup.volume.sink.Ledger()) {
			t.Fatal("the ledgers differ")
		}
	})
}

// fill gives a server an index with some content and clients.
func fill(t *testing.T, s *Server) *tenant {
	t.Helper()
	a := newTenant(t, s, "a", 7)
	for n := range uint64(3) {
		chunk := a.chunk()
		if err := a.try(verbs.Request{Op: verbs.Write, Remote: chunk + 100_000*n, Local: []byte("written")}, verbs.Request{Op: verbs.FetchAdd, Remote: chunk + 64, Add: 7}); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// TestLiveCopy: a server gets a copy while it serves, and has its changes in it when it answers.
// When the server dies the copy serves: with the same content and incarnation, to the same clients,
// and with locks that say REPAIR. The earlier process, started again, serves nobody, and the next
// one of its pod joins the new primary with an empty memory.
func TestLiveCopy(t *testing.T) {
	dir := t.TempDir()
	a, b := startCopy(t, dir, "pod-a", nil, ""), startCopy(t, t.TempDir(), "pod-b", nil, "")
	a.obey(view(1, "pod-a"))
	c := fill(t, a.Server)
	must(admin(t, a.Addresses().Control, nil).Admit(t.Context(), &rpcv1.AdmitRequest{Index: "locks", Locks: 8}))
	stop := load(t, c)
	join(a, b, 2)
	stop()
	if b.report().Role != rpcv1.ReportVolumeReply_BACKUP {
		t.Fatalf("the copy is %v", b.report())
	}
	chunk := c.chunk()
	if err := c.try(verbs.Request{Op: verbs.Write, Remote: chunk, Local: []byte("behind")}); err != nil {
		t.Fatal(err)
	}
	equal(t, a, b)
	_, err := admin(t, b.Addresses().Control, nil).Describe(t.Context(), &rpcv1.DescribeMemoryRequest{})
	wantCode(t, "a backup is asked what it has", err, codes.Unavailable, "not the primary", "backup")

	incarnation := a.Incarnation()
	a.stop()
	third := &rpcv1.VolumeView{Number: 3, Primary: b.proc(), Earlier: &rpcv1.VolumeProcess{Pod: "pod-a", Process: 1}}
	b.obey(third)
	if r := b.report(); r.Role != rpcv1.ReportVolumeReply_PRIMARY || r.Incarnation != incarnation {
		t.Fatalf("the copy that opens is %v; the incarnation was %d", r, incarnation)
	}
	if string(b.region.Bytes()[chunk:][:6]) != "behind" {
		t.Error("a change that was answered is not there")
	}
	var first uint64
	b.control.Accounts.Read(func(l *ledger.Ledger) { first = must(l.Index("locks")).FirstLock })
	if lock := b.region.LockTable()[2*first]; lock != ledger.NoClient&0xff {
		t.Errorf("a lock of the copy that opens is %d", lock)
	}
	d := &tenant{t: t, index: "a", Client: client(t, b.Addresses().Control, "a", "tcp", nil), id: c.id}
	if err := d.try(verbs.Request{Op: verbs.Write, Remote: d.chunk(), Local: []byte("the same client")}); err != nil {
		t.Errorf("a client of before goes on: %v", err)
	}

	a = startCopy(t, dir, "pod-a", nil, "")
	if r := a.report(); r.Role != rpcv1.ReportVolumeReply_STOPPED || r.Process.Process != 2 || r.View.Number != 2 {
		t.Fatalf("the earlier primary begins as %v", r)
	}
	a.obey(third)
	if err := <-a.ended; !errors.Is(err, ErrReplaced) {
		t.Fatalf("the earlier primary ends with %v", err)
	}
	a = startCopy(t, dir, "pod-a", nil, "")
	if r := a.report(); r.Role != rpcv1.ReportVolumeReply_JOINING || r.Process.Process != 3 {
		t.Fatalf("its next process begins as %v", r)
	}
	join(b, a, 4)
	equal(t, b, a)
}

// load changes words of a chunk until the returned function is called.
func load(t *testing.T, c *tenant) (stop func()) {
	busy, stopped := make(chan struct{}), make(chan error)
	chunk := c.chunk()
	_, qp, arena := open(t, must(c.Client.Connect(7, c.id, limit)))
	local := must(arena.Alloc(8))
	go func() {
		var err error
		for n := 0; err == nil; n++ {
			select {
			case <-busy:
				stopped <- nil
				return
			default:
				err = verbs.Post(qp, []verbs.Request{{Op: verbs.FetchAdd, Remote: chunk + uint64(n%4096)*8, Add: 1, Local: local}})
			}
		}
		stopped <- err
	}()
	return func() {
		t.Helper()
		close(busy)
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
	}
}

// TestSwitch: a primary that is asked to answers what it has executed, and stops; its backup opens
// without a wait, and everybody finds it there.
func TestSwitch(t *testing.T) {
	a, b := startCopy(t, t.TempDir(), "pod-a", nil, ""), startCopy(t, t.TempDir(), "pod-b", nil, "")
	a.obey(view(1, "pod-a"))
	fill(t, a.Server)
	join(a, b, 2)
	must(a.Stop(t.Context(), &rpcv1.StopPrimaryRequest{View: 2}))
	_, err := admin(t, a.Addresses().Control, nil).Describe(t.Context(), &rpcv1.DescribeMemoryRequest{})
	wantCode(t, "a primary that stopped is asked", err, codes.Unavailable, "not the primary", "stopped")
	began := time.Now()
	next := &rpcv1.VolumeView{Number: 3, Primary: b.proc(), Earlier: a.proc()}
	b.obey(next)
	t.Logf("opened after %v", time.Since(began))
	a.obey(next)
	if err := <-a.ended; !errors.Is(err, ErrReplaced) {
		t.Errorf("the primary that stopped ends with %v", err)
	}
	if d := must(admin(t, b.Addresses().Control, nil).Describe(t.Context(), &rpcv1.DescribeMemoryRequest{})); len(d.Indexes) != 1 {
		t.Errorf("the new primary has %v", d.Indexes)
	}
}

// TestCopyUnderTLS: the changes of a memory server go to one of its own pool, and to no other.
func TestCopyUnderTLS(t *testing.T) {
	ca := identitytest.NewCA(t, "pool")
	a, b := startCopy(t, t.TempDir(), "pod-a", ca, "p"), startCopy(t, t.TempDir(), "pod-b", ca, "p")
	a.obey(view(1, "pod-a"))
	if got, want := a.report().Identity, identity.Memory("p").String(); got != want {
		t.Errorf("the certificate says %q, not %q", got, want)
	}
	join(a, b, 2)
	if r := a.report(); r.Problem != "" {
		t.Errorf("with a copy in sync: %v", r)
	}
	other := startCopy(t, t.TempDir(), "pod-c", ca, "q")
	config := a.control.files.ClientConfig("127.0.0.1")
	c, err := mirror.Dial(other.Addresses().Mirror, config, limit)
	if err == nil {
		_, err = mirror.NewAsker(env.Real(), c, mirror.Hello{From: a.volume.member.Self(), To: other.volume.member.Self()}, limit)
	}
	if err == nil {
		t.Error("a memory server of another pool takes a connection")
	}
}

// TestCopyOfAnotherShape: a pod that could not open a copy of a memory takes nothing of it, and
// both sides say why.
func TestCopyOfAnotherShape(t *testing.T) {
	a := startCopy(t, t.TempDir(), "pod-a", nil, "")
	a.obey(view(1, "pod-a"))
	c := volumeConfig(t, t.TempDir(), "pod-b")
	c.Mirror, c.LockTableBytes = "127.0.0.1:0", 2*a.region.LockBytes
	s, _ := start(t, c)
	b := &copied{Server: s, VolumeClient: asked(t, s.Addresses().Control, nil), t: t}
	must(a.Join(t.Context(), &rpcv1.JoinCopyRequest{View: 1, Copy: b.proc(), Mirror: s.Addresses().Mirror}))
	for _, side := range []*copied{a, b} {
		r := side.awaits("a refusal", func(r *rpcv1.ReportVolumeReply) bool { return r.InSync || r.Problem != "" })
		if !strings.Contains(r.Problem, "lock table is") || !strings.Contains(r.Problem, "the same sizes") || r.Source != nil || r.Waits {
			t.Errorf("%v", r)
		}
	}
}

// TestScrub: a copy whose memory differs from its primary's is found, and ends; it is not taken for
// one that can serve, and the next process of its pod begins with an empty memory.
func TestScrub(t *testing.T) {
	dir := t.TempDir()
	a, b := startCopy(t, t.TempDir(), "pod-a", nil, ""), startCopy(t, dir, "pod-b", nil, "")
	a.obey(view(1, "pod-a"))
	fill(t, a.Server)
	join(a, b, 2)
	before := differences.Load()
	memory := must(os.OpenFile(filepath.Join(dir, region.DataFile), os.O_RDWR, 0))
	defer memory.Close()
	must(memory.WriteAt([]byte("W"), int64(a.region.ChunkOffset(2)+100_000))) // of what was written
	select {
	case err := <-b.ended:
		if !errors.Is(err, ErrReplaced) || differences.Load() != before+1 {
			t.Errorf("a copy that differs ends with %v, and %d differences are counted", err, differences.Load()-before)
		}
	case <-time.After(limit):
		t.Fatal("a copy that differs is not found")
	}
}

// TestScrubOfAnEmptyMemory: a tick looks at a few pieces, however empty the memory is, and the next
// one goes on behind them.
func TestScrubOfAnEmptyMemory(t *testing.T) {
	s := must(New(volumeConfig(t, t.TempDir(), "")))
	defer s.Close()
	limit := uint64(scrubLook * region.PieceBytes)
	for _, u := range s.region.Unrecorded() {
		limit += u.End - u.First
	}
	// pieces are shorter beside what is left out
	pass := s.region.DataBytes/(scrubLook*region.PieceBytes) + 8
	at, ticks := uint64(0), uint64(0)
	for at < s.region.DataBytes && ticks < pass {
		next := s.volume.scrubFrom(at, make([]byte, region.PieceBytes))
		if next <= at || next > at+limit {
			t.Fatalf("a tick at %#x leads to %#x, and looks at %#x bytes at most", at, next, limit)
		}
		at, ticks = next, ticks+1
	}
	if at != s.region.DataBytes || ticks < 2 {
		t.Errorf("%d ticks of %d lead to %#x of %#x", ticks, pass, at, s.region.DataBytes)
	}
	if next := s.volume.scrubFrom(at, make([]byte, region.PieceBytes)); next > limit {
		t.Errorf("the next pass begins at %#x", next)
	}
}

// TestPieces: the pieces of a memory are all that is recorded, and do not overlap.
func TestPieces(t *testing.T) {
	s := must(New(volumeConfig(t, t.TempDir(), "")))
	defer s.Close()
	r, last := s.region, uint64(0)
	skipped := uint64(0)
	r.SpansFrom(0, func(at, n uint64) bool {
		if at < last || n == 0 || n > region.PieceBytes {
			t.Fatalf("a piece of %d bytes at %#x behind %#x", n, at, last)
		}
		skipped += at - last
		last = at + n
		return true
	})
	want := uint64(0)
	for _, u := range r.Unrecorded() {
		want += u.End - u.First
	}
	if last != r.DataBytes || skipped != want {
		t.Errorf("pieces end at %#x of %#x, and leave out %d bytes, not %d", last, r.DataBytes, skipped, want)
	}
}
