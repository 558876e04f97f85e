package pool

import (
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
)

// TestSweepThatWaits: a sweep may wait for an operation for long. It takes no more memory the more
// nodes are handed out meanwhile.
func TestSweepThatWaits(t *testing.T) {
	const chunkBytes, rounds = 1 << 20, 1 << 16
	p := &Pool{env: env.Real(), dense: make([]atomic.Int32, MaxServer+1)}
	p.list.Store(&[]*server{{id: 1, geometry: geometryOf(chunkBytes)}})
	p.dense[1].Store(1)
	a := newAllocator(p)
	c := a.class(64)
	k := a.addChunk(0, NewAddr(1, chunkBytes), 0)
	b := a.install(c, k, c.shapes[0], 0)
	c.addUncut(b)
	nodes := []Addr{a.cutNext(c, 0), a.cutNext(c, 0)}
	for _, n := range nodes {
		a.giveNode(64, n)
	}
	sw := a.beginSweep(Nil)
	if sw == nil || sw.k != k {
		t.Fatalf("the sweep is %+v", sw)
	}
	n := testing.AllocsPerRun(1, func() {
		for range rounds {
			a.pushFree(b, b.index(a.popFreed(c, 0, false)))
		}
	})
	if n > 0 {
		t.Errorf("%v allocations while a node is handed out %d times", n, rounds)
	}
}
