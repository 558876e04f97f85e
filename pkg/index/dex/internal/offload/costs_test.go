package offload

import (
	"testing"
	"time"
)

const us = time.Microsecond

func TestAverageIsOfTheLastFew(t *testing.T) {
	var a average
	if a.mean() != 0 {
		t.Fatalf("without samples: %v", a.mean())
	}
	a.add(10 * us)
	a.add(20 * us)
	if a.mean() != 15*us {
		t.Fatalf("of 10 and 20: %v", a.mean())
	}
	for range lately - 1 {
		a.add(40 * us)
	}
	if want := (20*us + (lately-1)*40*us) / lately; a.mean() != want {
		t.Fatalf("the first one is too old by now: %v, want %v", a.mean(), want)
	}
	for range 3 * lately {
		a.add(7 * us)
	}
	if a.mean() != 7*us {
		t.Fatalf("of many of 7: %v", a.mean())
	}
}

// TestOutliersCountLittle: a single wait of milliseconds does not turn the rule round; a server
// that became slow does, within a few samples.
func TestOutliersCountLittle(t *testing.T) {
	var c Costs
	for range lately {
		c.read.add(20 * us)
		c.call.add(25 * us)
	}
	c.call.add(20 * time.Millisecond)
	if !c.Worth(1, 1) {
		t.Error("one call that waited long makes calls not worth it")
	}
	n := 0
	for ; c.Worth(1, 1); n++ {
		c.call.add(20 * time.Millisecond)
	}
	if n > lately/2 {
		t.Errorf("a server that became slow is found out after %d calls", n)
	}
}

func TestWorth(t *testing.T) {
	f := func(read, call time.Duration, level uint8, want bool) {
		t.Helper()
		var c Costs
		c.read.add(read)
		c.call.add(call)
		const dice = 1
		if got := c.Worth(level, dice); got != want {
			t.Errorf("READs of %v against a call of %v from level %d: %v, want %v", read, call, level, got, want)
		}
		if c.Worth(level, 3*explore) == want {
			t.Errorf("READs of %v against a call of %v from level %d: the contrary is never tried", read, call, level)
		}
	}
	f(2*us, 3*us, 1, true)          // one round trip for two
	f(2*us, 5100*us/1000, 1, true)  // just below 2 x (2 + 0.15) x 1.2
	f(2*us, 5200*us/1000, 1, false) // just above it
	f(2*us, 5200*us/1000, 2, true)  // three for one
	f(2*us, 7800*us/1000, 2, false)
	f(2*us, 100*us, 2, false) // the server is busy
	f(20*us, 21*us, 1, true)
	f(20*us, 49*us, 1, false)
	f(0, 1*us, 1, false) // shm
	var c Costs
	if c.Worth(1, 1) || c.Worth(1, 0) {
		t.Error("a call is made before READs were measured")
	}
	c.read.add(2 * us)
	if !c.Worth(1, 1) || !c.Worth(1, 0) {
		t.Error("a call is never tried")
	}
}

// TestCallInVainCosts: a server that says that it is busy is left alone, although it says so
// quickly.
func TestCallInVainCosts(t *testing.T) {
	var c Costs
	c.read.add(2 * us)
	c.Called(2*us, 1, true)
	if !c.Worth(1, 1) {
		t.Fatal("a call that takes one READ's time is not worth it")
	}
	for range lately {
		c.Called(2*us, 1, false)
	}
	if c.Worth(1, 1) {
		t.Fatal("calls in vain are worth it")
	}
	for range lately {
		c.Called(2*us, 1, true)
	}
	if !c.Worth(1, 1) {
		t.Fatal("calls that bring something again are not worth it")
	}
}
