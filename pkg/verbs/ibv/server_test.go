//go:build ibv

package ibv_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

const soon = 20 * time.Second

// world is a server with one client.
type world struct {
	*testing.T
	address string
	server  verbs.Server
	tokens  *verbstest.Tokens
	device  verbs.Device
	arena   *verbs.Arena
}

func newWorld(t *testing.T, o ibv.Options) *world { return newWorldWith(t, o, nil) }

func newWorldWith(t *testing.T, o ibv.Options, executor verbs.Executor) *world {
	t.Helper()
	w := &world{T: t, tokens: new(verbstest.Tokens), device: newDevice()}
	saved := options
	options = o
	var err error
	w.address, w.server, err = start("", verbs.ServerOptions{
		Memory: verbstest.Memory(t, 1<<20, 4096), Incarnation: 7, Admission: w.tokens, Executor: executor,
	})
	options = saved
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.server.Close() })
	if w.arena, err = w.device.NewArena(1 << 20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.arena.Close(), w.device.Close()); err != nil {
			t.Errorf("the device is not given back: %v", err)
		}
	})
	return w
}

func (w *world) connect(client uint16) verbs.Conn {
	w.Helper()
	c, err := w.device.Connect(verbs.Target{Address: w.address, Token: w.tokens.Issue(verbs.Peer{Index: "test", Client: client})}, soon)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	return c
}

func (w *world) qp(c verbs.Conn) (verbs.QP, []byte) {
	w.Helper()
	q, err := c.NewQP(w.arena)
	if err != nil {
		w.Fatal(err)
	}
	b, err := w.arena.Alloc(4096)
	if err != nil {
		w.Fatal(err)
	}
	return q, b
}

// TestLocalAtomics: the server's own swaps and a client's lose nothing to each other.
func TestLocalAtomics(t *testing.T) {
	w := newWorld(t, options)
	local := w.server.(verbs.LocalAtomics)
	q, b := w.qp(w.connect(1))
	const each = 300
	swap := func(f func(compare uint64) (uint64, error)) {
		guess := uint64(0)
		for done := 0; done < each; {
			old, err := f(guess)
			if err != nil {
				t.Error(err)
				return
			}
			if old == guess {
				done++
				old++
			}
			guess = old
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		swap(func(compare uint64) (uint64, error) {
			return local.CompareSwap(verbs.RegionLocks, 64, compare, compare+1)
		})
	})
	swap(func(compare uint64) (uint64, error) {
		err := verbs.Post(q, []verbs.Request{{Op: verbs.CompareSwap, Region: verbs.RegionLocks, Remote: 64, Local: b[:8], Compare: compare, Swap: compare + 1}})
		return binary.NativeEndian.Uint64(b), err
	})
	all.Wait()
	if v, err := local.CompareSwap(verbs.RegionLocks, 64, 0, 0); err != nil || v != 2*each {
		t.Errorf("%d swaps on either side made %d, %v", each, v, err)
	}
	words := make([]uint64, 4096/8)
	if err := local.(verbs.LocalReads).ReadLocal(verbs.RegionLocks, 0, words); err != nil || words[8] != 2*each || words[7] != 0 {
		t.Errorf("words around the count: %v, %v", words[7:10], err)
	}
	if err := local.(verbs.LocalReads).ReadLocal(verbs.RegionLocks, 8, words); !errors.Is(err, verbs.ErrOutOfRange) {
		t.Errorf("words over the end: %v, want %v", err, verbs.ErrOutOfRange)
	}
	if err := local.(verbs.LocalReads).ReadLocal(verbs.RegionData, 8, make([]uint64, 5000)); err != nil {
		t.Errorf("words for several READs: %v", err)
	}
	for what, f := range map[string]func() (uint64, error){
		"beyond the end": func() (uint64, error) { return local.CompareSwap(verbs.RegionLocks, 4096, 0, 1) },
		"far away":       func() (uint64, error) { return local.CompareSwap(verbs.RegionData, 1<<63, 0, 1) },
	} {
		if _, err := f(); !errors.Is(err, verbs.ErrOutOfRange) {
			t.Errorf("%s: %v, want %v", what, err, verbs.ErrOutOfRange)
		}
	}
	if _, err := local.CompareSwap(verbs.RegionLocks, 4, 0, 1); !errors.Is(err, verbs.ErrMalformed) {
		t.Errorf("an odd place: %v, want %v", err, verbs.ErrMalformed)
	}
	if err := w.server.Close(); err != nil {
		t.Error(err)
	}
	if _, err := local.CompareSwap(verbs.RegionLocks, 64, 0, 0); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("after Close: %v, want %v", err, verbs.ErrClosed)
	}
}

// TestFence: nothing of the fenced client takes effect once Fence has returned; the other client
// goes on.
func TestFence(t *testing.T) {
	w := newWorld(t, options)
	fenced, b := w.qp(w.connect(1))
	other, in := w.qp(w.connect(2))
	started, died := make(chan struct{}), make(chan error, 1)
	go func() {
		once := sync.OnceFunc(func() { close(started) })
		for {
			if err := verbs.Post(fenced, []verbs.Request{{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Local: b[:8], Add: 1}}); err != nil {
				died <- err
				return
			}
			once()
		}
	}()
	<-started
	if err := w.server.Fence(func(p verbs.Peer) bool { return p.Client == 1 }, soon); err != nil {
		t.Fatal(err)
	}
	count := func() uint64 {
		if err := verbs.Post(other, []verbs.Request{{Op: verbs.Read, Region: verbs.RegionLocks, Local: in[:8]}}); err != nil {
			t.Fatal(err)
		}
		return binary.NativeEndian.Uint64(in)
	}
	before := count()
	if err := <-died; !errors.Is(err, verbs.ErrDisconnected) {
		t.Errorf("the fenced client died of %v, want %v", err, verbs.ErrDisconnected)
	}
	for range 100 {
		if after := count(); after != before || before == 0 {
			t.Fatalf("the count went from %d to %d after the fence", before, after)
		}
	}
	if err := w.server.Fence(func(verbs.Peer) bool { return false }, soon); err != nil {
		t.Errorf("nobody is fenced: %v", err)
	}
}

// TestReadsInOneList is message passing with both READs of the reader in one list. Soft-RoCE keeps
// them in order, so a failure here says that what the package comment tells of it is no longer so.
// The capability is not offered whatever comes out: see there.
func TestReadsInOneList(t *testing.T) {
	w := newWorld(t, options)
	writer, out := w.qp(w.connect(1))
	conn := w.connect(2)
	if conn.Capabilities().OrderedReads {
		t.Error("OrderedReads is offered")
	}
	reader, in := w.qp(conn)
	const data, flag = 4096, 64
	n := uint64(max(200, rounds()))
	var all sync.WaitGroup
	all.Go(func() {
		for i := uint64(1); i <= n; i++ {
			binary.NativeEndian.PutUint64(out, i)
			list := []verbs.Request{{Op: verbs.Write, Remote: data, Local: out[:8]}, {Op: verbs.Write, Remote: flag, Local: out[:8]}}
			if err := verbs.Post(writer, list); err != nil {
				t.Error(err)
				return
			}
		}
	})
	looks := 0
	for seen := uint64(0); seen < n && !t.Failed(); looks++ {
		list := []verbs.Request{{Op: verbs.Read, Remote: flag, Local: in[:8]}, {Op: verbs.Read, Remote: data, Local: in[8:16]}}
		if err := verbs.Post(reader, list); err != nil {
			t.Error(err)
			break
		}
		if seen = binary.NativeEndian.Uint64(in); binary.NativeEndian.Uint64(in[8:]) < seen {
			t.Errorf("the flag is %d and the data behind it %d", seen, binary.NativeEndian.Uint64(in[8:]))
		}
	}
	all.Wait()
	t.Logf("%d READs of the flag and the data, none out of order", looks)
}

// TestHotPathAllocatesNothing in all goroutines together.
func TestHotPathAllocatesNothing(t *testing.T) {
	w := newWorld(t, options)
	q, b := w.qp(w.connect(1))
	list := []verbs.Request{
		{Op: verbs.Write, Local: b[:64]}, {Op: verbs.Read, Local: b[64:128]}, {Op: verbs.Write, Remote: 512, Local: b[128:1128], Fence: true},
		{Op: verbs.CompareSwap, Region: verbs.RegionLocks, Local: b[:8]}, {Op: verbs.FetchAdd, Region: verbs.RegionLocks, Local: b[:8]},
	}
	if n := testing.AllocsPerRun(500, func() {
		if err := verbs.Post(q, list); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a list", n)
	}
	// Long transfers outlast the polling: these waits sleep.
	long, err := w.arena.Alloc(512 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(20, func() {
		if err := verbs.Post(q, []verbs.Request{{Op: verbs.Read, Local: long}, {Op: verbs.Write, Local: long}}); err != nil {
			t.Fatal(err)
		}
	}); n > 1 { // the literal
		t.Errorf("%v allocations a list that is slept for", n)
	}
}

// TestWithoutTheNICsOwn: Soft-RoCE has neither device memory nor masked atomics, and all goes on
// without.
func TestWithoutTheNICsOwn(t *testing.T) {
	o := options
	o.DeviceMemory = true
	w := newWorld(t, o)
	c := w.connect(1)
	q, b := w.qp(c)
	has := c.Capabilities()
	if has.DeviceMemory == 0 {
		t.Log("no device memory; the lock region is in host memory")
	}
	for i := range uint64(10) {
		if err := verbs.Post(q, []verbs.Request{{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Local: b[:8], Add: 1}}); err != nil {
			t.Fatal(err)
		}
		if v := binary.NativeEndian.Uint64(b); v != i {
			t.Errorf("addition %d found %d", i, v)
		}
	}
	if has.WholeWrite < 256 || has.WholeWrite > 4096 || has.CacheLineAtomic || has.OrderedWrite || has.ReleaseByWrite {
		t.Errorf("capabilities %+v", has)
	}
}

func TestNoSuchDevice(t *testing.T) {
	_, err := ibv.NewDevice(ibv.Options{Device: "mlx5_77"})
	if !errors.Is(err, ibv.ErrNoDevice) || !strings.Contains(err.Error(), "mlx5_77") || !strings.Contains(err.Error(), "active") {
		t.Errorf("%v", err)
	}
	if _, err := ibv.NewServer(ibv.Options{Port: 99}, verbs.ServerOptions{Memory: verbstest.Memory(t, 4096, 4096), Admission: new(verbstest.Tokens)}); !errors.Is(err, ibv.ErrNoDevice) {
		t.Errorf("%v", err)
	}
}

func TestForeignArena(t *testing.T) {
	w := newWorld(t, options)
	foreign, err := verbs.MapArena(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if _, err := w.connect(1).NewQP(foreign); !errors.Is(err, verbs.ErrNotRegistered) {
		t.Errorf("a queue pair on memory that is not registered: %v, want %v", err, verbs.ErrNotRegistered)
	}
}

// TestDeviceClosesConnections: a device that is closed while the server ends its connections waits
// until their queue pairs are destroyed.
func TestDeviceClosesConnections(t *testing.T) {
	w := newWorld(t, options)
	for n := range uint16(30) {
		device := newDevice()
		arena, err := device.NewArena(1 << 16)
		if err != nil {
			t.Fatal(err)
		}
		peer := verbs.Peer{Index: "test", Client: 100 + n}
		c, err := device.Connect(verbs.Target{Address: w.address, Token: w.tokens.Issue(peer)}, soon)
		if err != nil {
			t.Fatal(err)
		}
		var qps []verbs.QP
		for range 4 {
			q, err := c.NewQP(arena)
			if err != nil {
				t.Fatal(err)
			}
			qps = append(qps, q)
		}
		var others sync.WaitGroup
		others.Go(func() { w.server.Disconnect(func(p verbs.Peer) bool { return p == peer }) })
		if n%2 == 0 {
			others.Wait()
		}
		if err := errors.Join(arena.Close(), device.Close()); err != nil {
			t.Errorf("close the device: %v", err)
		}
		for i, q := range qps {
			if q.Err() == nil {
				t.Errorf("queue pair %d lives on without a device", i)
			}
		}
		others.Wait()
	}
}
