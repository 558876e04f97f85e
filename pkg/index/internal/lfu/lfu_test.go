package lfu

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
)

// TestSketch: a count is never below what was counted, hardly ever above it while there is room,
// ends at its most, and is halved.
func TestSketch(t *testing.T) {
	const nodes = 1000
	s := New(8 * nodes)
	node := func(i int) pool.Addr { return pool.NewAddr(1, uint64(i)<<10) }
	above := 0
	for i := range nodes {
		for n := range i%7 + 1 {
			if got := s.Miss(node(i)); int(got) < n+1 {
				t.Fatalf("node %d was missed %d times, and counts %d", i, n+1, got)
			}
		}
	}
	for i := range nodes {
		switch got := int(s.Count(node(i))); {
		case got < i%7+1:
			t.Errorf("node %d was missed %d times, and counts %d", i, i%7+1, got)
		case got > i%7+1:
			above++
		}
	}
	if above > nodes/10 {
		t.Errorf("%d of %d nodes count more than they were missed", above, nodes)
	}
	s.Raise(node(3), 40)
	s.Halve()
	if got := s.Count(node(3)); got != 20 {
		t.Errorf("40 halved is %d", got)
	}
	for range 2 * Most {
		s.Miss(node(4))
	}
	if got := s.Count(node(4)); got != Most {
		t.Errorf("the count of a node that was missed %d times is %d", 2*Most, got)
	}
}
