package combine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index/internal/combine"
)

// TestLoad: READs stand in line where most of them take half as long again as the fastest, and a
// microsecond at least.
func TestLoad(t *testing.T) {
	f := func(what string, want bool, phases ...time.Duration) {
		t.Helper()
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 1))
		var l combine.Load
		now := time.Second
		for _, base := range phases {
			for range 2000 {
				d := base + time.Duration(random.Int64N(int64(base)/5))
				if random.IntN(50) == 0 {
					d += 3 * time.Millisecond // its goroutine was not scheduled
				}
				now += 10 * d
				l.Add(now, d)
			}
		}
		if l.Loaded() != want {
			t.Errorf("%s: loaded is %v, want %v (seed %d)", what, l.Loaded(), want, seed)
		}
	}
	us := time.Microsecond
	f("nothing else under way", false, 2*us)
	f("a queue", true, 2*us, 5*us)
	f("a queue that is over", false, 2*us, 20*us, 2*us)
	f("shared memory", false, 150, 600)
	f("a slow network", false, 50*us)
	f("a slow network, loaded", true, 50*us, 100*us)
	for _, s := range []struct{ bytes, want int }{{0, 0}, {8, 0}, {256, 0}, {257, 1}, {1024, 1}, {2088, 2}, {4096, 2}, {4097, 3}, {1 << 20, 3}} {
		if got := combine.SizeOf(s.bytes); got != s.want {
			t.Errorf("a READ of %d bytes is of size %d, want %d", s.bytes, got, s.want)
		}
	}
	// READs take longer for good: after an hour that is what they need
	var l combine.Load
	l.Add(time.Second, 2*us)
	for s := range 3600 {
		l.Add(time.Duration(s)*time.Second, 6*us)
		if s == 120 && !l.Loaded() {
			t.Error("two minutes of load are taken for the network")
		}
	}
	if l.Loaded() {
		t.Error("an hour later the fastest READ is not forgotten")
	}
}
