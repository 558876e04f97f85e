package partition

import (
	"bytes"
	"encoding/binary"
	"fmt"
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

// drawLoad draws keys and their rates: none, or any, also such that one has most of all.
func drawLoad(t *rapid.T) (load []KeyLoad) {
	if rapid.Bool().Draw(t, "no sample") {
		return nil
	}
	for _, k := range rapid.SliceOfN(rapid.StringMatching(`[a-d]{1,9}`), 0, 300).Draw(t, "sample") {
		load = append(load, KeyLoad{[]byte(k), float64(rapid.IntRange(1, 100).Draw(t, "rate"))})
	}
	if rapid.Bool().Draw(t, "hot") {
		load = append(load, KeyLoad{[]byte("b"), 1 + 20*total(load)})
	}
	return load
}

// heaviest is the weight of the heaviest key: what cannot be divided.
func heaviest(by measure) (most uint64) {
	l, ok := by.(loaded)
	if !ok {
		return 0
	}
	for i := range l.keys {
		most = max(most, l.below[i+1]-l.below[i])
	}
	return most
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
		o := Options{Keys: Bytes, Load: drawLoad(t), KeyBytes: rapid.SampledFrom([]int{0, 4, 5, 7, 8, 9}).Draw(t, "key bytes")}
		for i := range o.Load {
			if k := &o.Load[i].Key; o.KeyBytes > 0 {
				*k = (*k)[:min(len(*k), o.KeyBytes)]
			}
		}
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

		if o.KeyBytes > 0 {
			for _, r := range next.Ranges {
				if len(r.Start) > o.KeyBytes {
					t.Fatalf("keys have at most %d bytes, and a boundary is at %x", o.KeyBytes, r.Start)
				}
			}
		}

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
		rough := n + 2*fineWeight // of each cut
		if o.KeyBytes > 0 && o.KeyBytes < 8 {
			rough += 1 << (63 - 8*o.KeyBytes) // nothing is between two keys
		}
		if moved > necessary+uint64(len(before))*rough {
			t.Fatalf("moved %d of %d, necessary were %d\n%s", moved, total, necessary, Describe(current, next))
		}
		for _, s := range members {
			if load := after[s.ID]; load > total/n+heaviest(by)+n*rough || load+heaviest(by)+n*rough < total/n {
				t.Fatalf("server %d has %d of %d, fair is %d\n%s", s.ID, load, total, total/n, Describe(current, next))
			}
		}
		if l, ok := by.(loaded); ok { // where there is load, boundaries are at keys of the sample
			for _, r := range next.Ranges {
				known := slices.ContainsFunc(current.Ranges, func(c Range) bool { return bytes.Equal(c.Start, r.Start) })
				i := l.before(r.Start)
				if at := i < len(l.keys) && bytes.Equal(l.keys[i], r.Start); !at && !known && i > 0 && i < len(l.keys) &&
					l.width.position(l.keys[i])-l.width.position(l.keys[i-1]) < wholeWidth>>8 {
					t.Fatalf("a boundary at %q, between the sampled %q and %q", r.Start, l.keys[i-1], l.keys[i])
				}
			}
		}
	})
}

// TestKeyToTheNeediest: a key that exceeds the room of the neighbour beside it goes to the server
// that has most room.
func TestKeyToTheNeediest(t *testing.T) {
	for _, load := range [][]KeyLoad{
		{{[]byte("a"), 9}, {[]byte("b"), 5}, {[]byte("c"), 7}, {[]byte("d"), 9}},
		{{[]byte("a"), 100}, {[]byte("aa"), 69}, {[]byte("b"), 79}, {[]byte("c"), 100}, {[]byte("d"), 1}},
	} {
		for i := range load {
			load[i].Rate *= TrustedRate
		}
		m, err := ByBoundaries("uid", servers(0), nil)
		must(t, m, err)
		m, _, err = Plan(m, servers(0, 1, 2), Options{Keys: Bytes, Load: load})
		must(t, m, err)
		got := loads(m, Options{Keys: Bytes, Load: load}.measure(3))
		for id := range uint32(3) {
			if got[id] < wholeLoad/5 {
				t.Errorf("server %d has %d of %d\n%s", id, got[id], uint64(wholeLoad), Describe(nil, m))
			}
		}
	}
}

// TestHotKeyStays: a key that has more than a share by itself is not handed from one to another,
// and what lies beside it moves away from it.
func TestHotKeyStays(t *testing.T) {
	load := []KeyLoad{{[]byte("hot"), 1000}, {[]byte("a"), 100}, {[]byte("b"), 100}, {[]byte("y"), 100}, {[]byte("z"), 100}}
	for hot := range uint32(3) {
		m, err := ByBoundaries("uid", servers(0, 1, 2), [][]byte{[]byte("e"), []byte("k")})
		must(t, m, err)
		for i := range m.Ranges {
			m.Ranges[i].Owner = hot
		}
		m, _, err = Plan(m, servers(0, 1, 2), Options{Keys: Bytes, Load: load})
		must(t, m, err)
		if owner := m.Owner([]byte("hot")); owner != hot {
			t.Errorf("the hot key went from %d to %d\n%s", hot, owner, Describe(nil, m))
		}
		for _, k := range []string{"a", "b", "y", "z"} {
			if m.Owner([]byte(k)) == hot {
				t.Errorf("%s stays with the hot key\n%s", k, Describe(nil, m))
			}
		}
		if next, _, _ := Plan(m, servers(0, 1, 2), Options{Keys: Bytes, Load: load, Tolerance: 10}); next != m {
			t.Errorf("the second plan changes it\n%s", Describe(m, next))
		}
	}
}

// TestNeighboursFirst: what moves goes to the server with the neighbouring keys, if it has room,
// and no more ranges come to be than there were.
func TestNeighboursFirst(t *testing.T) {
	var load []KeyLoad
	for i := range 1000 {
		load = append(load, KeyLoad{fmt.Appendf(nil, "key-%04d", i), 1})
	}
	f := func(want string, members []Server, boundaries ...string) {
		t.Helper()
		var keys [][]byte
		for _, b := range boundaries {
			keys = append(keys, []byte(b))
		}
		m, err := ByBoundaries("uid", servers(1, 2, 3), keys)
		must(t, m, err)
		next, _, err := Plan(m, members, Options{Keys: Bytes, Load: load, Tolerance: 5})
		must(t, next, err)
		got := ""
		for i, r := range next.Ranges {
			if i == 0 || next.Ranges[i-1].Owner != r.Owner {
				got += fmt.Sprintf(" %d:%s", r.Owner, r.Start)
			}
		}
		if got != want {
			t.Errorf("%v: %s, want %s", boundaries, got, want)
		}
	}
	// no more moves than has to
	f(" 1: 2:key-0100 3:key-0444 1:key-0788", servers(1, 2, 3), "key-0100", "key-0200")
	f(" 1: 2:key-0333 3:key-0666", servers(1, 2, 3), "key-0333", "key-0666")
	f(" 1: 3:key-0503", servers(1, 3), "key-0333", "key-0666")
}

func TestBoundariesAreNoLongerThanKeys(t *testing.T) {
	m, err := New("uid", servers(1, 2, 3), Options{Keys: Bytes, KeyBytes: 2})
	must(t, m, err)
	for _, r := range m.Ranges {
		if len(r.Start) > 2 {
			t.Errorf("boundary %x", r.Start)
		}
	}
	if len(m.Ranges) != 3 {
		t.Errorf("%d ranges", len(m.Ranges))
	}
}

func TestPlanTwiceMovesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		current, members := drawMap(t), drawServers(t, "members")
		o := Options{Keys: Bytes, Load: drawLoad(t)}
		next, _, err := Plan(current, members, o)
		if err != nil {
			t.Fatal(err)
		}
		again, moves, err := Plan(next, members, o)
		by, moved := o.measure(len(members)), uint64(0)
		for _, m := range moves {
			moved += by.weight(m.Start, m.End)
		}
		// With keys that are as heavy as shares the first plan is one of several that are about as
		// good.
		if rough := heaviest(by); err != nil || rough == 0 && again != next || moved > rough+uint64(len(members))*2*fineWeight {
			t.Fatalf("the second plan: %v, it moves %d of %d\n%s", err, moved, by.weight(nil, nil), Describe(next, again))
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
	m, err := EqualWidth("uid", servers(0, 1, 2, 3), Bytes, 0)
	must(t, m, err)
	for i := range uint32(5000) {
		m, _, err = Plan(m, servers(i+1, i+2, i+3, i+5+i%3, i+9), Options{Keys: Bytes})
		must(t, m, err)
	}
	if len(m.Ranges) > MaxRanges/2 {
		t.Errorf("%d ranges of 5 servers", len(m.Ranges))
	}
}

func TestOneKeyHasAllLoad(t *testing.T) {
	sample := []KeyLoad{{[]byte("hot"), 100}}
	m, err := New("uid", servers(1, 2, 3), Options{Keys: Bytes, Load: sample})
	must(t, m, err)
	m, _, err = Plan(m, servers(1, 2, 3, 4), Options{Keys: Bytes, Load: sample})
	must(t, m, err)
	if _, _, err := Plan(m, nil, Options{Keys: Bytes}); err == nil {
		t.Error("a plan without members")
	}
	if _, _, err := Plan(m, servers(1, 1), Options{Keys: Bytes}); err == nil {
		t.Error("a plan with a member twice")
	}
}

func BenchmarkOwner(b *testing.B) {
	m, _ := EqualWidth("uid", servers(1, 2, 3, 4, 5, 6, 7, 8), Bytes, 0)
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
