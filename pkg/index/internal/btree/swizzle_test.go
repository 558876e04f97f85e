package btree

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestSwizzle puts, drops and links copies at random in a cache that is too small for them:
// whatever is found by way of a parent is what the table has, nothing that the cache dropped can be
// reached from what it keeps, and no copy is pointed to twice.
func TestSwizzle(t *testing.T) {
	l := testLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	const children = 20
	random := rand.New(rand.NewPCG(3, 4))
	parents, kids := []pool.Addr{1 << 20, 2 << 20}, [2][children]pool.Addr{}
	for i := range kids {
		for j := range kids[i] {
			kids[i][j] = parents[i] + pool.Addr(j+1)<<10
		}
	}
	kids[1][0] = kids[0][0] // as old copies of parents say whose children have moved
	version, found := uint32(1), 0
	parent := func(i int) *inner {
		version++
		n := cached(t, l, parents[i], 2, children, version)
		copy(n.children, kids[i][:])
		return n
	}
	one := cached(t, l, 64, 1, children, 1).memory
	k := newCache(env.Real(), 16*one, l.NodeBytes)
	x := &Tree{cache: k}
	every := map[*inner]bool{}
	for range 40_000 {
		i, j := random.IntN(len(parents)), random.IntN(children)
		up := innerOf(k.Get(parents[i], 0))
		switch random.IntN(40) {
		case 0:
			up = parent(i)
			k.Put(&up.Head)
			every[up] = true
		case 1:
			k.Drop(k.Get(kids[i][j], 0))
		case 2:
			if up != nil {
				k.Drop(&up.Head)
			}
		case 3, 4, 5, 6:
			version++
			n := cached(t, l, kids[i][j], 1, children, version)
			k.Put(&n.Head)
			every[n] = true
		default:
			if up == nil {
				continue
			}
			if n := up.cachedChild(j, kids[i][j], 1, 0); n != nil {
				if n != innerOf(k.Get(kids[i][j], 0)) {
					t.Fatalf("by way of its parent %v is found, which the table has not", n)
				}
				found++
			} else if n = innerOf(k.Get(kids[i][j], 0)); n != nil {
				x.swizzle(up, j, n)
				if up.cachedChild(j, kids[i][j], 1, 0) != n {
					t.Fatalf("%v is linked, and not found", n)
				}
			}
		}
		if k.Bytes() > int64(16*one) {
			t.Fatalf("%d bytes, at most %d", k.Bytes(), 16*one)
		}
	}
	for n := range every {
		if !n.Kept() && n.place != nil {
			t.Errorf("%v was dropped, and is pointed to", n)
		}
		for j := range n.kids {
			c := n.kids[j].Load()
			if c != nil && (!n.Kept() || !c.Kept() || c.place != &n.kids[j]) {
				t.Errorf("%v, kept %v, points to %v, kept %v", n, n.Kept(), c, c.Kept())
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d copies were found by way of their parents", found)
	}
}

// TestSwizzleRefuses: what the table would not give is not found by way of a parent either.
func TestSwizzleRefuses(t *testing.T) {
	l := testLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	k := newCache(env.Real(), 1<<20, l.NodeBytes)
	x := &Tree{cache: k}
	up, n := cached(t, l, 1<<20, 2, 4, 1), cached(t, l, 1<<12, 1, 4, 1)
	up.children[2] = n.Addr
	up.Stamp, n.Stamp = 7, 7
	k.Put(&up.Head)
	x.swizzle(up, 2, n)
	if up.cachedChild(2, n.Addr, 1, 7) != nil {
		t.Error("a copy is linked that is not kept")
	}
	k.Put(&n.Head)
	x.swizzle(up, 1, n)
	if up.cachedChild(1, n.Addr, 1, 7) != nil {
		t.Error("a copy is linked as another child")
	}
	x.swizzle(up, 2, n)
	if up.cachedChild(2, n.Addr, 1, 7) != n {
		t.Error("it is not found")
	}
	switch {
	case up.cachedChild(2, n.Addr, 1, 8) != nil:
		t.Error("it is found though it is older than the floor")
	case up.cachedChild(2, n.Addr+64, 1, 7) != nil:
		t.Error("it is found for another address")
	case up.cachedChild(2, n.Addr, 2, 7) != nil:
		t.Error("it is found on another level")
	}
}

// TestTakeHints: a copy has of each leaf what the copy before had noted of it, and nothing of
// others, where leaves were added, are gone, or became another node's.
func TestTakeHints(t *testing.T) {
	l := testLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	const children = 40
	hinted := func(leaves ...pool.Addr) *inner {
		n := cached(t, l, 1<<20, 1, len(leaves), 1)
		copy(n.children, leaves)
		n.addHints()
		return n
	}
	var all []pool.Addr
	for i := range pool.Addr(children) {
		all = append(all, (i+1)<<10)
	}
	old := hinted(all...)
	for i := range old.hints {
		old.hints[i] = uint32(i + 1)
	}
	for _, leaves := range [][]pool.Addr{
		all, all[:children/2], all[children/2:], all[:1],
		slices.Insert(slices.Clone(all), 7, 1<<30), slices.Insert(slices.Clone(all[3:]), 0, 1<<30, 2<<30),
		slices.Delete(slices.Clone(all), 5, 8), append(slices.Clone(all), 1<<30),
	} {
		n := hinted(leaves...)
		n.takeHints(old)
		for i, a := range n.children {
			want := uint32(a >> 10)
			if want > children {
				want = 0
			}
			if n.hints[i] != want {
				t.Errorf("of %d leaves the one at %v has hint %d, not %d", len(leaves), a, n.hints[i], want)
			}
		}
	}
	var strange []pool.Addr
	for i := range pool.Addr(children) {
		strange = append(strange, (i+1)<<30)
	}
	n := hinted(strange...)
	n.takeHints(old)
	n.takeHints(nil)
	for i := range n.hints {
		if n.hints[i] != 0 {
			t.Errorf("leaf %v, which the former copy had not, has hint %d", n.children[i], n.hints[i])
		}
	}
}
