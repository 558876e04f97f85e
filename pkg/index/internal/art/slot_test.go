package art

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
)

// TestSlots: what is packed into a word comes out again, and kinds of words are told apart.
func TestSlots(t *testing.T) {
	for _, a := range []pool.Addr{pool.NewAddr(1, 64), pool.NewAddr(1<<ServerBits-1, 1<<(OffsetBits+6)-64)} {
		at, ok := Pack(a)
		if !ok || at.Addr() != a {
			t.Errorf("%v is packed as %#x, which is %v", a, at, at.Addr())
		}
		inner, leaf := InnerSlot(200, Direct, at), LeafSlot(7, 64, at)
		for _, c := range []struct {
			s                        Slot
			empty, tomb, inner, leaf bool
		}{{0, true, false, false, false}, {inner, false, false, true, false}, {leaf, false, false, false, true}, {TombOf(inner, 0), false, true, false, false}, {TombOf(leaf, 7), false, true, false, false}} {
			for _, s := range []Slot{c.s, c.s | Frozen} {
				if s.Empty() != c.empty || s.Tomb() != c.tomb || s.Inner() != c.inner || s.Leaf() != c.leaf || s.Child() != (c.inner || c.leaf) || s.Clean() != c.s {
					t.Errorf("%#x is taken for another kind", s)
				}
			}
			if !c.empty && !c.tomb && (c.s.Addr() != a || c.s.WithKey(9).Key() != 9 || c.s.WithKey(9).Addr() != a) {
				t.Errorf("%#x: address %v", c.s, c.s.Addr())
			}
		}
		if inner.Key() != 200 || NodeType(inner.Code()) != Direct || TombOf(inner, 5).Key() != 200 || TombOf(inner, 2) == TombOf(inner, 4) {
			t.Errorf("%#x, %#x", inner, leaf)
		}
	}
	for _, a := range []pool.Addr{pool.NewAddr(1<<ServerBits, 64), pool.NewAddr(1, 1<<(OffsetBits+6))} {
		if _, ok := Pack(a); ok {
			t.Errorf("%v is packed", a)
		}
	}
}

// TestTypes: codes of leaves cover what is READ and stay within what is allocated; types have room.
func TestTypes(t *testing.T) {
	last := 0
	for n := 1; n <= MostLeafBytes; n++ {
		w := LeafSlot(0, n, 0)
		if got := w.LeafBytes(); got < n || got > n+coarseUnit || got < last || LeafCode(n) > 127 {
			t.Fatalf("a leaf of %d bytes is READ with %d", n, got)
		}
		last = w.LeafBytes()
	}
	for n := 1; n <= mostSlots; n++ {
		if s := typeFor(n).Slots(); s < n {
			t.Errorf("the type for %d slots has %d", n, s)
		}
	}
	for ty := FirstType; ty < Direct; ty++ {
		if ty.Bytes()%AddrUnit != 0 {
			t.Errorf("type %d has %d bytes", ty, ty.Bytes())
		}
	}
}
