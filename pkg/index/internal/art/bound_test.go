package art

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// asker asks for the bounds of keys, and knows the answers.
type asker struct {
	t     *testing.T
	r     *rand.Rand
	there []string // places that have leaves, in order
	// another client's session, which renews its copies only where they lead to the wrong leaf
	old                *toy
	asked, back, wrong int
}

// search returns the place of the leaf that a client finds for key; nil = there is none, or the
// leaf is out.
func (a *asker) search(s *toy, key []byte, fresh bool) []byte {
	a.t.Helper()
	s.Begin()
	defer s.End()
	found, err := s.SeekBound(key, fresh)
	s.must(err)
	for n := 0; found; n++ {
		place, ok := s.peek(s.Last().Word)
		switch {
		case s.Last().Fresh && !fresh:
			a.t.Fatalf("key %x leads to a word that is said to have been READ", key)
		case !ok && fresh:
			a.t.Fatalf("key %x leads to a leaf that is out", key)
		case !ok:
			return nil
		case bytes.Compare(place, key) <= 0:
			return place
		case n > 0:
			a.t.Fatalf("key %x leads to %x, and that is the second one above it", key, place)
		}
		a.back++
		found, err = s.SeekBefore(key, fresh)
		s.must(err)
	}
	return nil
}

// ask asks s, and then the old client, which may err by copies, but not by READs.
func (a *asker) ask(s *toy, key []byte) {
	a.t.Helper()
	if len(key) > toyLongest {
		return
	}
	i, is := slices.BinarySearch(a.there, string(key))
	if !is {
		i--
	}
	ok := func(place []byte) bool {
		return (place != nil) == (i >= 0) && (i < 0 || string(place) == a.there[i])
	}
	a.asked++
	if place := a.search(s, key, false); !ok(place) {
		a.t.Fatalf("key %x leads to %x, want %d of %x", key, place, i, a.there)
	}
	if !ok(a.search(a.old, key, false)) {
		a.wrong++
		if place := a.search(a.old, key, true); !ok(place) {
			a.t.Fatalf("key %x leads to %x by READs, want %d of %x", key, place, i, a.there)
		}
	}
}

// around asks for keys at, before and behind place p.
func (a *asker) around(s *toy, p string) {
	a.t.Helper()
	k := []byte(p)
	if len(k) > 0 { // first what lies behind all that begins with some bytes of it
		m := a.r.IntN(len(k))
		a.ask(s, append(k[:m:m], k[m]+1))
	}
	a.ask(s, k)
	a.ask(s, append(k[:len(k):len(k)], 0))
	a.ask(s, append(k[:len(k):len(k)], 0xff, 0xff))
	if n := len(k); n > 0 {
		a.ask(s, k[:n-1])
		for _, d := range []byte{1, 255} {
			other := bytes.Clone(k)
			other[n-1] += d
			a.ask(s, other)
			other[a.r.IntN(n)] += d
			a.ask(s, other)
		}
	}
}

// walk compares what NextLeaf finds on both sides of a place with the list.
func (a *asker) walk(s *toy, p string) {
	a.t.Helper()
	s.Begin()
	defer s.End()
	for _, reverse := range []bool{false, true} {
		found, err := s.SeekBound([]byte(p), false)
		s.must(err)
		if place := s.read(s.Last().Word); !found || string(place) != p {
			a.t.Fatalf("place %x leads to %x", p, place)
		}
		at, _ := slices.BinarySearch(a.there, p)
		for range 20 {
			if at++; reverse {
				at -= 2
			}
			found, err := s.NextLeaf(reverse)
			s.must(err)
			if is := at >= 0 && at < len(a.there); found != is {
				a.t.Fatalf("a walk from %x, reverse=%v: %v at %d of %d", p, reverse, found, at, len(a.there))
			} else if !is {
				break
			}
			if place := s.read(s.Last().Word); string(place) != a.there[at] {
				a.t.Fatalf("a walk from %x, reverse=%v, comes to %x, want %x", p, reverse, place, a.there[at])
			}
		}
	}
}

// freezeSome freezes the node where the way to a place ends, as who died before replacing it.
func (s *toy) freezeSome(place []byte) {
	s.Begin()
	defer s.End()
	_, err := s.Seek(place)
	s.must(err)
	if n := s.Last().Node; s.Level > 0 {
		s.must(s.readSlots(n, s.Fresh))
		s.must(s.Freeze(n, s.Fresh))
	}
}

// TestGreatestLowerBound: of keys at, before and behind places, and of others, the greatest place
// that is not above them is found, while places come and go, leaves are replaced, and nodes are
// left frozen.
func TestGreatestLowerBound(t *testing.T) {
	for name, c := range map[string]struct {
		lay  Layout
		with Techniques
	}{
		"all":    {toyLayout, allTechniques},
		"alike":  {alikeLayout, allTechniques},
		"lone":   {loneLayout, allTechniques},
		"direct": {alikeLayout, Techniques{LockFreeInternal: true, PathCompression: true}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &asker{t: t, r: rand.New(rand.NewPCG(32, 3))}
			s := newToy(t, c.lay, c.with)
			a.old = s.another(t)
			n := 300
			if testing.Short() {
				n = 60
			}
			places := bounds(a.r, n)
			a.r.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
			remove := func() {
				at := a.r.IntN(len(a.there))
				p := a.there[at]
				s.remove([]byte(p))
				a.there = slices.Delete(a.there, at, at+1)
				a.around(s, p)
			}
			for i, p := range places {
				if !s.add([]byte(p), pool.Nil) {
					t.Fatalf("place %x was there", p)
				}
				at, _ := slices.BinarySearch(a.there, p)
				a.there = slices.Insert(a.there, at, p)
				a.around(s, p)
				a.around(s, places[a.r.IntN(len(places))])
				switch i % 5 {
				case 2:
					s.freezeSome([]byte(places[a.r.IntN(i)]))
				case 3:
					s.swing([]byte(p))
				case 4:
					remove()
					a.walk(s, a.there[a.r.IntN(len(a.there))])
				}
			}
			for len(a.there) > 0 {
				remove()
			}
			if a.back == 0 || a.wrong == 0 {
				t.Errorf("of %d keys %d were led to a leaf above, and %d to a wrong one by old copies", a.asked, a.back, a.wrong)
			}
		})
	}
}

// TestBoundBesideASplit: a node came between two nodes, with a leaf before the lower one. A client
// that has copies of the two does not miss it, though the lower one is in the tree, and has nothing
// before the key.
func TestBoundBesideASplit(t *testing.T) {
	s := newToy(t, toyLayout, allTechniques)
	old := s.another(t)
	for _, p := range []string{"A", "axxxxp", "axxxxq"} {
		s.add([]byte(p), pool.Nil)
	}
	a := &asker{t: t}
	if place := a.search(old, []byte("axxxxr"), false); string(place) != "axxxxq" {
		t.Fatalf("%q before the split", place)
	}
	s.add([]byte("ab"), pool.Nil)
	if place := a.search(old, []byte("axxxxa"), false); string(place) != "A" {
		t.Fatalf("%q by copies", place)
	}
	if place := a.search(old, []byte("axxxxa"), true); string(place) != "ab" {
		t.Fatalf("%q by READs", place)
	}
}

// TestBoundByAnOldRoot: a node was replaced below a root that another one had replaced. What leads
// to it says so for ever, and no client has to believe it.
func TestBoundByAnOldRoot(t *testing.T) {
	s := newToy(t, toyLayout, allTechniques)
	old := s.another(t)
	s.add([]byte("kb"), pool.Nil)
	s.add([]byte("kd"), pool.Nil)
	a := &asker{t: t}
	if place := a.search(old, []byte("kc"), false); string(place) != "kb" {
		t.Fatalf("%q before", place)
	}
	s.freezeRoot()
	s.add([]byte("x"), pool.Nil)
	s.Begin()
	_, err := s.Seek([]byte("kb"))
	s.must(err)
	s.must(s.Replace(1))
	s.End()
	s.add([]byte("kc"), pool.Nil)
	if place := a.search(old, []byte("kc"), false); string(place) != "kb" {
		t.Fatalf("%q by copies", place)
	}
	if place := a.search(old, []byte("kc"), true); string(place) != "kc" {
		t.Fatalf("%q by READs", place)
	}
}

// TestHiddenBits: of random keys above random places many are led to a leaf that begins above them,
// since the last bytes of its place are in no slot; few where slots have bits of these, whether
// leaves were loaded, inserted, or left alone in a node.
func TestHiddenBits(t *testing.T) {
	for name, c := range map[string]struct {
		lay         Layout
		least, most int // of the keys are led to a leaf above
	}{
		"none": {toyLayout, 50, 200},
		"some": {alikeLayout, 0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			a := &asker{t: t, r: rand.New(rand.NewPCG(32, 4))}
			s := newToy(t, c.lay, allTechniques)
			place := func() string { return string(bytesOf(a.r, 8)) }
			for range 1500 {
				a.there = append(a.there, place())
			}
			slices.Sort(a.there)
			s.must(s.load(a.there))
			for i := range 1000 { // every third one goes, others come
				p := place()
				s.add([]byte(p), pool.Nil)
				a.there = append(a.there, p)
				s.remove([]byte(a.there[i]))
			}
			a.there = a.there[1000:]
			slices.Sort(a.there)
			for range 3000 {
				key := []byte(place())
				i, _ := slices.BinarySearch(a.there, string(key))
				if got := a.search(s, key, false); i == 0 && got != nil || i > 0 && string(got) != a.there[i-1] {
					t.Fatalf("key %x leads to %x, want %d of %x", key, got, i-1, a.there)
				}
			}
			if a.back < c.least || a.back > c.most {
				t.Errorf("%d of 3000 keys are led to a leaf above", a.back)
			}
		})
	}
}

// TestBoundBelowTooDeepNodes: a way down through nodes for longer keys than there are is damage.
func TestBoundBelowTooDeepNodes(t *testing.T) {
	s := newToy(t, toyLayout, allTechniques)
	s.Begin()
	defer s.End()
	var w Slot
	for end := toyLongest + 2; end > 0; end-- {
		a, at, err := s.Allocate(FirstType.Bytes(), pool.Nil)
		s.must(err)
		h := Header{Outline: Outline{Kind: FirstType, Depth: uint16(end)}}
		b := h.Build(s.Session.t.lay.Sums, s.nodes, a, 1)
		putSlot(b, s.Session.t.lay.Base(), w)
		s.PS.Write(pool.Sole, a, b)
		s.must(s.PS.Post())
		w = InnerSlot('k', FirstType, at)
	}
	root, err := s.rootCopy()
	s.must(err)
	s.Path[0] = Step{Node: root}
	s.Path[0].Idx, s.Path[0].Word = root.find('k')
	s.Forget()
	won, err := s.publish(&s.Path[0], w)
	if s.must(err); !won {
		t.Fatal("the root's slot is another one")
	}
	for _, fresh := range []bool{false, true} {
		if found, err := s.SeekBound([]byte("l"), fresh); !errors.Is(err, index.ErrFormat) {
			t.Errorf("fresh %v: found %v, %v", fresh, found, err)
		}
	}
}
