package memserver

import (
	"bytes"
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
)

// TestHoldings walks keys from one client to another over the control path: by Release, and from
// one that ended; then over a restart.
func TestHoldings(t *testing.T) {
	dir := t.TempDir()
	config, clock := dirConfig(dir), newJumping()
	config.env = clock
	s, stop := start(t, config)
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(1, 0, limit))
	if err := c.SwapMap(0, 3, []byte("map"), limit); err != nil {
		t.Fatal(err)
	}
	first, second := must(c.Register(limit)), must(c.Register(limit))
	must(c.Connect(7, first, limit))
	must(c.Connect(7, second, limit))
	claim := pool.Claim{Client: first, Generation: 3, End: []byte("m"), Log: []byte("log of the first")}
	if _, err := c.Acquire(pool.Claim{Client: first, Generation: 2}, limit); !errors.Is(err, pool.ErrOtherMap) {
		t.Errorf("claim by an old map: %v", err)
	}
	got := must(c.Acquire(claim, limit))
	if again := must(c.Acquire(claim, limit)); len(got.Own) != 1 || len(got.Blocked) != 0 || again.Own[0].Epoch != got.Own[0].Epoch {
		t.Fatalf("acquired %+v, then %+v", got, again)
	}
	other := pool.Claim{Client: second, Generation: 3, Log: []byte("log of the second")}
	got = must(c.Acquire(other, limit))
	if len(got.Own) != 1 || !bytes.Equal(got.Own[0].Start, []byte("m")) || len(got.Blocked) != 1 || got.Blocked[0].Why != pool.HeldByOther || got.Blocked[0].Client != first {
		t.Fatalf("the second acquires %+v", got)
	}
	if err := errors.Join(c.Release(first, []byte("b"), []byte("c"), got.Own[0].Epoch-1, limit), c.Release(first, []byte("c"), []byte("d"), 77, limit)); err != nil {
		t.Fatal(err)
	}
	if got = must(c.Acquire(other, limit)); len(got.Own) != 2 || len(got.Blocked) != 2 {
		t.Fatalf("after a release it acquires %+v", got)
	}
	asked := clock.Now()
	if _, err := c.Renew(7, first, pool.Epochs{}, limit); err != nil {
		t.Fatal(err)
	}
	if err := c.Fence(7, []uint32{first}, limit); err != nil {
		t.Fatal(err)
	}
	other.Fenced = []uint32{first}
	if got = must(c.Acquire(other, limit)); len(got.Blocked) != 2 || got.Blocked[0].Why != pool.StillLeased {
		t.Fatalf("the first is fenced, and the second acquires %+v", got)
	}
	for len(got.Blocked) > 0 {
		clock.pass(config.Lease / 8)
		must(c.Renew(7, second, pool.Epochs{}, limit))
		got = must(c.Acquire(other, limit))
	}
	if took := clock.Now() - asked; took < config.Lease {
		t.Errorf("the lease was waited out for %v", took)
	}
	h := got.Own[0]
	if len(h.Inherits) != 1 || h.Inherits[0].Client != first || string(h.Inherits[0].Log) != "log of the first" || h.Epoch <= h.Inherits[0].Epoch {
		t.Errorf("it inherits %+v", h)
	}
	if err := c.Release(second, h.Start, h.End, h.Epoch, limit); !errors.Is(err, pool.ErrNotHeld) {
		t.Errorf("release before settling: %v", err)
	}
	if err := c.Settle(second, h.Start, h.End, h.Epoch+100, limit); !errors.Is(err, pool.ErrNotHeld) {
		t.Errorf("settle another epoch: %v", err)
	}
	if err := errors.Join(c.Settle(second, h.Start, h.End, h.Epoch, limit), c.Settle(second, h.Start, h.End, h.Epoch, limit)); err != nil {
		t.Error(err)
	}
	before := must(c.Holdings(limit))

	stop()
	restarted := clock.Now()
	s, _ = start(t, config)
	c = client(t, s.Addresses().Control, "a", "tcp", nil)
	after := must(c.Holdings(limit))
	if len(after) != len(before) || after[0].Epoch != before[0].Epoch || after[0].Name == "" || after[0].Fenced || len(after[0].Inherits) != 0 {
		t.Errorf("before the restart %+v, after it %+v", before, after)
	}
	// Nobody knows what the earlier process promised whom: a whole lease is waited out.
	third := must(c.Register(limit))
	must(c.Connect(7, third, limit))
	if err := c.Fence(7, []uint32{second}, limit); err != nil {
		t.Fatal(err)
	}
	for got = (pool.Acquired{Blocked: make([]pool.Blocked, 1)}); len(got.Blocked) > 0; {
		clock.pass(config.Lease / 8)
		must(c.Renew(7, third, pool.Epochs{}, limit))
		got = must(c.Acquire(pool.Claim{Client: third, Generation: 3, Fenced: []uint32{second}}, limit))
		if b := got.Blocked; len(b) > 0 && b[0].Why != pool.StillLeased {
			t.Fatalf("blocked by %+v", b)
		}
	}
	if took := clock.Now() - restarted; took < config.Lease {
		t.Errorf("after a restart the lease was waited out for %v", took)
	}
	if _, err := c.Acquire(other, limit); !errors.Is(err, pool.ErrFenced) {
		t.Errorf("a fenced client acquires: %v", err)
	}
}

// TestSilent: nobody waits for the lease of a client that is known to answer nothing any more,
// whoever fenced it first; a restart forgets that.
func TestSilent(t *testing.T) {
	config := dirConfig(t.TempDir())
	s, stop := start(t, config)
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(1, 0, limit))
	if err := c.SwapMap(0, 1, []byte("map"), limit); err != nil {
		t.Fatal(err)
	}
	next := func() uint32 {
		id := must(c.Register(limit))
		must(c.Connect(7, id, limit))
		return id
	}
	take := func(by uint32, from ...uint32) pool.Acquired {
		return must(c.Acquire(pool.Claim{Client: by, Generation: 1, Fenced: from}, limit))
	}
	first, second, third := next(), next(), next()
	if got := take(first); len(got.Own) != 1 {
		t.Fatalf("acquired %+v", got)
	}
	if err := c.FenceDead([]uint32{third, 77}, limit); err != nil { // they hold nothing
		t.Fatal(err)
	}
	if got := take(second, first); len(got.Own) != 0 || got.Blocked[0].Why != pool.HeldByOther {
		t.Fatalf("the first lives, and the second acquires %+v", got)
	}
	if err := c.Fence(7, []uint32{first}, limit); err != nil {
		t.Fatal(err)
	}
	if got := take(second, first); len(got.Own) != 0 || got.Blocked[0].Why != pool.StillLeased {
		t.Fatalf("the first is fenced, and the second acquires %+v", got)
	}
	if err := errors.Join(c.FenceDead([]uint32{first}, limit), c.FenceDead([]uint32{first}, limit)); err != nil {
		t.Fatal(err)
	}
	if got := take(second); len(got.Own) != 0 || got.Blocked[0].Why != pool.ToBeFenced {
		t.Fatalf("the first is silent, but fenced here alone, and the second acquires %+v", got)
	}
	if got := take(second, first); len(got.Own) != 1 {
		t.Fatalf("the first is silent, and the second acquires %+v", got)
	}
	if err := c.FenceDead([]uint32{second}, limit); err != nil {
		t.Fatal(err)
	}

	stop()
	s, _ = start(t, config)
	c = client(t, s.Addresses().Control, "a", "tcp", nil)
	fourth := next()
	if got := take(fourth, second); len(got.Own) != 0 || got.Blocked[0].Why != pool.StillLeased {
		t.Fatalf("after a restart it acquires %+v", got)
	}
	if err := c.FenceDead([]uint32{second}, limit); err != nil {
		t.Fatal(err)
	}
	if got := take(fourth, second); len(got.Own) != 1 {
		t.Fatalf("after a restart the second is silent, and it acquires %+v", got)
	}
}
