package combine_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
)

// fewPlaces is a leaf that has some keys, and places for few others. Some keys it cannot find.
type fewPlaces struct {
	has  map[string]string
	free int
}

func (l *fewPlaces) Find(key []byte) (at int, is, ok bool) {
	_, is = l.has[string(key)]
	return 0, is, key[0] != 'x'
}

func (l *fewPlaces) Fit(k *combine.KeyAt[int], _ []byte) bool {
	if k.Was || k.At > 0 {
		return true
	}
	if l.free == 0 {
		return false
	}
	k.At, l.free = l.free, l.free-1
	return true
}

// TestGroup: the changes that a group has taken leave what they would have left one by one, with
// the same answers. What it refuses leaves nothing.
func TestGroup(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 6))
	var g combine.Group[int]
	refused, taken := 0, 0
	for round := range 3000 {
		l := &fewPlaces{has: map[string]string{}, free: r.IntN(3)}
		for _, key := range []string{"a", "b", "c"} {
			if r.IntN(2) == 0 {
				l.has[key] = "old"
			}
		}
		model, removed := maps.Clone(l.has), false
		g.Reset()
		for n := range combine.MaxGroup {
			c := combine.Change{Mode: combine.Mode(r.IntN(int(combine.Delete) + 1)), Key: []byte{"abcdefx"[r.IntN(7)]}, Value: fmt.Append(nil, n)}
			_, is := model[string(c.Key)]
			if !g.AddTo(l, &c) {
				if refused++; c.Key[0] != 'x' && (is || l.free > 0) {
					t.Fatalf("seed %d, round %d: change %d of key %s is refused, there are %d places", seed, round, c.Mode, c.Key, l.free)
				}
				continue
			}
			taken++
			var want error
			switch {
			case c.Mode == combine.Insert && is:
				want = index.ErrExists
			case !is && (c.Mode == combine.Update || c.Mode == combine.Delete):
				want = index.ErrNotFound
			case c.Mode == combine.Delete:
				delete(model, string(c.Key))
				removed = true
			default:
				model[string(c.Key)] = string(c.Value)
			}
			if !errors.Is(c.Answer, want) || want == nil && c.Answer != nil {
				t.Fatalf("seed %d, round %d: change %d of key %s: %v, want %v", seed, round, c.Mode, c.Key, c.Answer, want)
			}
		}
		for _, k := range g.Keys() {
			switch {
			case k.Is && k.Put:
				l.has[string(k.Key)] = string(k.Value)
			case k.Was && !k.Is:
				delete(l.has, string(k.Key))
			}
		}
		if !maps.Equal(l.has, model) || g.Removes() != removed {
			t.Fatalf("seed %d, round %d: the leaf has %v, want %v; removes: %v, want %v", seed, round, l.has, model, g.Removes(), removed)
		}
	}
	if refused < 100 || taken < 1000 {
		t.Errorf("%d changes were refused, %d taken: this tests nothing", refused, taken)
	}
}
