package chime

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// testShape is the shape of leaves of 8/8 pairs with so many slots and such a neighbourhood.
func testShape(t testing.TB, slots, hood int) *shape {
	t.Helper()
	o := index.Options{Uint64: true, MaxValueBytes: 8}
	l := new(fence.Layout)
	var err error
	if *l, err = newLayout(o); err != nil {
		t.Fatal(err)
	}
	l.SetSecret(siphash.Key{})
	l.Neighbourhood = hood
	l.NodeBytes = l.HeadBytes() + (slots+hood-1)/hood*replicaBytes + slots*slotBytes(l)
	s := shapeOf(l)
	if s.n != slots || s.hood != hood {
		t.Fatalf("a leaf for %d slots, neighbourhood %d, has %d and %d", slots, hood, s.n, s.hood)
	}
	return &s
}

func key64(k uint64) []byte { return binary.BigEndian.AppendUint64(nil, k) }

// TestLoadFactor measures how full a leaf of 64 slots is when the first insertion fails (figure 3d,
// and section 5.4): at least 88 % with neighbourhoods of 8, 99 % with 16.
func TestLoadFactor(t *testing.T) {
	const leaves = 2000
	for _, c := range []struct {
		hood  int
		least float64
	}{{8, 0.88}, {16, 0.99}} {
		got := firstFailure(t, Span, c.hood, leaves)
		t.Logf("neighbourhood %d: the first insertion fails at a load of %.3f on average", c.hood, got)
		if got < c.least {
			t.Errorf("neighbourhood %d: load %.3f, want at least %.2f", c.hood, got, c.least)
		}
	}
}

// TestHops checks every hop: it goes to an empty slot within the neighbourhood of its key's home,
// and within the range from the new key's home to the slot that was empty first.
func TestHops(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		hood := 1 + random.IntN(mostNeighbourhood)
		s := testShape(t, hood+random.IntN(80), hood)
		var tab table
		tab.reset(s, vacant)
		for n := range 3 * s.n {
			home := random.IntN(s.n)
			empty := tab.nearest(home)
			if empty < 0 {
				break
			}
			before := tab
			slot, moves, ok := tab.room(home, empty, nil)
			at := empty
			for _, m := range moves {
				if int(m.to) != at || before.home[m.to] != vacant {
					t.Fatalf("seed %d: hop %v, but slot %d is empty", seed, m, at)
				}
				h := before.home[m.from]
				if h < 0 || before.ahead(int(h), int(m.to)) >= s.hood {
					t.Fatalf("seed %d: hop %v of a key with home %d", seed, m, h)
				}
				if before.ahead(home, int(m.from)) > before.ahead(home, empty) {
					t.Fatalf("seed %d: hop %v outside of %d to %d", seed, m, home, empty)
				}
				before.home[m.to], before.item[m.to], before.home[m.from] = h, before.item[m.from], vacant
				at = int(m.from)
			}
			if at != slot || before != tab {
				t.Fatalf("seed %d: hops %v leave another table", seed, moves)
			}
			if ok {
				if tab.ahead(home, slot) >= s.hood {
					t.Fatalf("seed %d: slot %d for home %d", seed, slot, home)
				}
				tab.home[slot], tab.item[slot] = int16(home), int16(n)
			}
			if random.IntN(3) == 0 {
				tab.home[random.IntN(s.n)] = vacant
			}
		}
	}
}

// FuzzTable: whatever the homes are, each item that was inserted is in one slot of its home's
// neighbourhood.
func FuzzTable(f *testing.F) {
	f.Add(uint8(64), uint8(8), []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 60, 61, 62, 63})
	f.Add(uint8(3), uint8(8), []byte{0, 1, 2, 2})
	f.Fuzz(func(t *testing.T, slots, hood uint8, homes []byte) {
		var tab table
		s := shape{n: 1 + int(slots)%96}
		s.hood = min(s.n, 1+int(hood)%mostNeighbourhood)
		tab.reset(&s, vacant)
		in := map[int]int{}
		for i, h := range homes[:min(len(homes), 200)] {
			if home := int(h) % s.n; tab.insert(home, i) {
				in[i] = home
			}
		}
		for i := range s.n {
			if tab.home[i] == vacant {
				continue
			}
			home, ok := in[int(tab.item[i])]
			if !ok || home != int(tab.home[i]) || tab.ahead(home, i) >= s.hood {
				t.Errorf("slot %d has item %d of home %d, inserted with %d", i, tab.item[i], tab.home[i], home)
			}
			delete(in, int(tab.item[i]))
		}
		if len(in) > 0 {
			t.Errorf("items %v are lost", in)
		}
	})
}
