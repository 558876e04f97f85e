package pool

import (
	"sync/atomic"
	"testing"
)

// TestBatchesAreFew: while one server does not answer and the other has news all the time, what is
// given up goes into few batches, and all of it comes back in the end.
func TestBatchesAreFew(t *testing.T) {
	p := &Pool{dense: make([]atomic.Int32, MaxServer+1)}
	list := []*server{{id: 1}, {id: 2}}
	for _, s := range list {
		s.counts.Store(true)
		s.grant.UncachedEpoch = 1
		for r := range s.epochs {
			s.epochs[r].known.Store(1)
		}
	}
	p.list.Store(&list)
	a := &allocator{pool: p}
	const rounds = 10 * mostBatches
	total := 0
	for n := range rounds {
		for r := range reaches {
			b := a.batch(r)
			b.nodes = append(b.nodes, NewAddr(1, 64))
			total++
			if len(a.limbo[r]) > mostBatches {
				t.Fatalf("round %d: %d batches", n, len(a.limbo[r]))
			}
			e := &list[0].epochs[r]
			e.safe.Store(e.known.Add(1))
		}
		p.learned.Add(1)
	}
	for r := range reaches {
		if s := a.awaited(a.limbo[r][0]); s != list[1] {
			t.Fatalf("the first batch awaits %p, want %p, the server that does not answer", s, list[1])
		}
		list[1].epochs[r].safe.Store(1 + safeAfter)
		if s := a.awaited(a.limbo[r][0]); s != nil {
			t.Errorf("the first batch awaits server %d when all have answered", s.id)
		}
		list[0].epochs[r].safe.Add(safeAfter)
	}
	a.returned() // of no slab: nothing is freed
	if n := p.Reclaimed(); n != uint64(total) {
		t.Errorf("%d nodes of %d come back", n, total)
	}
}
