package blocks

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

// TestGarbageWaits: a block is given back when the record of the change that took it out is
// durable, not before; as many at once as one list takes; and in no hurry.
func TestGarbageWaits(t *testing.T) {
	var g Garbage
	g.Start(env.Real())
	block := func(n int) Reference {
		b := make([]byte, item.ReferenceBytes)
		b[0] = byte(n)
		return Decode(b)
	}
	for n := range 3 * MostTogether {
		g.Add(block(n), uint64(1000-n))
	}
	take := func(least int, durable uint64, from, to int) { // those from from on are durable
		t.Helper()
		got := g.Take(nil, least, durable)
		if len(got) != to-from {
			t.Fatalf("%d blocks, want %d", len(got), to-from)
		}
		for i, r := range got {
			if r != block(from+i) {
				t.Errorf("block %d is %v, want %v", i, r, block(from+i))
			}
		}
	}
	all := 3 * MostTogether
	take(1, uint64(1000-all), 0, 0)
	take(all+1, 1000, 0, 0)
	take(1, uint64(1000-all+5), all-5, all)
	take(1, uint64(1000-all+5), 0, 0)
	take(1, 1000, 0, MostTogether)
	take(1, 1000-40, 40, 40+MostTogether)
	if rest := g.Take(nil, 1, 1000); len(rest) != all-5-2*MostTogether || len(g.list) != 0 {
		t.Errorf("%d blocks in the end, and %d left", len(rest), len(g.list))
	}
}
