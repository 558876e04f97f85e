package memserver

import (
	"errors"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestCrowdedHoldings: at the limit of holdings a client learns over the control path that a
// release was refused, and another one that its claim finds no room. A client that does not know
// of that reads that somebody holds the keys, and fences nobody.
func TestCrowdedHoldings(t *testing.T) {
	s, _ := start(t, localConfig(t))
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(1, 0, limit))
	if err := c.SwapMap(0, 1, []byte("map"), limit); err != nil {
		t.Fatal(err)
	}
	first, second := must(c.Register(limit)), must(c.Register(limit))
	must(c.Connect(7, first, limit))
	must(c.Connect(7, second, limit))
	got := must(c.Acquire(pool.Claim{Client: first, Generation: 1, End: []byte("m")}, limit))
	s.control.Accounts.Note(func(l *ledger.Ledger) { l.LimitHoldings(1) })
	if err := c.Release(first, []byte("b"), []byte("c"), got.Own[0].Epoch, limit); !errors.Is(err, pool.ErrHoldings) {
		t.Errorf("released: %v", err)
	}
	got = must(c.Acquire(pool.Claim{Client: second, Generation: 1, Start: []byte("m")}, limit))
	if len(got.Own) != 0 || len(got.Blocked) != 1 || got.Blocked[0].Why != pool.Crowded || got.Blocked[0].Client != 0 {
		t.Errorf("acquired %+v", got)
	}
	reply := must(admin(t, s.Addresses().Control, nil).AcquireRange(t.Context(), &rpcv1.AcquireRangeRequest{Index: "a", Client: second, Generation: 1, Start: []byte("m")}))
	if b := reply.Blocked; len(b) != 1 || b[0].Why != rpcv1.BlockedRange_HELD || !b[0].Crowded {
		t.Errorf("blocked by %v", b)
	}
	if held := must(c.Holdings(limit)); len(held) != 1 || held[0].Client != first || len(held[0].Start) != 0 || string(held[0].End) != "m" {
		t.Errorf("%+v", held)
	}
}
