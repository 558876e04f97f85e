package art

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
)

// TestGreatestLowerBound: of keys at, before and behind places, and of others, the greatest place
// that is not above them is found, while places come and go.
func TestGreatestLowerBound(t *testing.T) {
	r := rand.New(rand.NewPCG(32, 3))
	s := newToy(t, Techniques{LockFreeInternal: true, PathCompression: true, NodeTypes: true})
	places := bounds(r, 500)
	r.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	var there []string
	old := s.another() // which renews its copies only where they lead to the wrong leaf
	back, asked, wrong := 0, 0, 0
	// search returns the place that a client finds; nil = there is none, or the leaf is out.
	search := func(s *toy, key []byte, fresh bool) (place []byte) {
		t.Helper()
		s.Begin()
		defer s.End()
		found, err := s.SeekBound(key, fresh)
		s.must(err)
		for n := 0; found; n++ {
			place, ok := s.peek(s.Path[s.Level].Word)
			switch {
			case !ok && fresh:
				t.Fatalf("key %x leads to a leaf that is out", key)
			case !ok:
				return nil
			case bytes.Compare(place, key) <= 0:
				return place
			case n > 0:
				t.Fatalf("key %x leads to %x, and that is the second one above it", key, place)
			}
			back++
			found, err = s.SeekBefore(key, fresh)
			s.must(err)
		}
		return nil
	}
	ask := func(key []byte) {
		t.Helper()
		if len(key) > toyLongest {
			return
		}
		i, is := slices.BinarySearch(there, string(key))
		if !is {
			i--
		}
		asked++
		is = i >= 0
		ok := func(place []byte) bool { return (place != nil) == is && (!is || string(place) == there[i]) }
		if place := search(s, key, false); !ok(place) {
			t.Fatalf("key %x leads to %x, want %d of %x", key, place, i, there)
		}
		if !ok(search(old, key, false)) {
			wrong++
			if place := search(old, key, true); !ok(place) {
				t.Fatalf("key %x leads to %x by READs, want %d of %x", key, place, i, there)
			}
		}
	}
	around := func(p string) {
		t.Helper()
		k := []byte(p)
		if len(k) > 0 { // first what lies behind all that begins with some bytes of it
			m := r.IntN(len(k))
			ask(append(k[:m:m], k[m]+1))
		}
		ask(k)
		ask(append(k[:len(k):len(k)], 0))
		ask(append(k[:len(k):len(k)], 0xff, 0xff))
		if n := len(k); n > 0 {
			ask(k[:n-1])
			for _, d := range []byte{1, 255} {
				other := bytes.Clone(k)
				other[n-1] += d
				ask(other)
				other[r.IntN(n)] += d
				ask(other)
			}
		}
	}
	for i, p := range places {
		if !s.add([]byte(p), pool.Nil) {
			t.Fatalf("place %x was there", p)
		}
		at, _ := slices.BinarySearch(there, p)
		there = slices.Insert(there, at, p)
		around(p)
		around(places[r.IntN(len(places))])
		if i%5 == 4 {
			at := r.IntN(len(there))
			p := there[at]
			s.remove([]byte(p))
			there = slices.Delete(there, at, at+1)
			around(p)
		}
	}
	for len(there) > 0 {
		at := r.IntN(len(there))
		p := there[at]
		s.remove([]byte(p))
		there = slices.Delete(there, at, at+1)
		around(p)
	}
	if back == 0 || wrong == 0 {
		t.Errorf("of %d keys %d were led to a leaf above, and %d to a wrong one by old copies", asked, back, wrong)
	}
	t.Logf("of %d keys %d were led to a leaf above, and %d to a wrong one by old copies", asked, back, wrong)
}
