package partition

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// withChecksum makes the fuzzer's bytes pass the checksum, so that it gets to the fields.
func withChecksum(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(slices.Clone(body), crc32.Checksum(body, castagnoli))
}

func drawServers(t *rapid.T, label string) []Server {
	return servers(rapid.SliceOfNDistinct(rapid.Uint32Range(0, 12), 1, 8, rapid.ID[uint32]).Draw(t, label)...)
}

func drawSample(t *rapid.T) [][]byte {
	if rapid.Bool().Draw(t, "no sample") {
		return nil
	}
	keys := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-d]{1,9}`), 0, 300, rapid.ID[string]).Draw(t, "sample")
	slices.Sort(keys)
	var sample [][]byte
	for _, k := range keys {
		sample = append(sample, []byte(k))
	}
	return sample
}

func drawMap(t *rapid.T) *Map {
	boundaries := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,4}`), 0, 20, rapid.ID[string]).Draw(t, "boundaries")
	slices.Sort(boundaries)
	var keys [][]byte
	for _, b := range boundaries {
		keys = append(keys, []byte(b))
	}
	m, err := ByBoundaries("uid", drawServers(t, "servers"), keys)
	if err != nil {
		t.Fatal(err)
	}
	m.Generation = rapid.Uint64Range(1, 9).Draw(t, "generation")
	return m
}

// loads is the weight that each server owns.
func loads(m *Map, by measure) map[uint32]uint64 {
	load := map[uint32]uint64{}
	for i := range m.Ranges {
		s := m.Span(i)
		load[s.Owner] += by.weight(s.Start, s.End)
	}
	return load
}

func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		current, members := drawMap(t), drawServers(t, "members")
		o := Options{Keys: Bytes, Sample: drawSample(t)}
		next, moves, err := Plan(current, members, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Validate(); err != nil { // complete cover, owners among the members
			t.Fatal(err)
		}
		if again, _, _ := Plan(current, backward(members), o); !reflect.DeepEqual(again, next) {
			t.Fatalf("the order of members changed the plan: %s%s", Describe(current, next), Describe(current, again))
		}
		if next == current {
			if len(moves) != 0 {
				t.Fatalf("the same map with moves %v", moves)
			}
			return
		}
		if next.Generation != current.Generation+1 {
			t.Fatalf("generation %d follows %d", next.Generation, current.Generation)
		}
		eachPiece(current, next, func(start, end []byte, was, is Range) {
			if was.Owner == is.Owner && was.Epoch != is.Epoch || was.Owner != is.Owner && is.Epoch != next.Generation {
				t.Fatalf("%s: %v became %v in generation %d", Interval(start, end), was, is, next.Generation)
			}
		})

		by := o.measure(len(members))
		total, n := by.weight(nil, nil), uint64(len(members))
		before, after := loads(current, by), loads(next, by)
		necessary := uint64(0)
		for id, load := range before {
			if _, stays := next.Server(id); !stays {
				necessary += load
			} else if load > total/n {
				necessary += load - total/n
			}
		}
		moved := uint64(0)
		for _, m := range moves {
			moved += by.weight(m.Start, m.End)
		}
		if moved > necessary {
			t.Fatalf("moved %d of %d, necessary were %d\n%s", moved, total, necessary, Describe(current, next))
		}
		for _, s := range members {
			if load := after[s.ID]; load > total/n+1+n || load+1+n < total/n {
				t.Fatalf("server %d has %d of %d, fair is %d\n%s", s.ID, load, total, total/n, Describe(current, next))
			}
		}
	})
}

func TestPlanTwiceMovesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		current, members := drawMap(t), drawServers(t, "members")
		o := Options{Keys: Bytes, Sample: drawSample(t)}
		next, _, err := Plan(current, members, o)
		if err != nil {
			t.Fatal(err)
		}
		if again, moves, err := Plan(next, members, o); again != next || moves != nil || err != nil {
			t.Fatalf("the second plan: %v\n%s", err, Describe(next, again))
		}
	})
}

func TestMovesLeadFromOneMapToTheOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		current := drawMap(t)
		next, moves, err := Plan(current, drawServers(t, "members"), Options{Keys: Bytes})
		if err != nil {
			t.Fatal(err)
		}
		key := []byte(rapid.StringMatching(`[a-z]{0,5}|\xff`).Draw(t, "key"))
		owner := current.Owner(key)
		for _, m := range moves {
			if bytes.Compare(m.Start, key) <= 0 && (len(m.End) == 0 || bytes.Compare(key, m.End) < 0) {
				if m.From != owner {
					t.Fatalf("%v, but the owner of %q is %d", m, key, owner)
				}
				owner = m.To
			}
		}
		if owner != next.Owner(key) {
			t.Fatalf("the moves make %d the owner of %q, the map says %d", owner, key, next.Owner(key))
		}
	})
}

func TestEndlessChurnStaysWithinBounds(t *testing.T) {
	m, err := EqualWidth("uid", servers(0, 1, 2, 3), Bytes)
	must(t, m, err)
	for i := range uint32(5000) {
		m, _, err = Plan(m, servers(i+1, i+2, i+3, i+5+i%3, i+9), Options{Keys: Bytes})
		must(t, m, err)
	}
	if len(m.Ranges) > MaxRanges/2 {
		t.Errorf("%d ranges of 5 servers", len(m.Ranges))
	}
}

func TestRunsOfEqualSampleKeys(t *testing.T) {
	sample := slices.Repeat([][]byte{[]byte("hot")}, 100)
	m, err := New("uid", servers(1, 2, 3), Options{Keys: Bytes, Sample: sample})
	must(t, m, err)
	m, _, err = Plan(m, servers(1, 2, 3, 4), Options{Keys: Bytes, Sample: sample})
	must(t, m, err)
	if _, _, err := Plan(m, nil, Options{Keys: Bytes}); err == nil {
		t.Error("a plan without members")
	}
	if _, _, err := Plan(m, servers(1, 1), Options{Keys: Bytes}); err == nil {
		t.Error("a plan with a member twice")
	}
}

func BenchmarkOwner(b *testing.B) {
	m, _ := EqualWidth("uid", servers(1, 2, 3, 4, 5, 6, 7, 8), Bytes)
	key := []byte("src/runtime/proc.go")
	b.ReportAllocs()
	for b.Loop() {
		m.Owner(key)
	}
}

func backward(s []Server) []Server {
	s = slices.Clone(s)
	slices.Reverse(s)
	return s
}

func TestManyRangesAreJoined(t *testing.T) {
	var boundaries [][]byte
	for i := range 3000 {
		boundaries = append(boundaries, binary.BigEndian.AppendUint16(nil, uint16(i+1)))
	}
	m, err := ByBoundaries("uid", servers(1, 2), boundaries)
	must(t, m, err)
	next, _, err := Plan(m, servers(1), Options{Keys: Bytes})
	must(t, next, err)
	if len(next.Ranges) != 1 || next.Ranges[0].Epoch != 2 {
		t.Errorf("one server has %d ranges, epoch %d", len(next.Ranges), next.Ranges[0].Epoch)
	}
}
