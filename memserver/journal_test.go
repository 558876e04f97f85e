package memserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// mirroredServer is a server with a copy.
type mirroredServer struct {
	*Server
	t    *testing.T
	dir  string
	copy *verbstest.Copy

	calls, ends chan struct{} // a call that began, and one that may end
}

// Call implements verbs.Executor.
func (m *mirroredServer) Call(verbs.Peer, verbs.Near, []byte, []byte) (int, error) {
	m.calls <- struct{}{}
	<-m.ends
	return 0, nil
}

func startMirrored(t *testing.T) *mirroredServer { return startMirroredBy(t, nil) }

// startMirroredBy has the server go by a clock; nil = the real one.
func startMirroredBy(t *testing.T, clock env.Env) *mirroredServer {
	t.Helper()
	m := &mirroredServer{t: t, dir: t.TempDir(), calls: make(chan struct{}), ends: make(chan struct{})}
	c := dirConfig(m.dir)
	c.Executor = m
	c.Shm, c.env = "", clock
	m.Server, _ = start(t, c)
	m.copy = verbstest.NewCopy(env.Real(), make([]byte, m.region.DataBytes))
	m.control.Accounts.Read(func(*ledger.Ledger) { // it does not change before the copy has it
		m.copy.Join(m.region.Journal)
		if err := m.region.Journal.BeginNow(verbs.ItemBytes(len(m.mirrored.last))); err != nil {
			t.Fatal(err)
		}
		defer m.region.Journal.Done()
		m.region.Journal.Splice(0, 0, m.mirrored.last)
	})
	return m
}

// equal checks that the copy has all that the server has. Nothing changes meanwhile.
func (m *mirroredServer) equal(when string) {
	m.t.Helper()
	m.control.Accounts.Read(func(*ledger.Ledger) {
		if err := m.region.Journal.Begin(nil, 0); err != nil {
			m.t.Fatalf("%s: %v", when, err)
		}
		defer m.region.Journal.Done()
		if err := m.region.Journal.Wait(nil, m.region.Journal.Last()); err != nil {
			m.t.Fatalf("%s: %v", when, err)
		}
		here, there := bytes.Clone(m.region.Bytes()), m.copy.Memory()
		presence := region.PresenceOffset(m.region.ChunkBytes, m.region.LockBytes, 0)
		clear(here[:region.PageBytes]) // the header
		clear(here[presence:][:region.SuperblockSlots*region.IntentSlots(m.region.LockBytes)*pool.PresenceBytes])
		if !bytes.Equal(here, there) {
			at := 0
			for here[at] == there[at] {
				at++
			}
			m.t.Fatalf("%s: byte %#x is %d, in the copy %d", when, at, here[at], there[at])
		}
		if stored := must(os.ReadFile(filepath.Join(m.dir, ledgerFile))); !bytes.Equal(stored, m.copy.Ledger()) {
			m.t.Errorf("%s: the ledger has %d bytes, in the copy %d, and they differ", when, len(stored), len(m.copy.Ledger()))
		}
	})
}

// TestServersOwnChanges: what a server changes by itself is in its copy when it answers: zeroes of
// chunks and places that were given back, lock words that a fence turned, the ledger.
func TestServersOwnChanges(t *testing.T) {
	s := startMirrored(t)
	m := admin(t, s.Addresses().Control, nil)
	s.equal("at the start")

	// words of a fenced client
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(1, 1024, limit))
	p := must(pool.Open(pool.Config{Env: env.Real(), Control: c, Devices: []verbs.Device{deviceOf("tcp")}, Identity: "a"}))
	session := must(p.NewSession(1 << 12))
	node := must(p.Allocate(128, pool.Nil))
	session.Begin()
	must(session.Acquire(pool.Word{At: node + 120, Node: node}))
	if err := session.PostRelease(0xff, 0xab); err != nil {
		t.Fatal(err)
	}
	entered := must(p.NewSession(1 << 12))
	entered.Begin()
	if err := errors.Join(entered.Enter(node), entered.Post()); err != nil {
		t.Fatal(err)
	}
	must(session.Acquire(pool.Word{At: node + 120, Node: node}))
	s.equal("with a session in a node")
	// The first Fence stores that the client is refused, which the copy has then; the second one
	// finds it quiet and turns its word.
	_, qp, arena := open(t, must(c.Connect(7, uint32(p.Client()), limit)))
	if err := qp.Start([]verbs.Request{{Op: verbs.Call, Local: must(arena.Alloc(verbs.CallBytes(8)))}}); err != nil {
		t.Fatal(err)
	}
	<-s.calls
	fence := &rpcv1.FenceRequest{Index: "a", Clients: []uint32{uint32(p.Client())}}
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := m.Fence(soon, fence); err == nil {
		t.Fatal("a client is fenced whose call is under way")
	}
	s.ends <- struct{}{}
	must(m.Fence(t.Context(), fence))
	if got := binary.NativeEndian.Uint64(s.copy.Memory()[node.Offset()+120:]); got != pool.Repair|0xab<<16 {
		t.Errorf("a fence is answered, and its word is %#x in the copy", got)
	}
	_ = session.Close()
	_ = entered.Close()
	_ = p.Close()
	s.equal("behind a fence")

	// a chunk that is given back
	b := newTenant(t, s.Server, "b", 11) // all that are left
	full := bytes.Repeat([]byte("full"), 1024)
	var last uint64
	for n := 0; ; n++ {
		chunk, err := b.AllocateChunk(7, b.id, 1024, false, limit)
		if err != nil {
			break
		}
		last = chunk
		if err := b.try(verbs.Request{Op: verbs.Write, Remote: chunk, Local: full}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.FreeChunk(7, b.id, last, limit); err != nil {
		t.Fatal(err)
	}
	if again := b.chunk(); again != last {
		t.Fatalf("chunk at %#x, the only free one is at %#x", again, last)
	}
	if there := s.copy.Memory()[last:][:len(full)]; bytes.Count(there, []byte{0}) != len(there) {
		t.Error("a chunk is granted that is not zero in the copy")
	}
	s.equal("behind a chunk's return")

	// the place of an index
	place := b.grant.Superblock
	if err := b.try(verbs.Request{Op: verbs.Write, Remote: place, Local: full[:64]}); err != nil {
		t.Fatal(err)
	}
	must(m.Evict(t.Context(), &rpcv1.EvictRequest{Index: "b"}))
	next := newTenant(t, s.Server, "c", 1)
	if next.grant.Superblock == place && s.copy.Memory()[place] != 0 {
		t.Error("a place is given that is not zero in the copy")
	}
	next.chunk()
	s.equal("behind an eviction")
}

// TestControlWaitsForTheCopy: an answer that tells of a change of the ledger waits for it, and no
// other one: renewals do not stand behind what clients write.
func TestControlWaitsForTheCopy(t *testing.T) {
	s := startMirrored(t)
	c := newTenant(t, s.Server, "a", 4)
	chunk := c.chunk()
	m := admin(t, s.Addresses().Control, nil)
	s.equal("before")

	s.copy.Hold(true)
	wrote := make(chan error, 1)
	go func() { wrote <- c.try(verbs.Request{Op: verbs.Write, Remote: chunk, Local: []byte("bulk")}) }()
	renewed := make(chan error, 1)
	go func() {
		_, err := m.Renew(t.Context(), &rpcv1.RenewRequest{Index: "a", Client: c.id})
		renewed <- err
	}()
	if err := <-renewed; err != nil {
		t.Errorf("a renewal while the copy is silent: %v", err)
	}
	allocated := make(chan error, 1)
	go func() {
		_, err := c.AllocateChunk(7, c.id, 1024, false, limit)
		allocated <- err
	}()
	select {
	case err := <-allocated:
		t.Fatalf("a chunk is granted while the copy is silent: %v", err)
	case err := <-wrote:
		t.Fatalf("a WRITE is answered while the copy is silent: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	s.copy.Hold(false)
	if err := errors.Join(<-allocated, <-wrote); err != nil {
		t.Error(err)
	}
	s.equal("after")

	s.region.Journal.Break(errors.New("gone"))
	_, err := m.AllocateChunk(t.Context(), &rpcv1.AllocateChunkRequest{Index: "a", Client: c.id})
	wantCode(t, "a chunk without the copy", err, codes.Unavailable)
	_, err = m.Renew(t.Context(), &rpcv1.RenewRequest{Index: "a", Client: c.id})
	wantCode(t, "a renewal behind a change of the ledger that the copy lacks", err, codes.Unavailable)
}

// TestLeasesBesideASilentCopy: a renewal counts when it arrives, however long its answer waits for
// a copy, so the server ends no lease meanwhile of a client that renews. The others end as ever.
func TestLeasesBesideASilentCopy(t *testing.T) {
	clock := newJumping()
	s := startMirroredBy(t, clock)
	c, silent := newTenant(t, s.Server, "a", 4), newTenant(t, s.Server, "b", 4)
	m := admin(t, s.Addresses().Control, nil)
	s.copy.Hold(true)
	held := make(chan error, 1)
	before := s.region.Journal.Ledger()
	go func() {
		_, err := c.AllocateChunk(7, c.id, 1024, false, limit)
		held <- err
	}()
	for end := time.Now().Add(limit); s.region.Journal.Ledger() == before; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("no chunk is granted")
		}
	}
	// renewals as the service makes them before it waits: the wait itself ends as its clock moves
	for begun := clock.Now(); clock.Now()-begun < 2*s.control.Lease; clock.pass(s.control.Lease / 8) {
		if _, err := s.control.Core.Renew("a", c.id, pool.Epochs{}); err != nil {
			t.Fatalf("a renewal %v after the copy fell silent: %v", clock.Now()-begun, err)
		}
	}
	for end := time.Now().Add(limit); s.control.Expired.Load() == 0; {
		if time.Now().After(end) {
			t.Fatal("the lease of the client that does not renew does not end")
		}
		if _, err := s.control.Core.Renew("a", c.id, pool.Epochs{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-held; err == nil {
		t.Error("an answer went out while the copy was silent")
	}
	s.copy.Hold(false)
	if _, err := m.Renew(t.Context(), &rpcv1.RenewRequest{Index: "a", Client: c.id}); err != nil {
		t.Errorf("who renewed all the time: %v", err)
	}
	if _, err := silent.Renew(7, silent.id, pool.Epochs{}, limit); !errors.Is(err, pool.ErrFenced) {
		t.Errorf("who did not renew: %v", err)
	}
}

// failing is a core.Store whose Save fails while it is true.
type failing bool

// Save implements core.Store.
func (f *failing) Save([]byte) error {
	if *f {
		return errors.New("the disk is full")
	}
	return nil
}

// TestJournaledStore: what was not stored is not recorded, and what finds no room in the journal is
// not stored. A save changes as much of the copy's ledger as differs.
func TestJournaledStore(t *testing.T) {
	c := verbstest.NewCopy(env.Real(), make([]byte, 4096))
	j, local := verbs.NewJournal(env.Real(), nil), new(failing)
	c.Join(j)
	s := &journaled{local: local, journal: j}
	long := bytes.Repeat([]byte("0123456789"), 50_000)
	saves := func(b []byte, want string) {
		t.Helper()
		if err := s.Save(b); err != nil {
			t.Fatal(err)
		}
		if err := j.Wait(nil, j.Ledger()); err != nil || string(c.Ledger()) != want {
			t.Fatalf("the copy has %d bytes of %d, %v", len(c.Ledger()), len(want), err)
		}
	}
	saves(long, string(long))
	before := j.Last()
	long[250_000]++
	saves(long, string(long))
	if grown := j.Last() - before; grown > 64 {
		t.Errorf("one byte of the ledger takes %d in the stream", grown)
	}
	*local, before = true, j.Last()
	if err := s.Save(long[:10]); err == nil || j.Last() != before {
		t.Errorf("what is not stored is recorded, from %d to %d: %v", before, j.Last(), err)
	}
	*local = false
	c.Hold(true)
	stored := 0
	for fill := byte(0); ; fill++ {
		if stored++; stored > 100 {
			t.Fatal("the journal has no limit")
		}
		whole := bytes.Repeat([]byte{fill}, verbs.MaxTransfer)
		if err := s.Save(whole); err != nil {
			if !errors.Is(err, verbs.ErrTooMany) {
				t.Error(err)
			}
			break
		}
		long = whole
	}
	c.Hold(false)
	saves(long, string(long)) // what was saved last
}

// storeThat is a store that calls f while it stores.
type storeThat func([]byte)

func (f storeThat) Save(b []byte) error { f(b); return nil }

// TestLedgerThatWasNotRecorded: a copy that joins after a change of the ledger was stored and could
// not be recorded gets that change: it was made, and is answered once the copies of then are given
// up.
func TestLedgerThatWasNotRecorded(t *testing.T) {
	j := verbs.NewJournal(env.Real(), nil)
	s := &journaled{journal: j}
	was, is := bytes.Repeat([]byte{1}, 3<<20), bytes.Repeat([]byte{2}, 3<<20)
	if err := s.Save(was); err != nil { // nothing is recorded: it may be long
		t.Fatal(err)
	}
	// A copy begins to join in the middle of the next change.
	s.local = storeThat(func([]byte) {
		must(j.Feed(func() error { return nil }, nil))
	})
	if err := s.Save(is); err != nil {
		t.Fatalf("the change was refused, so the test is of nothing: %v", err)
	}
	if !bytes.Equal(s.last, is) {
		t.Error("the ledger that copies get next is the one of before the change, which was made and is answered")
	}
}
