package art

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// crowd is a copy of a node with n children and an end slot, in ascending order or in any, of which
// some came after the copy was made, and of these and others some are tombstones.
func crowd(r *rand.Rand, n, late, tombs int, ascending bool) *Copy {
	lay, h := Layout{Ends: true, Sums: testSums}, Header{Outline: Outline{Kind: typeFor(1 + n)}}
	b := h.Build(testSums, make([]byte, RootBytes), AddrUnit, 1)
	keys := r.Perm(256)[:n]
	in := map[int]bool{}
	for _, k := range keys {
		in[k] = true
	}
	if ascending {
		keys = keys[:0]
		for k := range 256 {
			if in[k] {
				keys = append(keys, k)
			}
		}
	}
	words := make([]Slot, n)
	for i, k := range keys {
		words[i] = LeafSlot(byte(k), 64, Slot(1+i))
		if i < n-late {
			binary.LittleEndian.PutUint64(b[SlotAt(next(h.Kind, i, k)):], uint64(words[i]))
		}
	}
	if r.IntN(2) == 0 {
		putSlot(b, 0, LeafSlot(0, 64, 9999))
	}
	c := NewCopy()
	if !c.Decode(&lay, AddrUnit, h.Kind, b) {
		panic("no node")
	}
	c = c.Clone()
	for i, k := range keys[n-late:] {
		if at := next(h.Kind, n-late+i, k); !c.store(at, words[n-late+i]) {
			c = c.cloneWith(at + 1)
			c.store(at, words[n-late+i])
		}
	}
	for range tombs {
		i := r.IntN(n)
		c.store(next(h.Kind, i, keys[i]), TombOf(words[i], 7))
	}
	return c
}

// next is the slot of the i-th child, at branch k.
func next(t NodeType, i, k int) int {
	if t == Direct {
		return 1 + k
	}
	return 1 + i
}

// TestBeside: the children beside each place are those of a list in order, of nodes of all types,
// with tombstones, and children that came after the copy was made.
func TestBeside(t *testing.T) {
	r := rand.New(rand.NewPCG(32, 5))
	for round := range 60 {
		n := 1 + r.IntN(200)
		if round%2 == 0 {
			n = 1 + r.IntN(12)
		}
		c := crowd(r, n, r.IntN(n), r.IntN(n), round%3 == 0)
		word := func(i int) (w Slot) {
			if i >= 0 {
				w = c.Word(i)
			}
			return w
		}
		at := map[int]Slot{}
		for i := range c.Size() {
			if w := c.Word(i); w.Child() && i == 0 {
				at[EndBranch] = w
			} else if w.Child() {
				at[int(w.Key())] = w
			}
		}
		for b := BeforeAll; b <= BehindAll; b++ {
			var low, high Slot
			for k := b - 1; k >= EndBranch && low == 0; k-- {
				low = at[k]
			}
			for k := b + 1; k < BehindAll && high == 0; k++ {
				high = at[k]
			}
			if i, w := c.below(b); w != low || word(i) != w || i < 0 != (w == 0) {
				t.Fatalf("round %d, below %d: slot %d, %#x, want %#x", round, b, i, w, low)
			}
			if b == BehindAll {
				continue // nobody asks
			}
			if i, w := c.above(b); w != high || word(i) != w || i < 0 != (w == 0) {
				t.Fatalf("round %d, above %d: slot %d, %#x, want %#x", round, b, i, w, high)
			}
		}
	}
}

// BenchmarkBelow is the search of the next smaller child in a copy.
func BenchmarkBelow(b *testing.B) {
	for _, n := range []int{4, 8, 20, 60, 124, 200} {
		for _, ascending := range []bool{true, false} {
			r := rand.New(rand.NewPCG(1, 1))
			c := crowd(r, n, 0, 0, ascending)
			var branches [1024]int
			for i := range branches {
				branches[i] = r.IntN(256)
			}
			b.Run(fmt.Sprintf("%d,ascending=%v", n, ascending), func(b *testing.B) {
				for i := range b.N {
					c.below(branches[i%1024])
				}
			})
		}
	}
}
