package art

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

var allTechniques = Techniques{LockFreeInternal: true, PathCompression: true, NodeTypes: true}

// bounds are places as lower bounds of leaves are: of all lengths, the empty one, and such that are
// prefixes of each other by one byte and by more than one head has.
func bounds(r *rand.Rand, n int) []string {
	all := map[string]bool{"": true}
	last := ""
	for len(all) < n {
		next := string(bytesOf(r, r.IntN(4)))
		switch r.IntN(4) {
		case 0:
			next = last + next
		case 1:
			next = last[:r.IntN(len(last)+1)] + "\x00" + next
		case 2:
			next = last[:r.IntN(len(last)+1)] + "\xff" + string(make([]byte, r.IntN(2*MostPrefix))) + next
		}
		if len(next) <= toyLongest {
			all[next], last = true, next
		}
	}
	places := make([]string, 0, n)
	for p := range all {
		places = append(places, p)
	}
	slices.Sort(places)
	return places
}

// TestBounds: leaves at places that are prefixes of each other get slots and lose them, also leaves
// that are there already. All others are proved to have none.
func TestBounds(t *testing.T) {
	for name, with := range map[string]Techniques{
		"all":    allTechniques,
		"locked": {PathCompression: true, NodeTypes: true},
		"plain":  {LockFreeInternal: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(32, 1))
			s := newToy(t, alikeLayout, with)
			places := bounds(r, 400)
			r.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
			there := map[string]bool{}
			for i, p := range places {
				at := pool.Nil
				if i%3 == 0 { // on any server, and not of the operation that links it
					a, err := s.Pool.AllocateBlock(toyBytes, pool.Nil)
					s.must(err)
					s.Begin()
					l := toyLeaf{s: s, place: []byte(p), at: a}
					s.must(l.Queue(a))
					s.must(s.PS.Post())
					s.End()
					at = a
				}
				if !s.add([]byte(p), at) || s.add([]byte(p), pool.Nil) {
					t.Fatalf("place %x was there, or is not", p)
				}
				if w := s.find([]byte(p)); at != pool.Nil && w.Addr() != at {
					t.Fatalf("place %x leads to %v, its leaf lies at %v", p, w.Addr(), at)
				}
				there[p] = true
			}
			s.check(there)
			for i, p := range places {
				if w := s.find([]byte(p)); w == 0 {
					t.Fatalf("place %x is lost", p)
				}
				if i%2 == 0 {
					s.remove([]byte(p))
					delete(there, p)
				}
			}
			s.check(there)
			for i, p := range places {
				if w := s.find([]byte(p)); (w == 0) != (i%2 == 0) {
					t.Fatalf("place %x leads to %#x", p, w)
				}
			}
			for p := range there {
				s.remove([]byte(p))
			}
			if n := s.check(nil); n > 3 {
				t.Errorf("%d inner nodes are left of nothing", n)
			}
		})
	}
}

// TestFrozenRoot: who inserts replaces a root that a load has frozen.
func TestFrozenRoot(t *testing.T) {
	s := newToy(t, alikeLayout, allTechniques)
	s.freezeRoot()
	first := s.Session.t.RootAddr()
	s.add([]byte("xyz"), pool.Nil)
	if s.Session.t.RootAddr() == first {
		t.Error("the root is the frozen one")
	}
	s.check(map[string]bool{"xyz": true})
}

// freezeRoot freezes the root, as a load does.
func (s *toy) freezeRoot() {
	s.Begin()
	defer s.End()
	s.must(s.readRoot())
	n := s.Fresh.Clone()
	s.must(s.Freeze(n, s.Fresh))
}

// TestLeafOfTwoNodes: a leaf that is left alone below two nodes, which others left there, takes the
// place of both.
func TestLeafOfTwoNodes(t *testing.T) {
	s := newToy(t, alikeLayout, allTechniques)
	for _, p := range []string{"kaaab", "kaaac", "kz"} {
		s.add([]byte(p), pool.Nil)
	}
	s.Begin()
	for _, p := range []string{"kaaac", "kz"} {
		_, err := s.Seek([]byte(p))
		s.must(err)
		st := s.Last()
		s.QueueSwap(st, TombOf(st.Word, s.Env.Uint64()))
		s.must(s.PS.Post())
	}
	_, err := s.Seek([]byte("kaaab"))
	s.must(err)
	s.must(s.Replace(1))
	s.End()
	if n := s.check(map[string]bool{"kaaab": true}); n != 1 {
		t.Errorf("%d inner nodes", n)
	}
}

// TestNodesOfOtherSizes: where there is no memory for small nodes a leaf gets a slot below larger
// ones, each in memory of its own size.
func TestNodesOfOtherSizes(t *testing.T) {
	s := newToy(t, loneLayout, allTechniques)
	first, second := strings.Repeat("k", 3*MostPrefix), strings.Repeat("k", 3*MostPrefix-1)+"l"
	s.add([]byte(first), pool.Nil)
	var free []made // when all else is taken
	for _, size := range []int{toyBytes, NodeType(4).Bytes(), NodeType(8).Bytes(), AllocatedFor(Direct.Bytes())} {
		a, err := s.PS.AllocateBlock(size, pool.Nil)
		s.must(err)
		free = append(free, made{a, size})
	}
	for size := AllocatedFor(Direct.Bytes()); size > 0; size -= AddrUnit {
		for {
			if _, err := s.PS.AllocateBlock(size, pool.Nil); err != nil {
				if err = op.Failure(err, false); !errors.Is(err, index.ErrPoolFull) {
					t.Fatal(err)
				}
				break
			}
		}
	}
	for _, m := range free {
		s.Pool.Free(m.at, m.size)
	}
	s.add([]byte(second), pool.Nil)
	if n := s.check(map[string]bool{first: true, second: true}); n != 1+s.chain(1, 3*MostPrefix-1) {
		t.Errorf("%d inner nodes", n)
	}
}

// TestSlotsThatComeBack: a client comes to a leaf, and goes to sleep. Beside the leaf another one
// gets a slot, and loses it. Where leaves may be left alone in a node the client, when it wakes up,
// does not give that one a slot again.
func TestSlotsThatComeBack(t *testing.T) {
	for _, lay := range []Layout{alikeLayout, loneLayout} {
		s := newToy(t, lay, allTechniques)
		slow := s.another(t)
		s.add([]byte("kb"), pool.Nil)
		slow.Begin()
		_, err := slow.Seek([]byte("kc"))
		slow.must(err)
		s.add([]byte("kc"), pool.Nil)
		out := s.find([]byte("kc")).Addr()
		s.remove([]byte("kc"))
		slow.coming = toyLeaf{s: slow, place: []byte("kc"), at: out}
		again, err := slow.Fork(&slow.coming, []byte("kb"))
		slow.must(err)
		slow.End()
		if again == lay.LoneLeaves {
			t.Errorf("lone leaves %v: a leaf that is out has a slot: %v", lay.LoneLeaves, again)
		}
	}
}

// TestLoadOfBounds: a load puts a leaf at each place, and they are found as if they were inserted.
// A second load is refused.
func TestLoadOfBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(32, 2))
	s := newToy(t, alikeLayout, allTechniques)
	places, there := bounds(r, 2000), map[string]bool{}
	s.must(s.load(places))
	for _, p := range places {
		there[p] = true
	}
	s.check(there)
	for _, p := range places {
		if s.find([]byte(p)) == 0 || s.find([]byte(p+"\x01\x00\x02")) != 0 {
			t.Fatalf("place %x is lost, or one behind it is there", p)
		}
	}
	if err := s.load(places); err == nil {
		t.Error("a second load replaced the first one")
	}
	more := []byte(places[1000] + "\x05\x05\x05")
	if !s.add(more, pool.Nil) {
		t.Fatalf("place %x was there", more)
	}
	there[string(more)] = true
	s.check(there)
}
