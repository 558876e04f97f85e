package chime

import (
	"math/rand/v2"
	"testing"
)

// TestSpread: insertions that choose the empty slot with others near it find a full neighbourhood
// less often than those that take the first one. Leaves are filled until no hop makes room, then
// half of their keys go, as in a split, and so on.
func TestSpread(t *testing.T) {
	const leaves, splits = 60, 4
	full := func(choose func(*target) int) float64 {
		random := rand.New(rand.NewPCG(1, 8))
		hops, inserts := 0, 0
		for range leaves {
			l := newTestLeaf(t, Span, Neighbourhood)
			tab := new(table)
			for n := 0; n < splits; {
				l.tabulate(tab, testVersion, 0, l.n)
				key := key64(random.Uint64())
				x := &target{leaf: *l, version: testVersion, home: l.home(key), known: l.hood, hints: l.hintsOf(tab)}
				inserts++
				if i := choose(x); i >= 0 {
					l.set(i, key, key)
					continue
				}
				_, slot, moves, ok := tab.place(x.home, nil)
				if !ok {
					n++
					for i := range l.n {
						if random.IntN(2) == 0 {
							l.set(i, nil, nil)
						}
					}
					continue
				}
				hops++
				for _, m := range moves {
					moved, _ := l.keyAt(int(m.from), testVersion)
					moved = append([]byte(nil), moved...)
					l.set(int(m.from), nil, nil)
					l.set(int(m.to), moved, moved)
				}
				l.set(slot, key, key)
			}
		}
		return float64(hops) / float64(inserts)
	}
	first := full(func(x *target) int {
		for j := range x.hood {
			if i := x.next(x.home, j); x.vacant(i) {
				return i
			}
		}
		return -1
	})
	spread := full((*target).emptySlot)
	t.Logf("of insertions hop %.3f where they take the first empty slot, and %.3f where they look around", first, spread)
	if spread > 0.85*first {
		t.Errorf("%.3f is not much less than %.3f", spread, first)
	}
}
