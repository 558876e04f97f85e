package memserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// peeker is an executor that reads where a request says.
type peeker struct{}

func (peeker) Call(_ verbs.Peer, near verbs.Near, request, answer []byte) (int, error) {
	at := binary.LittleEndian.Uint64(request[8:])
	return 8, near.Read(verbs.RegionID(request[0]), at, answer[:8])
}

// tenant is a client of one of the indexes on a server.
type tenant struct {
	t     testing.TB
	index string
	*control.Client
	id    uint32
	grant pool.Grant
}

func newTenant(t testing.TB, s *Server, index string, chunks uint64) *tenant {
	t.Helper()
	must(admin(t, s.Addresses().Control, nil).Admit(t.Context(), &rpcv1.AdmitRequest{Index: index, QuotaChunks: chunks}))
	c := &tenant{t: t, index: index, Client: client(t, s.Addresses().Control, index, "tcp", nil)}
	c.id = must(c.Register(limit))
	c.grant = must(c.Connect(7, c.id, limit))
	return c
}

func (c *tenant) chunk() uint64 { return must(c.AllocateChunk(7, c.id, 1024, false, limit)) }

// try posts requests on a connection of its own and returns what they come to.
func (c *tenant) try(list ...verbs.Request) error {
	c.t.Helper()
	conn, _, _ := open(c.t, must(c.Connect(7, c.id, limit)))
	arena := must(deviceOf("tcp").NewArena(1 << 20))
	defer arena.Close()
	defer conn.Close()
	qp := must(conn.NewQP(arena))
	for i := range list {
		local := must(arena.Alloc(max(8, len(list[i].Local))))
		copy(local, list[i].Local)
		list[i].Local = local
	}
	return verbs.Post(qp, list)
}

// TestReach: a client reaches over tcp what is its index's, and is refused everywhere else,
// whatever it asks, and whatever else is in its list.
func TestReach(t *testing.T) {
	c := localConfig(t)
	c.Executor = peeker{}
	s, _ := start(t, c)
	a, b := newTenant(t, s, "a", 3), newTenant(t, s, "b", 3)
	mine, mine2, theirs := a.chunk(), a.chunk(), b.chunk()
	if mine2 != mine+1<<20 || theirs != mine2+1<<20 {
		t.Fatalf("chunks at %#x, %#x, %#x", mine, mine2, theirs)
	}
	const data, locks = verbs.RegionData, verbs.RegionLocks
	f := func(what string, region verbs.RegionID, at uint64, want bool) {
		t.Helper()
		before := bytes.Clone(s.region.Memory()[region].Bytes[at:][:8])
		ops := []verbs.Request{{Op: verbs.Read}, {Op: verbs.FetchAdd}, {Op: verbs.CompareSwap}, {Op: verbs.MaskedFetchAdd},
			{Op: verbs.MaskedCompareSwap}, {Op: verbs.Write, Local: before}}
		if !want {
			ops[1].Add, ops[3].Add = 1, 1
			ops[2].Compare, ops[2].Swap = binary.NativeEndian.Uint64(before), 99
			ops[4].Swap, ops[4].SwapMask = 99, 1<<64-1
			ops[5].Local = bytes.Repeat([]byte{99}, 8)
		}
		for _, r := range ops {
			r.Region, r.Remote = region, at
			good := verbs.Request{Op: verbs.FetchAdd, Region: data, Remote: mine + 64, Add: 1}
			counted := func() byte { return s.region.Memory()[data].Bytes[mine+64] }
			began := counted()
			err := a.try(good, r)
			if want && err != nil || !want && !errors.Is(err, verbs.ErrOutOfRange) {
				t.Errorf("%s: %v: %v", what, r.Op, err)
			}
			if did := counted() != began; did != want {
				t.Errorf("%s: %v: the request before it was executed: %v", what, r.Op, did)
			}
			if now := s.region.Memory()[region].Bytes[at:][:8]; !bytes.Equal(before, now) {
				t.Errorf("%s: %v: % x became % x", what, r.Op, before, now)
			}
		}
		call := make([]byte, 64)
		call[0] = byte(region)
		binary.LittleEndian.PutUint64(call[8:], at)
		_, qp, arena := open(t, must(a.Connect(7, a.id, limit)))
		r := verbs.Request{Op: verbs.Call, Local: must(arena.Alloc(64)), Args: 16}
		copy(r.Local, call)
		if err := verbs.Post(qp, []verbs.Request{r}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Answer(); (err == nil) != want {
			t.Errorf("%s: call: %v", what, err)
		}
	}
	f("own superblock", data, a.grant.Superblock, true)
	f("own repair record", data, a.grant.Repair, true)
	f("own last repair record", data, a.grant.Repair+(a.grant.Locks-1)*region.RepairBytes, true)
	f("own intents", data, a.grant.Intents, true)
	f("own last intent", data, a.grant.Intents+uint64(a.grant.IntentSlots-1)*pool.IntentBytes, true)
	f("own lock", locks, a.grant.LockOffset, true)
	f("own last lock", locks, a.grant.LockOffset+2*a.grant.Locks-8, true)
	f("own chunk", data, mine, true)
	f("end of own chunk", data, mine2+1<<20-8, true)

	f("header", data, 0, false)
	f("their superblock", data, b.grant.Superblock, false)
	f("nobody's superblock", data, region.SuperblockOffset(region.SuperblockSlots-1), false)
	f("their repair record", data, b.grant.Repair, false)
	f("their intents", data, b.grant.Intents, false)
	f("nobody's intents", data, region.IntentOffset(s.region.LockBytes, region.SuperblockSlots-1), false)
	f("unused", data, mine-8, false)
	f("their lock", locks, b.grant.LockOffset, false)
	f("nobody's lock", locks, s.region.LockBytes-8, false)
	f("their chunk", data, theirs, false)
	f("a free chunk", data, theirs+1<<20, false)

	// a request that begins in what is granted, and ends beyond
	if err := a.try(verbs.Request{Op: verbs.Read, Region: data, Remote: mine + 1<<20 - 64, Local: make([]byte, 128)}); err != nil {
		t.Errorf("from one own chunk to the next: %v", err)
	}
	for what, at := range map[string]uint64{"chunk": mine2 + 1<<20, "superblock": a.grant.Superblock + region.SuperblockBytes} {
		r := verbs.Request{Op: verbs.Read, Region: data, Remote: at - 64, Local: make([]byte, 65)}
		if err := a.try(r); !errors.Is(err, verbs.ErrOutOfRange) {
			t.Errorf("beyond the own %s: %v", what, err)
		}
	}
	// a list whose answer needs a large buffer
	long := verbs.Request{Op: verbs.Read, Region: data, Remote: mine, Local: make([]byte, 256<<10)}
	if err := a.try(long, long); err != nil {
		t.Errorf("a long list: %v", err)
	}
	err := a.try(long, verbs.Request{Op: verbs.Write, Region: data, Remote: theirs - 8, Local: bytes.Repeat([]byte{99}, 4096)})
	if !errors.Is(err, verbs.ErrOutOfRange) || s.region.Memory()[data].Bytes[theirs-8] != 0 {
		t.Errorf("a long list with a bad WRITE: %v", err)
	}
}

// TestReachOfChunks: a chunk is its index's from the grant until it is given back, over restarts
// and through the hands of clients.
func TestReachOfChunks(t *testing.T) {
	c := localConfig(t)
	c.DataDir, c.Shm = t.TempDir(), ""
	s, stop := start(t, c)
	a, b := newTenant(t, s, "a", 2), newTenant(t, s, "b", 5)
	at := a.chunk()
	reach := func(c *tenant, want bool) {
		t.Helper()
		err := c.try(verbs.Request{Op: verbs.Write, Region: verbs.RegionData, Remote: at, Local: []byte("12345678")})
		if want && err != nil || !want && !errors.Is(err, verbs.ErrOutOfRange) {
			t.Errorf("client %d of %s: %v", c.id, c.index, err)
		}
	}
	reach(a, true)
	reach(b, false)
	other := *a
	other.id = must(a.Register(limit))
	reach(&other, true) // chunks are the index's, whichever client allocated them

	stop()
	s, _ = start(t, c)
	again := func(c *tenant) *tenant {
		return &tenant{t: t, index: c.index, id: c.id, Client: client(t, s.Addresses().Control, c.index, "tcp", nil)}
	}
	a, b = again(a), again(b)
	reach(a, true)
	reach(b, false)

	if err := a.FreeChunk(7, a.id, at, limit); err != nil {
		t.Fatal(err)
	}
	reach(a, false)
	operator := admin(t, s.Addresses().Control, nil)
	must(operator.Evict(t.Context(), &rpcv1.EvictRequest{Index: "a"}))
	must(operator.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "b", QuotaChunks: 7}))
	for { // b gets all that is free, and that chunk in the end
		got := b.chunk()
		if got == at {
			break
		}
		if first := s.region.Memory()[verbs.RegionData].Bytes[got]; first != 0 {
			t.Errorf("chunk at %#x is not zero", got)
		}
	}
	reach(b, true)

	must(operator.Evict(t.Context(), &rpcv1.EvictRequest{Index: "b"}))
	a = newTenant(t, s, "a", 2)
	reach(a, false)
	if got := fmt.Sprint(must(operator.Describe(t.Context(), &rpcv1.DescribeMemoryRequest{})).ChunksUsed); got != "0" {
		t.Errorf("%s chunks are used", got)
	}
}

// slowCall is an executor whose calls wait for the test.
type slowCall struct{ began, end chan struct{} }

func (s slowCall) Call(verbs.Peer, verbs.Near, []byte, []byte) (int, error) {
	s.began <- struct{}{}
	<-s.end
	return 0, nil
}

// sees signals each record that has its words.
type sees struct {
	slog.Handler
	words string
	seen  chan struct{}
}

func (s sees) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, s.words) {
		select {
		case s.seen <- struct{}{}:
		default:
		}
	}
	return s.Handler.Handle(ctx, r)
}

func (s sees) WithAttrs(a []slog.Attr) slog.Handler {
	return sees{s.Handler.WithAttrs(a), s.words, s.seen}
}

// TestFreedUnderARequest: a chunk that is given back while a request of its index is executed is
// neither zeroed nor handed out before that request is over.
func TestFreedUnderARequest(t *testing.T) {
	c, slow := localConfig(t), slowCall{make(chan struct{}), make(chan struct{})}
	waits := sees{testLog(t).Handler(), "cannot be used again yet", make(chan struct{}, 1)}
	c.Executor, c.Logger = slow, slog.New(waits)
	s, _ := start(t, c)
	a := newTenant(t, s, "a", 1)
	at := a.chunk()
	if err := a.try(verbs.Request{Op: verbs.Write, Remote: at, Local: []byte("12345678")}); err != nil {
		t.Fatal(err)
	}
	called := make(chan error)
	_, qp, arena := open(t, must(a.Connect(7, a.id, limit)))
	local := must(arena.Alloc(64))
	go func() { called <- verbs.Post(qp, []verbs.Request{{Op: verbs.Call, Local: local, Args: 8}}) }()
	<-slow.began
	if err := a.FreeChunk(7, a.id, at, limit); err != nil {
		t.Fatal(err)
	}
	<-waits.seen
	if got := s.region.Memory()[verbs.RegionData].Bytes[at:][:8]; string(got) != "12345678" {
		t.Errorf("zeroed while a request is executed: %q", got)
	}
	if used := must(admin(t, s.Addresses().Control, nil).Describe(t.Context(), &rpcv1.DescribeMemoryRequest{})).ChunksUsed; used != 0 {
		t.Errorf("%d chunks are used", used)
	}
	slow.end <- struct{}{}
	if err := <-called; err != nil {
		t.Error(err)
	}
	must(admin(t, s.Addresses().Control, nil).Evict(t.Context(), &rpcv1.EvictRequest{Index: "a"}))
	b := newTenant(t, s, "b", 7) // all there are
	for b.chunk() != at {
	}
	if got := s.region.Memory()[verbs.RegionData].Bytes[at]; got != 0 {
		t.Errorf("not zeroed: %d", got)
	}
}
