package offload

import (
	"bytes"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/shm"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

const (
	wildBytes = 4096        // that the wild client of FuzzCalls changes, from testAddr on
	honestAt  = 64 << 10    // behind testAddr: the leaf of the honest one
	callLimit = time.Minute // a call that takes longer does not end
)

// caller is a client of FuzzCalls.
type caller struct {
	qp    verbs.QP
	local []byte // of any request
	calls bool   // the provider has them
}

func newCaller(f *testing.F, d verbs.Device, t verbs.Target) *caller {
	f.Helper()
	arena, err := d.NewArena(verbs.MaxCall)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { arena.Close() })
	conn, err := d.Connect(t, callLimit)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	c := &caller{calls: conn.Capabilities().Calls}
	if c.qp, err = conn.NewQP(arena); err == nil {
		c.local, err = arena.Alloc(verbs.MaxCall)
	}
	if err != nil {
		f.Fatal(err)
	}
	c.qp.SetLimit(callLimit)
	return c
}

// transfer is a READ or WRITE of b, which begins so far behind testAddr.
func (c *caller) transfer(t testing.TB, op verbs.Op, behind uint64, b []byte) {
	t.Helper()
	local := c.local[:copy(c.local, b)]
	if err := verbs.Post(c.qp, []verbs.Request{{Op: op, Remote: testAddr.Offset() + behind, Local: local}}); err != nil {
		t.Fatalf("%v of %d bytes: %v", op, len(b), err)
	}
	copy(b, local)
}

// call makes a call with room for so many bytes of an answer. The executor may refuse it, which
// leaves the queue pair alive.
func (c *caller) call(t testing.TB, request []byte, room int) (answer []byte, err error) {
	t.Helper()
	list := []verbs.Request{{Op: verbs.Call, Args: copy(c.local, request)}}
	list[0].Local = c.local[:min(max(list[0].Args, verbs.CallBytes(room)), len(c.local))]
	err = verbs.Post(c.qp, list)
	if !c.calls {
		if !errors.Is(err, verbs.ErrUnsupported) {
			t.Fatalf("a call where there are none: %v, want %v", err, verbs.ErrUnsupported)
		}
		return nil, err
	}
	if err != nil {
		t.Fatalf("a call of %x: %v", request, err)
	}
	if answer, err = list[0].Answer(); err != nil && !errors.Is(err, verbs.ErrCall) {
		t.Fatalf("a call of %x is answered with %v", request, err)
	}
	return answer, err
}

// callWorld is a memory server that executes calls, and two of its clients.
type callWorld struct {
	wild, honest *caller
	request      []byte // of the honest one
	leaf, answer []byte // that it is about
	panics       atomic.Pointer[string]
}

// newCallWorld starts a server of a provider that listens at address.
func newCallWorld(f *testing.F, d verbs.Device, network, address string, server func(verbs.ServerOptions) (verbs.Server, error)) *callWorld {
	f.Helper()
	w, tokens := new(callWorld), new(verbstest.Tokens)
	s, err := server(verbs.ServerOptions{
		Memory: verbstest.Memory(f, int(testAddr.Offset())+2*honestAt, 4096), Admission: tokens, Executor: new(Executor),
		Panicked: func(_ verbs.Peer, value any, stack []byte) {
			said := string(stack)
			w.panics.CompareAndSwap(nil, &said)
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	l, err := net.Listen(network, address)
	if err != nil {
		f.Fatal(err)
	}
	go s.Serve(l)
	target := func(n uint16) verbs.Target {
		return verbs.Target{Address: l.Addr().String(), Token: tokens.Issue(verbs.Peer{Index: "test", Client: n})}
	}
	w.wild, w.honest = newCaller(f, d, target(1)), newCaller(f, d, target(2))
	layout := testLayout(f, index.Options{MaxKeyBytes: 24, MaxValueBytes: 12, NodeBytes: 512})
	w.leaf = byteLeafAt(testAddr+honestAt, layout, "key", "kez")
	w.honest.transfer(f, verbs.Write, honestAt, bytes.Clone(w.leaf))
	w.request = byteRequest(512, 24, btree.Way{Addr: testAddr + honestAt, Level: 0}, []byte("kez"))
	if w.honest.calls {
		if answer, err := w.honest.call(f, w.request, answerFixed+512); err != nil || len(answer) <= answerFixed {
			f.Fatalf("an honest call: %x, %v", answer, err)
		} else {
			w.answer = bytes.Clone(answer)
		}
	}
	return w
}

// serves checks that the server has not panicked and serves the honest client.
func (w *callWorld) serves(t *testing.T, after []byte) {
	t.Helper()
	if stack := w.panics.Load(); stack != nil {
		t.Fatalf("a call of %x: %s", after, *stack)
	}
	leaf := make([]byte, len(w.leaf))
	if w.honest.transfer(t, verbs.Read, honestAt, leaf); !bytes.Equal(leaf, w.leaf) {
		t.Fatalf("a call of %x changes what another client reads", after)
	}
	if got, err := w.honest.call(t, w.request, answerFixed+512); w.honest.calls && (err != nil || !bytes.Equal(got, w.answer)) {
		t.Fatalf("after a call of %x another client's is answered with %x, %v, want %x", after, got, err, w.answer)
	}
}

// FuzzCalls: whatever a client writes and then asks for through a connection, its call is answered
// or refused, the connection lives on, and the server serves another client as before.
func FuzzCalls(f *testing.F) {
	addCalls(f)
	worlds := []*callWorld{
		newCallWorld(f, tcp.NewDevice(), "tcp", "127.0.0.1:0", tcp.NewServer),
		newCallWorld(f, shm.NewDevice(), "unix", filepath.Join(f.TempDir(), "s"), shm.NewServer),
	}
	f.Fuzz(func(t *testing.T, request, memory []byte, seal bool) {
		b := make([]byte, wildBytes)
		copy(b, memory)
		request = request[:min(len(request), verbs.MaxCall)]
		for _, w := range worlds {
			ends := []int{0}
			if seal && w.wild.calls {
				for end := fence.HeaderBytes; end <= 512; end += 32 { // some of these may verify
					ends = append(ends, end)
				}
			}
			for _, end := range ends {
				if end > 0 {
					sealFor(request, b, end)
				}
				w.wild.transfer(t, verbs.Write, 0, bytes.Clone(b))
				w.wild.call(t, request, answerFixed+512)
				w.wild.call(t, request, verbs.MaxCall)
			}
			w.serves(t, request)
		}
	})
}
