package memserver

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// slowLink leads to where a copy takes changes. While it is held streams stand still behind their
// hello. Permissions pass: the copy is heard.
type slowLink struct {
	address string
	mu      sync.Mutex
	gate    chan struct{} // closed = what is sent passes
}

func newSlowLink(t *testing.T, to string) *slowLink {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	k := &slowLink{address: l.Addr().String(), gate: make(chan struct{})}
	close(k.gate)
	t.Cleanup(func() {
		l.Close()
		k.release()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go k.pass(c, to)
		}
	}()
	return k
}

func (k *slowLink) hold() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gate = make(chan struct{})
}

func (k *slowLink) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.gate:
	default:
		close(k.gate)
	}
}

func (k *slowLink) passes() chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gate
}

// pass serves one connection. Where the hello ends, and of which kind it is, says the comment of
// package mirror.
func (k *slowLink) pass(from net.Conn, address string) {
	defer from.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(from, to) // either side may end it
		from.Close()
	}()
	head := make([]byte, 104)
	if _, err := io.ReadFull(from, head); err != nil {
		return
	}
	names := int64(binary.LittleEndian.Uint32(head[96:])) + int64(binary.LittleEndian.Uint32(head[100:]))
	if _, err := io.Copy(to, io.MultiReader(bytes.NewReader(head), io.LimitReader(from, names))); err != nil {
		return
	}
	stream := binary.LittleEndian.Uint32(head[12:]) == 1
	for buf := make([]byte, 64<<10); ; {
		n, err := from.Read(buf)
		if stream {
			<-k.passes()
		}
		if _, e := to.Write(buf[:n]); err != nil || e != nil {
			return
		}
	}
}

// session is a connection that is there before the copy is slow: another one would wait for it.
func (c *tenant) session(at uint64, n int) (post func(op verbs.Op) error) {
	_, qp, arena := open(c.t, must(c.Connect(7, c.id, limit)))
	local := must(arena.Alloc(n))
	return func(op verbs.Op) error {
		return verbs.Post(qp, []verbs.Request{{Op: op, Remote: at, Local: local}})
	}
}

// TestSlowBackup: changes are as slow as the backup, and so is whoever reads what it lacks. Lookups
// of all else wait for nothing.
func TestSlowBackup(t *testing.T) {
	a, b := startCopy(t, t.TempDir(), "pod-a", nil, ""), startCopy(t, t.TempDir(), "pod-b", nil, "")
	a.obey(view(1, "pod-a"))
	c := fill(t, a.Server)
	link := newSlowLink(t, b.Addresses().Mirror)
	must(a.Join(t.Context(), &rpcv1.JoinCopyRequest{View: 1, Copy: b.proc(), Mirror: link.address}))
	a.awaits("a copy in sync", func(r *rpcv1.ReportVolumeReply) bool { return r.InSync })
	v := &rpcv1.VolumeView{Number: 2, Primary: a.proc(), Backup: b.proc()}
	a.obey(v)
	b.obey(v)

	changed, unchanged := c.chunk(), c.chunk()
	write, reread, read := c.session(changed, 8), c.session(changed, 8), c.session(unchanged, 8)
	equal(t, a, b)
	link.hold()
	late, seen := make(chan error, 2), a.region.Journal.Seen(changed, 8)
	go func() { late <- write(verbs.Write) }()
	// the change is executed: whoever reads it has to wait for the backup as well
	for a.region.Journal.Seen(changed, 8) == seen {
		if err := read(verbs.Read); err != nil {
			t.Fatal(err)
		}
	}
	go func() { late <- reread(verbs.Read) }()
	begun := time.Now()
	for range 200 {
		if err := read(verbs.Read); err != nil {
			t.Fatalf("a lookup beside a slow backup: %v", err)
		}
	}
	took := time.Since(begun)
	select {
	case err := <-late:
		t.Errorf("what the backup lacks was answered: %v", err)
	default:
	}
	t.Logf("200 lookups beside a slow backup took %v", took)
	link.release()
	for range 2 {
		if err := <-late; err != nil {
			t.Errorf("once the backup has the change: %v", err)
		}
	}
	if r := a.report(); r.View.Number != 2 || r.Role != rpcv1.ReportVolumeReply_PRIMARY {
		t.Errorf("the primary of a slow backup is %v", r)
	}
	equal(t, a, b)
}

// TestSlowJoin: a joining copy that is slower than what is written is dropped once the primary does
// not keep what it lacks any more, and holds nobody up before.
func TestSlowJoin(t *testing.T) {
	a, b := startCopy(t, t.TempDir(), "pod-a", nil, ""), startCopy(t, t.TempDir(), "pod-b", nil, "")
	a.obey(view(1, "pod-a"))
	c := fill(t, a.Server)
	const piece = 32 << 10
	write := c.session(c.chunk(), piece)
	link := newSlowLink(t, b.Addresses().Mirror)
	link.hold()
	must(a.Join(t.Context(), &rpcv1.JoinCopyRequest{View: 1, Copy: b.proc(), Mirror: link.address}))
	b.awaits("a join", func(r *rpcv1.ReportVolumeReply) bool { return r.Source != nil })
	for range 16 << 20 / piece {
		if err := write(verbs.Write); err != nil {
			t.Fatalf("a change beside a slow copy that joins: %v", err)
		}
	}
	r := a.awaits("the end of the join", func(r *rpcv1.ReportVolumeReply) bool { return r.Joins == nil })
	if r.Waits || r.Role != rpcv1.ReportVolumeReply_PRIMARY {
		t.Errorf("the primary that dropped a copy is %v", r)
	}
	if r := b.report(); r.Role != rpcv1.ReportVolumeReply_JOINING {
		t.Errorf("the copy that was dropped is %v", r)
	}
}
