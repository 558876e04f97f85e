package memserver

import (
	"runtime"
	"testing"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestAwaitHoldings: each change of the holdings of an index ends a wait for them, and nothing else
// does: neither a call that changes nothing nor a change of another index.
func TestAwaitHoldings(t *testing.T) {
	s, stop := start(t, localConfig(t))
	defer stop()
	m, ctx := admin(t, s.Addresses().Control, nil), t.Context()
	waiting := func() int {
		s.control.waits.mu.Lock()
		defer s.control.waits.mu.Unlock()
		return len(s.control.waits.waiting[holdingsOf("a")])
	}
	for _, index := range []string{"a", "b"} {
		must(m.Admit(ctx, &rpcv1.AdmitRequest{Index: index, QuotaChunks: 1}))
		must(m.SwapMap(ctx, &rpcv1.SwapMapRequest{Index: index, Generation: 1}))
	}
	a := client(t, s.Addresses().Control, "a", "tcp", nil)
	b := client(t, s.Addresses().Control, "b", "tcp", nil)
	first, other := must(a.Register(limit)), must(b.Register(limit))
	must(a.Connect(7, first, limit))
	must(b.Connect(7, other, limit))
	version := must(m.ListHoldings(ctx, &rpcv1.ListHoldingsRequest{Index: "a"})).Version
	same := must(m.AwaitHoldings(ctx, &rpcv1.AwaitHoldingsRequest{Index: "a", Seen: version, WaitMilliseconds: 10}))
	if version == 0 || same.Version != version {
		t.Fatalf("version %d, and %d after a wait in which nothing changed", version, same.Version)
	}
	var epoch uint64
	for _, change := range []struct {
		name string
		do   func()
	}{
		{"acquire", func() {
			must(a.Acquire(pool.Claim{Client: first, Generation: 1, End: []byte("m")}, limit))
			epoch = must(a.Acquire(pool.Claim{Client: first, Generation: 1, End: []byte("m")}, limit)).Own[0].Epoch
		}},
		{"release", func() { must(0, a.Release(first, []byte("a"), []byte("b"), epoch, limit)) }},
		{"fence", func() { must(0, a.Fence(7, []uint32{first}, limit)) }},
	} {
		out := make(chan uint64, 1)
		go func() {
			reply, err := m.AwaitHoldings(ctx, &rpcv1.AwaitHoldingsRequest{Index: "a", Seen: version, WaitMilliseconds: 30_000})
			if err != nil {
				t.Errorf("%s: %v", change.name, err)
			}
			out <- reply.GetVersion()
		}()
		for waiting() == 0 {
			runtime.Gosched()
		}
		must(b.Acquire(pool.Claim{Client: other, Generation: 1}, limit))
		must(0, a.Release(first, []byte("x"), []byte("y"), 77, limit))
		if waiting() != 1 {
			t.Errorf("%s: the wait ended before", change.name)
		}
		change.do()
		got := <-out
		if list := must(m.ListHoldings(ctx, &rpcv1.ListHoldingsRequest{Index: "a"})); got == version || got == 0 || change.name != "acquire" && list.Version != got {
			t.Errorf("%s: version %d was %d, the list has %d", change.name, got, version, list.Version)
		}
		version = must(m.ListHoldings(ctx, &rpcv1.ListHoldingsRequest{Index: "a"})).Version
	}
	_, err := m.AwaitHoldings(ctx, &rpcv1.AwaitHoldingsRequest{Index: "c"})
	wantCode(t, "no such index", err, codes.NotFound)
	s.control.waits.mu.Lock()
	defer s.control.waits.mu.Unlock()
	w := s.control.waits
	views := len(w.waiting[topicView]) // the two clients follow these
	if calls := w.calls - views; calls != 0 || len(w.waiting) > 1 || len(w.news) > 1 {
		t.Errorf("%d calls stay, and channels of %d topics", calls, len(w.news))
	}
}
