package art

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
)

// TestCopiesLearn: a child that comes to a slot for which a copy has no room is found by the copies
// of all sessions of the client: at once if one of them put it there, and when one has missed it if
// another client did.
func TestCopiesLearn(t *testing.T) {
	s := newToy(t, toyLayout, allTechniques)
	b, far := s.beside(), s.another(t)
	place := func(i int) []byte { return []byte{'k', byte(i)} }
	for i := range 100 { // the nodes are of all searched types in turn
		switch {
		case i%3 < 2:
			b.add(place(i), pool.Nil)
		default:
			far.add(place(i), pool.Nil)
			if s.find(place(i)) == 0 {
				t.Fatalf("child %d is lost", i)
			}
		}
		if i < 2 {
			continue // the fork, which nobody has looked for yet
		}
		for _, one := range []*toy{s, b} {
			one.Begin()
			_, err := one.Seek(place(0)) // READs the node if another one took its place
			s.must(err)
			out, err := one.Seek(place(i))
			s.must(err)
			if out != Leafed {
				t.Fatalf("by copies child %d is not there: %v, of %d children", i, out, one.Last().Node.Children())
			}
			one.End()
		}
	}
	s.must(b.Close())
}

// TestFewCopies: in a cache that has room for a few copies, or for none, each operation of two
// sessions ends, also where a copy grows and finds no room, and finds what another client put there
// or took out.
func TestFewCopies(t *testing.T) {
	for _, bytes := range []int{1, 200, 300, 500, 900, 3000} {
		s := newToy(t, toyLayout, allTechniques)
		s.Session.t.OpenCache(bytes)
		b, far := s.beside(), s.another(t)
		r := rand.New(rand.NewPCG(uint64(bytes), 1))
		there, most := map[string]bool{}, int64(0)
		for range 400 {
			place := string([]byte{"kl"[r.IntN(2)], byte(r.IntN(100))})
			who := []*toy{s, b, far}[r.IntN(3)]
			switch {
			case !there[place]:
				who.add([]byte(place), pool.Nil)
				there[place] = true
			case r.IntN(4) == 0:
				who.remove([]byte(place))
				delete(there, place)
			}
			for _, one := range []*toy{b, s} {
				if found := one.find([]byte(place)) != 0; found != there[place] {
					t.Fatalf("cache of %d bytes: place %x is found: %v", bytes, place, found)
				}
			}
			most = max(most, s.Session.t.Cache.Bytes())
		}
		if most > int64(max(bytes, 88)) { // the least table
			t.Errorf("a cache of %d bytes took %d", bytes, most)
		}
		s.must(b.Close())
		s.check(there)
	}
}

// TestCopiesThatGrowBesideOthers: of two sessions that come with children to a copy without room
// the second one stores in the copy that the first one made. A copy that the cache does not have
// grows for the session alone.
func TestCopiesThatGrowBesideOthers(t *testing.T) {
	s := newToy(t, toyLayout, allTechniques)
	c := crowd(rand.New(rand.NewPCG(1, 1)), 14, 0, 0, true)
	tree := s.Session.t
	var free []byte
	for b := range 256 {
		if i, w := c.find(b); i < 0 || w.Empty() {
			free = append(free, byte(b))
		}
	}
	late := func(i int) Slot { return LeafSlot(free[i], 64, Slot(i)) }
	grow := func(c *Copy, i int) *Copy { return s.learn(c, i, late(i)) }
	full := int(c.room)
	s.Begin() // later than c
	defer s.End()
	for i := c.Base() + 14; i < full; i++ {
		if grow(c, i) != c {
			t.Errorf("slot %d of %d has no room", i, full)
		}
	}
	if alone := grow(c, full); alone == c || alone.Word(full) != late(full) || tree.latest(c) != c {
		t.Errorf("outside of the cache: %+v", alone)
	}
	tree.Cache.Put(&c.Head)
	one, two := grow(c, full), grow(c, full+1)
	if one != two || tree.latest(c) != one || c.Kept() {
		t.Errorf("copies %p and %p were made of one, the cache has %p", one, two, tree.latest(c))
	}
	if one.Stamp != c.Stamp {
		t.Errorf("the copy has words of %d, and is said to be of %d", c.Stamp, one.Stamp)
	}
	for i := range c.Size() {
		w := c.Word(i)
		if i == full || i == full+1 {
			w = late(i)
		}
		if one.Word(i) != w {
			t.Errorf("slot %d says %#x, want %#x", i, one.Word(i), w)
		}
		if j, v := one.find(int(w.Key())); !w.Empty() && i > 0 && (j != i || v != w) {
			t.Errorf("the child of slot %d is found in %d, %#x", i, j, v)
		}
	}
	if n := len(one.partial()); n != full-c.Base() {
		t.Errorf("%d keys lie side by side, want those of the %d slots that were filled before", n, full-c.Base())
	}
	// The node is out, and another one lies there.
	if tree.Cache.Drop(&tree.latest(c).Head); tree.latest(c) != c {
		t.Error("the copy is there after it was dropped")
	}
	other := c.cloneWith(c.Size())
	other.Stamp++
	tree.Cache.Put(&other.Head)
	if alone := grow(c, full); alone == other || other.Word(full) != 0 || !other.Kept() {
		t.Errorf("the copy of another node has the word %#x of the one before", other.Word(full))
	}
}

// TestCopiesOfOldWords: a session that READ slots before a child came stores that they are empty. A
// copy that is made then says of no other child that it lies there, also when the word comes back.
func TestCopiesOfOldWords(t *testing.T) {
	c := crowd(rand.New(rand.NewPCG(1, 1)), 12, 2, 0, true) // the last two came after it was made
	for _, i := range []int{3, 12} {
		at := c.Word(i)
		c.store(i, 0)
		n := c.cloneWith(c.Size())
		for b := range 256 {
			want := 0
			for j := 1; j <= 12; j++ {
				if w := c.Word(j); !w.Empty() && int(w.Key()) == b {
					want = j
				}
			}
			if j, w := n.find(b); !w.Empty() && (j != want || w != c.Word(want)) || w.Empty() && want != 0 {
				t.Errorf("without slot %d branch %d is found in slot %d, %#x; it lies in %d", i, b, j, w, want)
			}
		}
		c.store(i, at)
		n.store(i, at)
		for b := range 256 {
			if j, w := n.find(b); !w.Empty() && int(w.Key()) != b || j == i && b != int(at.Key()) {
				t.Errorf("branch %d is found in slot %d, %#x", b, j, w)
			}
		}
	}
}

// TestCopiesAreCountedWhole: a copy takes the memory that was allocated for it, and has room for
// the words that fit.
func TestCopiesAreCountedWhole(t *testing.T) {
	// With no child and no end slot there is room for a word that nobody needs. A pointer behind
	// the memory that was allocated would be one into what the allocator gives to others.
	lay, h := Layout{Sums: testSums}, Header{Outline: Outline{Kind: FirstType}}
	bare := NewCopy()
	if !bare.Decode(&lay, AddrUnit, FirstType, h.Build(testSums, make([]byte, RootBytes), AddrUnit, 1)) {
		t.Fatal("no node")
	}
	if c := bare.Clone(); c.memory() <= copyBytes {
		t.Errorf("a copy of a node without slots takes %d bytes, and its words lie behind them", c.memory())
	}
	const n = 4096
	allocated := func(do func(i int)) int {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range n {
			do(i)
		}
		runtime.ReadMemStats(&after)
		return int(after.TotalAlloc - before.TotalAlloc)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, children := range []int{1, 2, 4, 5, 12, 30, 100, 200} {
		c := crowd(r, children, 0, 0, false)
		var copies [n]*Copy
		took := allocated(func(i int) { copies[i] = c.Clone() })
		// The allocator has blocks of this very size. With the race detector Grow takes two of
		// them.
		counted := copies[0].memory()
		var blocks [n][]uint64
		want := allocated(func(i int) { blocks[i] = slices.Grow([]uint64(nil), counted/8) })
		if 8*cap(blocks[0]) != counted || took < want*99/100 || took > want*101/100 {
			t.Errorf("a copy of a node of %d children is counted as %d bytes, in a block of %d; %d copies took %d, and as many blocks %d", children, counted, 8*cap(blocks[0]), n, took, want)
		}
		if filled := 1 + children; c.Kind != Direct && copies[0].memory() > 32+9*filled+7+16+copies[0].memory()/8 {
			t.Errorf("a copy of a node of %d children takes %d bytes", children, copies[0].memory())
		}
	}
}
