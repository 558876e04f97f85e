package partition

import (
	"testing"

	"pgregory.net/rapid"
)

// TestPartOfAFreeRangeGoesToANeighbour: a neighbour whose room is not enough for all of a free
// range gets the part of it that lies beside its own keys.
func TestPartOfAFreeRangeGoesToANeighbour(t *testing.T) {
	key := func(high byte) []byte { return []byte{high, 0, 0, 0, 0, 0, 0, 0} }
	f := func(starts []byte, owners []uint32, at byte, want uint32) {
		t.Helper()
		m := &Map{Generation: 1, Index: "uid", Servers: servers(1, 2, 3, 4)}
		for i, owner := range owners {
			r := Range{Owner: owner, Epoch: 1}
			if i > 0 {
				r.Start = key(starts[i-1])
			}
			m.Ranges = append(m.Ranges, r)
		}
		// 4 is gone; a share is 0x55
		next, _, err := Plan(m, servers(1, 2, 3), Options{Keys: Uint64})
		must(t, next, err)
		if got := next.Owner(key(at)); got != want {
			t.Errorf("keys at %#x go to server %d, want %d\n%s", at, got, want, Describe(m, next))
		}
	}
	// the lower neighbour has room for 0x2d of 0x60
	f([]byte{0x28, 0x88, 0xd8}, []uint32{1, 4, 2, 3}, 0x29, 1)
	f([]byte{0x28, 0x78, 0xd8}, []uint32{3, 2, 4, 1}, 0xd7, 1) // the upper one has
	// of two, the one with more room: the upper
	f([]byte{0x28, 0x78, 0xd8}, []uint32{1, 2, 4, 3}, 0xd7, 3)
	f([]byte{0x28, 0x78, 0xd0}, []uint32{1, 3, 4, 2}, 0xcf, 2)
	f([]byte{0x28, 0x88, 0xb0}, []uint32{1, 4, 3, 2}, 0x87, 3) // or the lower
	f([]byte{0x28, 0x88, 0xb0}, []uint32{1, 4, 3, 2}, 0x29, 1) // which leaves the rest to the other
}

// TestReceiverIsANeighbourWithRoom: a free piece goes to a member of other keys only where no
// neighbour has room that is worth a piece.
func TestReceiverIsANeighbourWithRoom(t *testing.T) {
	beside := 0
	rapid.Check(t, func(t *rapid.T) {
		members, err := sortedMembers(drawServers(t, "members"))
		if err != nil {
			t.Fatal(err)
		}
		p := newPlan(drawMap(t), members, Options{Keys: Bytes, Load: drawLoad(t)})
		p.shedExcess()
		for at, c := range p.pieces {
			if c.member != free {
				continue
			}
			to, high := p.receiver(at)
			for _, up := range []bool{false, true} {
				n := p.neighbour(at, up)
				if n == free || p.members[n].ID == c.owner {
					continue
				}
				room := p.deficit(n)
				if worth := room > 0 && (room >= c.weight || room >= p.total/littleRoom); !worth {
					continue
				}
				beside++
				if to != p.neighbour(at, high) {
					t.Fatalf("piece %d goes to member %d, which is no neighbour at that end; member %d has room for %d of %d", at, to, n, room, c.weight)
				}
				if p.deficit(to) < min(room, c.weight) {
					t.Fatalf("piece %d goes to member %d with room %d; member %d has %d, of %d", at, to, p.deficit(to), n, room, c.weight)
				}
			}
		}
	})
	if beside == 0 {
		t.Error("no neighbour had room")
	}
}
