package dolphin

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// The traps in the published program, and in its design, one test each. Unwritten values and torn
// records are in leaf_test.go, what lies between two steps of a split or merge in steps_test.go,
// and clients that die in package indexsim.

// TestKeysOfOnes: keys of bytes that are all zeros or ones, of which many are prefixes of others,
// are bounds of leaves, ends of scans and of ranges, as others are.
func TestKeysOfOnes(t *testing.T) {
	var keys []string
	var fill func(k string)
	fill = func(k string) {
		keys = append(keys, k)
		if len(k) == 5 {
			return
		}
		for _, c := range []string{"\x00", "\xFE", "\xFF"} {
			fill(k + c)
		}
	}
	fill("")
	slices.Sort(keys)
	random := rand.New(rand.NewPCG(9, 9))
	f := newFamily(t)
	s, old := f.open(), f.open()
	value := func(k string) []byte { return fmt.Appendf(nil, "%x", k)[:min(8, 2*len(k))] }
	for _, i := range random.Perm(len(keys)) {
		f.must(s.Insert([]byte(keys[i]), value(keys[i])))
	}
	for i, k := range keys {
		if v, err := old.Lookup([]byte(k), nil); err != nil || !bytes.Equal(v, value(k)) {
			t.Fatalf("%x is %x, %v", k, v, err)
		}
		for _, reverse := range []bool{false, true} {
			want := keys[i:min(len(keys), i+3)]
			if reverse {
				end := i
				if i == 0 { // nothing is the upper end then
					end = len(keys)
				}
				want = slices.Clone(keys[max(0, end-3):end])
				slices.Reverse(want)
			}
			var got []string
			f.must(s.Scan([]byte(k), 3, reverse, func(k, _ []byte) bool { got = append(got, string(k)); return true }))
			if !slices.Equal(got, want) {
				t.Fatalf("scan from %x, reverse %v: %x, want %x", k, reverse, got, want)
			}
		}
	}
	for n, i := range random.Perm(len(keys)) {
		f.must(s.Delete([]byte(keys[i])))
		if _, err := old.Lookup([]byte(keys[i]), nil); err != index.ErrNotFound {
			t.Fatalf("%x is there: %v", keys[i], err)
		}
		if n%40 == 0 {
			if _, err := s.t.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.whole(s)
}

// TestLateWriteOfAValue: the word of a value is WRITTEN when its key was deleted and inserted again
// meanwhile, as an update's may be that READ the leaf before. It is nobody's word any more: neither
// the key that was inserted again has it, nor another one, nor what takes the leaf's place.
func TestLateWriteOfAValue(t *testing.T) {
	f := newFamily(t)
	s, other := f.open(), f.open()
	f.insert(s, "a0", "a1")
	s.Begin()
	there, err := s.find([]byte("a0"), false)
	if err != nil || !there {
		t.Fatal(there, err)
	}
	found, _ := s.leaf.find([]byte("a0"), s.lay.tagOf([]byte("a0")))
	at, word := s.leaf.at, s.leaf.valueWord(found.n)
	s.End()
	f.must(other.Delete([]byte("a0")))
	copy(f.memory(at)[word:], "late    ")
	f.insert(other, "a2")
	copy(f.memory(at)[word:], "later   ")
	f.insert(other, "a0")
	if f.leafOf(other, "a0") != at {
		t.Fatal("another leaf has taken the place")
	}
	copy(f.memory(at)[word:], "latest  ")
	f.whole(s, "a0", "a1", "a2")
	for i := 0; f.leafOf(other, "a0") == at; i++ {
		f.must(other.Upsert([]byte("a3"), []byte("a3")[:2-i%2]))
	}
	f.must(other.Delete([]byte("a3")))
	f.whole(s, "a0", "a1", "a2")
}

// TestTwoDeletes: of deletes of one key by several clients at once one finds it.
func TestTwoDeletes(t *testing.T) {
	f := newFamily(t)
	const keys, clients = 200, 3
	sessions := []*Session{f.open(), f.open(), f.open()}
	for round := range 3 {
		for i := range keys {
			f.insert(sessions[round], fmt.Sprint("k", i))
		}
		var wg sync.WaitGroup
		deleted := make([]int, clients)
		for n, s := range sessions {
			wg.Go(func() {
				for i := range keys {
					switch err := s.Delete(fmt.Append(nil, "k", i)); {
					case err == nil:
						deleted[n]++
					case !errors.Is(err, index.ErrNotFound):
						t.Errorf("delete: %v", err)
					}
				}
			})
		}
		wg.Wait()
		if sum := deleted[0] + deleted[1] + deleted[2]; sum != keys {
			t.Errorf("%d deletes of %d keys say that they did it: %v", sum, keys, deleted)
		}
		f.whole(sessions[0])
	}
}
