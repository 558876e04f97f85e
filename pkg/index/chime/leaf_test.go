package chime

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
)

// newTestLeaf is an empty leaf of 8/8 pairs.
func newTestLeaf(t testing.TB, slots, hood int) *leaf {
	s := testShape(t, slots, hood)
	l := &leaf{shape: s, addr: pool.NewAddr(1, 1<<20), b: make([]byte, s.lay.NodeBytes)}
	l.build(&fence.Header{Version: 77, Rightmost: true, Low: s.lay.Bottom, High: s.lay.NoHigh()}, nil, nil)
	return l
}

const testVersion = 77

// homeKeys are n keys with one home.
func (s *shape) homeKeys(home, n int) (keys [][]byte) {
	for k := uint64(0); len(keys) < n; k++ {
		if key := key64(k); s.home(key) == home {
			keys = append(keys, key)
		}
	}
	return keys
}

// set puts a pair into a slot, and takes the one out that is there.
func (l *leaf) set(i int, key, value []byte) {
	if old, ok := l.keyAt(i, testVersion); ok {
		l.removeFromHome(l.home(old), i, testVersion, old)
	}
	if key == nil {
		l.put(i, testVersion, nil)
		return
	}
	e := l.codec.PutEntry(make([]byte, maxEntry), key, value)
	l.put(i, testVersion, e)
	l.addToHome(l.home(key), i, testVersion, key)
}

// TestMissedHop: k and l have one home. A READ sees l, in the slot to which k hops when l is gone,
// and then m in the slot that k has left. The bitmap is as what it sees: k is missed by who takes
// that for enough (section 4.1.2).
func TestMissedHop(t *testing.T) {
	l := newTestLeaf(t, Span, Neighbourhood)
	const home = 10
	keys := l.homeKeys(home, 3)
	k, x, m := keys[0], keys[1], keys[2]
	l.set(home+1, k, key64(1))
	l.set(home+3, x, key64(1))
	early := bytes.Clone(l.b)
	l.set(home+3, nil, nil)
	l.set(home+3, k, key64(1)) // it hops
	l.set(home+1, nil, nil)
	l.set(home+1, m, key64(1))
	seen := *l
	seen.b = bytes.Clone(l.b)
	at := l.slotAt(home + 3)
	copy(seen.b[at:at+l.slot], early[at:])
	_, m1, ok := seen.digest(home, testVersion)
	if _, bitmap := seen.homeWord(home); !ok || bitmap != m1 {
		t.Fatalf("the bitmap %b shows the hop by itself: the keys make %b", bitmap, m1)
	}
	if _, _, o := seen.find(k, home, testVersion); o != torn {
		t.Errorf("a key that was there all the time: outcome %d", o)
	}
	if _, e, o := l.find(k, home, testVersion); o != present || e == nil {
		t.Errorf("after all of it: outcome %d", o)
	}
}

// timeline is a leaf that changes word by word, in any order within a change.
type timeline struct {
	leaf   *leaf
	random *rand.Rand
	images [][]byte // after each word
	// for each key its values, and from when to when it had each; "" = it is not there
	spans map[string][]lifetime
}

type lifetime struct {
	value    string
	from, to int
}

// change applies what do does to the leaf, a word at a time. The key gets a value, or is taken out.
func (tl *timeline) change(key []byte, value string, do func()) {
	start := len(tl.images) - 1
	before := bytes.Clone(tl.leaf.b)
	do()
	var words []int
	for at := 0; at < len(before); at += 8 {
		if !bytes.Equal(before[at:at+8], tl.leaf.b[at:at+8]) {
			words = append(words, at)
		}
	}
	tl.random.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	image := before
	for _, at := range words {
		image = bytes.Clone(image)
		copy(image[at:at+8], tl.leaf.b[at:])
		tl.images = append(tl.images, image)
	}
	all := tl.spans[string(key)]
	if len(all) > 0 {
		all[len(all)-1].to = len(tl.images) - 1
	} else {
		all = append(all, lifetime{"", 0, len(tl.images) - 1})
	}
	tl.spans[string(key)] = append(all, lifetime{value, start, 1 << 30})
}

// TestAnyMixture: a leaf changes, and a reader sees each word of it as it was at any moment of the
// READ. What a lookup then says is true of a moment of it. With less than the whole check (judged),
// it is not: so the test can fail.
func TestAnyMixture(t *testing.T) {
	for _, c := range []struct {
		name  string
		least bool // some answers are wrong
		wrong func(l *leaf, home int) bool
	}{
		{"whole", false, func(l *leaf, home int) bool { return !l.isHomeComplete(home, testVersion) }},
		{"bitmap", true, func(l *leaf, home int) bool {
			_, m, ok := l.digest(home, testVersion)
			_, bitmap := l.homeWord(home)
			return !ok || m != bitmap
		}},
		{"none", true, func(l *leaf, home int) bool { _, _, ok := l.digest(home, testVersion); return !ok }},
	} {
		t.Run(c.name, func(t *testing.T) {
			faults, misses, hits := 0, 0, 0
			seeds := uint64(60)
			if testing.Short() {
				seeds = 20
			}
			for seed := range seeds {
				f, m, h := mixtures(t, seed, c.wrong)
				faults, misses, hits = faults+f, misses+m, hits+h
			}
			t.Logf("%d hits, %d misses, %d wrong", hits, misses, faults)
			if (faults > 0) != c.least || hits == 0 || misses == 0 {
				t.Errorf("%d wrong answers among %d hits and %d misses", faults, hits, misses)
			}
		})
	}
}

// mixtures is TestAnyMixture for a seed.
func mixtures(t *testing.T, seed uint64, wrong func(l *leaf, home int) bool) (faults, misses, hits int) {
	random := rand.New(rand.NewPCG(seed, 3))
	slots := 5 + random.IntN(6)
	l := newTestLeaf(t, slots, 2+random.IntN(4))
	tl := &timeline{leaf: l, random: random, images: [][]byte{bytes.Clone(l.b)}, spans: map[string][]lifetime{}}
	// few homes, so that keys of one home meet
	var keys [][]byte
	for home := range 3 {
		keys = append(keys, l.homeKeys(home*2, 4)...)
	}
	for step := range 200 {
		key := keys[random.IntN(len(keys))]
		home := l.home(key)
		value := fmt.Sprintf("%08d", step)
		slot, _, o := l.find(key, home, testVersion)
		switch {
		case o == present && random.IntN(2) == 0:
			tl.change(key, value, func() { l.set(slot, key, []byte(value)) })
		case o == present:
			tl.change(key, "", func() { l.set(slot, nil, nil) })
		default:
			var tab table
			l.tabulate(&tab, testVersion, 0, l.n)
			empty := tab.nearest(home)
			if empty < 0 {
				continue
			}
			slot, moves, ok := tab.room(home, empty, nil)
			if !ok {
				continue
			}
			tl.change(key, value, func() {
				for _, m := range moves {
					e, _, _ := l.entry(int(m.from))
					k, v, _ := l.codec.Pair(bytes.Clone(e))
					l.set(int(m.to), k, v)
					l.set(int(m.from), nil, nil)
				}
				l.set(slot, key, []byte(value))
			})
		}
	}
	seen := *l
	for range 2000 {
		from := random.IntN(len(tl.images))
		to := min(len(tl.images)-1, from+random.IntN(200))
		seen.b = bytes.Clone(tl.images[from])
		if random.IntN(2) == 0 { // words
			for at := 0; at < len(seen.b); at += 8 {
				copy(seen.b[at:at+8], tl.images[from+random.IntN(to-from+1)][at:])
			}
		} else {
			for i := range l.n {
				at := l.slotAt(i)
				copy(seen.b[at:at+l.slot], tl.images[from+random.IntN(to-from+1)][at:])
			}
		}
		key := keys[random.IntN(len(keys))]
		home := l.home(key)
		got, found := "", false
		for j := range l.hood {
			if e := seen.entryAt(l.next(home, j), key); e != nil {
				got, found = string(l.codec.ValueOf(e)), true
				break
			}
		}
		if !found && wrong(&seen, home) {
			continue
		}
		if found {
			hits++
		} else {
			misses++
		}
		was := len(tl.spans[string(key)]) == 0 && !found
		for _, s := range tl.spans[string(key)] {
			was = was || s.value == got && s.from <= to && s.to >= from
		}
		if !was {
			faults++
		}
	}
	return faults, misses, hits
}

// TestPieces: the neighbourhood of each home, with the replica that goes with it, is in the pieces
// that are READ for it, and nothing else verifies the leaf.
func TestPieces(t *testing.T) {
	for _, c := range [][2]int{{64, 8}, {64, 16}, {17, 8}, {8, 8}, {3, 3}, {2, 2}, {9, 8}} {
		s := testShape(t, c[0], c[1])
		for home := range s.n {
			all, n := s.neighbourhood(home)
			has := func(from, to int) bool {
				return slices.ContainsFunc(all[:n], func(p span) bool { return p.from <= from && to <= p.to })
			}
			for j := range s.hood {
				at := s.slotAt(s.next(home, j))
				if !has(at, at+s.slot) {
					t.Errorf("%d slots of %d: slot %d of home %d is not READ", c[1], c[0], j, home)
				}
			}
			if at := s.replicaAt(s.replicaOf(home)); !has(at, at+replicaBytes) {
				t.Errorf("%d slots of %d: replica %d of home %d is not READ", c[1], c[0], s.replicaOf(home), home)
			}
		}
		if s.end() > s.lay.NodeBytes {
			t.Errorf("%d slots end at %d of %d", c[0], s.end(), s.lay.NodeBytes)
		}
	}
}

// FuzzLeaf: any bytes are looked at without harm, and a leaf with one word changed verifies as a
// whole only if that lies behind its slots' entries.
func FuzzLeaf(f *testing.F) {
	f.Add(uint16(0), uint64(1), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, at uint16, word uint64, junk []byte) {
		l := newTestLeaf(t, Span, Neighbourhood)
		for i := range uint64(20) {
			key := key64(i)
			if home := l.home(key); l.entryAt(home, key) == nil {
				if _, ok := l.keyAt(home, testVersion); !ok {
					l.set(home, key, key)
				}
			}
		}
		var p pairs
		h, ok := l.open()
		if !ok || !p.collect(*l, &h) {
			t.Fatal("a leaf does not verify")
		}
		want := len(p.list)
		i := int(at) % (l.end() / 8) * 8
		binary.LittleEndian.PutUint64(l.b[i:], binary.LittleEndian.Uint64(l.b[i:])^word)
		if h, ok := l.open(); ok && p.collect(*l, &h) && len(p.list) != want {
			t.Errorf("a changed leaf verifies, with %d pairs of %d", len(p.list), want)
		}
		copy(l.b[i:], junk)
		for home := range l.n {
			l.find(key64(word), home, testVersion)
			l.checkRange(&pieces{head: true}, key64(word), home)
		}
		if h, ok := l.open(); ok {
			p.collect(*l, &h)
		}
	})
}

// TestVersionsMatter: a split takes a key away. Who sees the slot that it left, and all else as it
// was before, may not say that the key is not there; nor who sees all of the neighbourhood as it is
// now, and the replica from before.
func TestVersionsMatter(t *testing.T) {
	l := newTestLeaf(t, Span, Neighbourhood)
	const home = 9
	keys := l.homeKeys(home, 2)
	l.set(home, keys[0], key64(1))
	l.set(home+1, keys[1], key64(1))
	before := bytes.Clone(l.b)
	after := *l
	after.b = make([]byte, len(l.b))
	var tab table
	l.tabulate(&tab, testVersion, 0, l.n)
	tab.home[home+1] = vacant
	h, _ := l.open()
	h.Version++
	h.Rightmost, h.Sibling = false, pool.NewAddr(1, 2<<20)
	after.build(&h, &tab, func(it int) []byte { e, _, _ := l.entry(it); return e })
	whole := after
	if _, _, o := whole.find(keys[1], home, testVersion+1); o != absent {
		t.Fatalf("outcome %d after the split", o)
	}
	seen := after
	seen.b = bytes.Clone(before)
	at := l.slotAt(home + 1)
	copy(seen.b[at:at+l.slot], after.b[at:])
	if _, _, o := seen.find(keys[1], home, testVersion); o != torn {
		t.Errorf("one slot of the new version: outcome %d", o)
	}
	w := pieces{known: true, next: pool.Nil}
	seen.b = bytes.Clone(after.b)
	at = l.replicaAt(l.replicaOf(home))
	copy(seen.b[at:at+replicaBytes], before[at:])
	version, holds := seen.checkRange(&w, keys[1], home)
	if _, _, o := seen.find(keys[1], home, version); o != torn {
		t.Errorf("the replica of the old version (%v): outcome %d", holds, o)
	}
	if _, holds := after.checkRange(&w, keys[1], home); holds {
		t.Error("the sibling is not what the parent says, and the leaf is taken for the right one")
	}
}
