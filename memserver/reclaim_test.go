package memserver

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestEpochs goes through the life of a few epochs, over the wire, and through a restart of the
// server.
func TestEpochs(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dirConfig(dir))
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(1, 8, limit))
	connect := func(id uint32, epoch uint64) {
		t.Helper()
		if got := must(c.Connect(7, id, limit)).Epoch; got != epoch {
			t.Errorf("client %d connects in epoch %d, want %d", id, got, epoch)
		}
	}
	renew := func(id uint32, passed, wanted, epoch, safe uint64) {
		t.Helper()
		r := must(c.Renew(7, id, pool.Epochs{Passed: passed, Wanted: wanted}, limit))
		if r.Epoch != epoch || r.Safe != safe || r.Lease == 0 {
			t.Errorf("client %d passed %d, wants %d: %+v, want epoch %d, safe %d", id, passed, wanted, r, epoch, safe)
		}
	}
	connect(1, 1)
	connect(2, 1)
	renew(1, 1, 0, 1, 1)
	renew(2, 1, 0, 1, 1) // nobody wants any
	renew(1, 1, 3, 2, 1)
	renew(1, 2, 3, 2, 1) // 2 has not passed
	connect(3, 2)
	connect(1, 2) // a second time
	renew(2, 1, 0, 2, 1)
	renew(2, 2, 0, 3, 2)
	renew(2, 1, 0, 3, 2) // what was passed stays so
	renew(1, 3, 3, 3, 2)
	renew(3, 3, 0, 3, 2)
	if err := c.Fence(7, []uint32{2}, limit); err != nil {
		t.Fatal(err)
	}
	renew(1, 3, 3, 3, 3) // 2 counts no more; and nobody wants more
	renew(1, 3, 3, 3, 3)
	m := admin(t, s.Addresses().Control, nil)
	_, err := m.Renew(t.Context(), &rpcv1.RenewRequest{Index: "a", Client: 1, Passed: 4})
	wantCode(t, "passed too much", err, codes.InvalidArgument, "client 1 passed epoch 4", "current one is 3")
	must(c.Register(limit)) // who only registered holds nothing up

	stop()
	s, _ = start(t, dirConfig(dir))
	c = client(t, s.Addresses().Control, "a", "tcp", nil)
	if _, err := c.Renew(7, 1, pool.Epochs{Passed: 3}, limit); !errors.Is(err, verbs.ErrRefused) {
		t.Errorf("a client of an earlier process: %v", err)
	}
	connect(4, 1)
	connect(5, 1)
	renew(4, 1, 3, 1, 0) // 1, 3 and the one that registered may hold addresses
	if err := c.Fence(7, []uint32{1, 3}, limit); err != nil {
		t.Fatal(err)
	}
	renew(5, 1, 0, 2, 1)
	if err := c.Fence(7, []uint32{4}, limit); err != nil {
		t.Fatal(err)
	}
	renew(5, 2, 0, 2, 2) // who wanted more is gone

	must(admin(t, s.Addresses().Control, nil).Evict(t.Context(), &rpcv1.EvictRequest{Index: "a"}))
	must(c.Admit(1, 8, limit))
	connect(9, 1) // a new index of the same name
}

// TestAdopt: a chunk goes from a fenced client to one other, with its content, and stays there
// through a restart.
func TestAdopt(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dirConfig(dir))
	m := admin(t, s.Addresses().Control, nil)
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(3, 8, limit))
	other := client(t, s.Addresses().Control, "b", "tcp", nil)
	must(other.Admit(1, 8, limit))
	none := func(c pool.Control, id uint32, nodeBytes int) {
		t.Helper()
		if chunk, err := c.AllocateChunk(7, id, nodeBytes, true, limit); !errors.Is(err, pool.ErrPoolFull) {
			t.Errorf("client %d adopts chunk %#x for nodes of %d bytes: %v", id, chunk, nodeBytes, err)
		}
	}
	_, qp, arena := open(t, must(c.Connect(7, 1, limit)))
	buf := must(arena.Alloc(64))
	chunks := map[uint64]bool{}
	for range 2 {
		chunk := must(c.AllocateChunk(7, 1, 512, false, limit))
		chunks[chunk] = true
		buf[0] = 42
		if err := verbs.Post(qp, []verbs.Request{{Op: verbs.Write, Remote: chunk, Local: buf}}); err != nil {
			t.Fatal(err)
		}
	}
	large := must(c.AllocateChunk(7, 1, 1024, false, limit))
	none(c, 2, 512) // its owner lives
	if err := c.Fence(7, []uint32{1}, limit); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AllocateChunk(7, 1, 512, true, limit); !errors.Is(err, pool.ErrFenced) {
		t.Errorf("a fenced client adopts: %v", err)
	}
	none(c, 2, 256)
	none(other, 2, 512)
	_, err := m.AllocateChunk(t.Context(), &rpcv1.AllocateChunkRequest{Index: "a", Client: 2, Adopt: true})
	wantCode(t, "no size", err, codes.InvalidArgument, "say which")
	_, err = m.AllocateChunk(t.Context(), &rpcv1.AllocateChunkRequest{Index: "a", Client: 2, NodeBytes: 1<<20 + 1, Adopt: true})
	wantCode(t, "nodes larger than a chunk", err, codes.InvalidArgument, "1048577")

	_, qp, arena = open(t, must(c.Connect(7, 2, limit)))
	buf = must(arena.Alloc(64))
	first := must(c.AllocateChunk(7, 2, 512, true, limit))
	if err := verbs.Post(qp, []verbs.Request{{Op: verbs.Read, Remote: first, Local: buf}}); err != nil || !chunks[first] || buf[0] != 42 {
		t.Errorf("chunk %#x of %v was adopted and holds %d, %v", first, chunks, buf[0], err)
	}
	stop()
	s, _ = start(t, dirConfig(dir))
	c = client(t, s.Addresses().Control, "a", "tcp", nil)
	second := must(c.AllocateChunk(7, 3, 512, true, limit))
	if second == first || !chunks[second] {
		t.Errorf("chunk %#x is adopted after %#x, of %v", second, first, chunks)
	}
	none(c, 2, 512)
	if got := must(c.AllocateChunk(7, 2, 1024, true, limit)); got != large {
		t.Errorf("chunk %#x is adopted, want %#x", got, large)
	}
	if _, err := c.AllocateChunk(7, 2, 512, false, limit); !errors.Is(err, pool.ErrPoolFull) {
		t.Errorf("adopted chunks count in the quota: %v", err)
	}
	if err := c.FreeChunk(7, 3, first, limit); !errors.Is(err, verbs.ErrRefused) {
		t.Errorf("a chunk is freed by who has it not: %v", err)
	}
	for chunk, owner := range map[uint64]uint32{first: 2, second: 3, large: 2} {
		if err := c.FreeChunk(7, owner, chunk, limit); err != nil {
			t.Error(err)
		}
	}
	must(c.AllocateChunk(7, 2, 512, false, limit))
}
