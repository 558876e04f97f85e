package resp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// keySet is a sorted set of keys.
type keySet [][]byte

func (s *keySet) add(key []byte) {
	if i, there := slices.BinarySearchFunc(*s, key, bytes.Compare); !there {
		*s = slices.Insert(*s, i, key)
	}
}

func (s *keySet) remove(i int) { *s = slices.Delete(*s, i, i+1) }

func (s *keySet) from(bound []byte) int {
	i, _ := slices.BinarySearchFunc(*s, bound, bytes.Compare)
	return i
}

// shared is what sharedBy of a walk reads.
func (s *keySet) shared(prefix []byte) ([]byte, error) {
	var first, last []byte
	for _, key := range (*s)[s.from(prefix):] {
		if !bytes.HasPrefix(key, prefix) {
			break
		}
		if last = key; first == nil {
			first = key
		}
	}
	if first == nil {
		return nil, nil
	}
	return common(first, last)[len(prefix):], nil
}

// shapes are how keys look, each of at most 64 bytes and of the scan's prefix.
var shapes = map[string]func(r *rand.Rand) string{
	"numbers": func(r *rand.Rand) string { return fmt.Sprintf("%d", r.IntN(1e9)) },
	"families": func(r *rand.Rand) string {
		return fmt.Sprintf("%s:%08d:%s", []string{"order", "user", "session"}[r.IntN(3)], r.IntN(5000), []string{"name", "mail"}[r.IntN(2)])
	},
	"shared":      func(r *rand.Rand) string { return strings.Repeat("long", 10) + fmt.Sprintf("%06d", r.IntN(1e5)) },
	"hexadecimal": func(r *rand.Rand) string { return fmt.Sprintf("%016x", r.Uint64()) },
	"binary": func(r *rand.Rand) string {
		return string([]byte{byte(r.IntN(3)), 0, byte(r.Uint32()), 255, byte(r.Uint32()), 0}[:1+r.IntN(6)])
	},
	"two letters": func(r *rand.Rand) string {
		return strings.NewReplacer("0", "x", "1", "y").Replace(fmt.Sprintf("%0*b", 1+r.IntN(40), r.Uint64N(1<<20)))
	},
}

// TestPositionsLeaveNothingOut: a scan by positions returns each key that stays, whatever comes and
// goes between a position's writing and its reading, and ends. Where nothing comes or goes, it
// returns each key once, and a position fits most bounds.
func TestPositionsLeaveNothingOut(t *testing.T) {
	written, unfit := map[string]int{}, map[string]int{}
	for name, shape := range shapes {
		for seed := range uint64(60) {
			r := rand.New(rand.NewPCG(seed, 1))
			still, prefix := seed%3 == 0, []string{"", "p:"}[seed%2]
			draw := func() []byte { return []byte(prefix + shape(r)) }
			var all, stay keySet
			for range 300 {
				all.add(draw())
			}
			for _, key := range all {
				if still || r.IntN(2) == 0 {
					stay.add(key)
				}
			}
			found := map[string]int{}
			steps := 0
			for at := []byte(prefix); ; {
				i, count := all.from(at), 1+r.IntN(20)
				for ; count > 0 && i < len(all); i++ {
					found[string(all[i])]++
					count--
				}
				if i == len(all) {
					break
				}
				bound := separator(all[i-1], all[i])
				cursor, fits := writePosition([]byte(prefix), bound, all.shared)
				if still {
					written[name]++
				}
				if steps++; steps > 10_000 {
					t.Fatalf("%s, seed %d: the scan does not end", name, seed)
				}
				if !fits {
					if still {
						unfit[name]++
					}
					at = bytes.Clone(bound)
					continue
				}
				if cursor < positions || cursor >= cursorsEnd {
					t.Fatalf("%s, seed %d: cursor %d of %q", name, seed, cursor, bound)
				}
				for n := r.IntN(4); !still && n > 0; n-- {
					if j := r.IntN(len(all)); r.IntN(2) == 0 {
						all.add(draw())
						// This one differs in what the others may have in common.
						odd := bytes.Clone(all[j])
						odd[len(prefix)+r.IntN(len(odd)-len(prefix))] = byte('a' + r.IntN(26))
						all.add(odd)
					} else if _, stays := slices.BinarySearchFunc(stay, all[j], bytes.Compare); !stays {
						all.remove(j)
					}
				}
				got, err := readPosition(cursor, []byte(prefix), 64, all.shared)
				if err != nil || still && !bytes.Equal(got, bound) {
					t.Fatalf("%s, seed %d: %q is read as %q, %v", name, seed, bound, got, err)
				}
				at = got
			}
			for _, key := range stay {
				if n := found[string(key)]; n == 0 || still && n != 1 {
					t.Errorf("%s, seed %d: %q was returned %d times", name, seed, key, n)
				}
			}
		}
		// Bounds of text fit. Those of few different bytes, much of which differs, do not.
		if most := map[string]int{"binary": 10, "two letters": 100}[name]; unfit[name]*100 > written[name]*most || unfit[name] == written[name] {
			t.Errorf("%s: of %d bounds %d did not fit", name, written[name], unfit[name])
		}
	}
}

// TestPositionGoesBack: a key that comes and differs within what all keys shared sends a scan back,
// to where all of them are before it.
func TestPositionGoesBack(t *testing.T) {
	var all keySet
	for i := range 100 {
		all.add(fmt.Appendf(nil, "a:customers-of-the-north:%02d", i))
	}
	bound := separator(all[49], all[50])
	cursor, fits := writePosition(nil, bound, all.shared)
	if got, _ := readPosition(cursor, nil, 64, all.shared); !fits || !bytes.Equal(got, bound) {
		t.Fatalf("%q is read as %q (%v)", bound, got, fits)
	}
	all.add([]byte("a:customers-of-the-south:00"))
	if got, _ := readPosition(cursor, nil, 64, all.shared); len(got) != 0 {
		t.Errorf("with a key that differs: %q", got)
	}
	all = all[:0]
	if got, _ := readPosition(cursor, nil, 64, all.shared); len(got) != 0 {
		t.Errorf("with no key: %q", got)
	}
}

// FuzzReadPosition: whatever a client sends as a cursor, the bound is no longer than a key.
func FuzzReadPosition(f *testing.F) {
	f.Add(uint64(positions), "p:", uint8(16))
	f.Add(uint64(cursorsEnd-1), "", uint8(8))
	f.Add(uint64(positions)+12345, "", uint8(3))
	f.Fuzz(func(t *testing.T, cursor uint64, prefix string, longest uint8) {
		shared := func(at []byte) ([]byte, error) { return make([]byte, max(0, int(longest)-len(at))), nil }
		if got, err := readPosition(positions|cursor%positions, []byte(prefix), int(longest), shared); err != nil || len(got) > max(len(prefix), int(longest)) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}
