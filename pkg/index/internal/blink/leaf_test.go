package blink

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

func mustLayout(t testing.TB, o index.Options) *layout {
	t.Helper()
	l, err := newLayout(o)
	if err != nil {
		t.Fatal(err)
	}
	return &l
}

var testAddr = pool.NewAddr(7, 0x12345640)

// layouts are options of all kinds.
func layouts(t testing.TB) []*layout {
	var all []*layout
	for _, o := range []index.Options{
		{Uint64: true, MaxValueBytes: 8},
		{Uint64: true},
		{Uint64: true, MaxValueBytes: 500, NodeBytes: 2048},
		{MaxKeyBytes: 1, MaxValueBytes: 0},
		{MaxKeyBytes: 40, MaxValueBytes: 100},
		{MaxKeyBytes: 512, MaxValueBytes: 2048},
		{MaxKeyBytes: 1000, MaxValueBytes: 3000},
	} {
		all = append(all, mustLayout(t, o))
	}
	return all
}

// randomPairs makes n distinct pairs with keys between low and high.
func randomPairs(l *layout, r *rand.Rand, n int) *pairs {
	p := &pairs{lay: l}
	seen := map[string]bool{}
	for tries := 0; len(p.list) < n && tries < 1000; tries++ {
		key := make([]byte, l.MaxKey)
		if !l.Uint64 {
			key = key[:r.IntN(l.MaxKey+1)]
		}
		for i := range key {
			key[i] = byte(r.Uint32())
		}
		if seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		value := bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(l.Inline+1))
		e := l.PutEntry(make([]byte, maxEntryBytes), key, value)
		off := roundUp(len(p.image) + grain)
		p.image = append(p.image, make([]byte, off-len(p.image))...)
		p.image = append(p.image, e...)
		p.list = append(p.list, entryAt{item.PrefixOf(key), uint32(off), uint16(len(e))})
	}
	return p
}

// TestLeafRoundTrip builds leaves, finds in them what they hold and nothing else, and changes them.
func TestLeafRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, l := range layouts(t) {
		for round := range 200 {
			p := randomPairs(l, r, r.IntN(20))
			for d := loadOf(p.list); d.used() > l.room(l.Bottom, l.NoHigh()); d = loadOf(p.list) {
				p.list = p.list[:len(p.list)-1]
			}
			b := make([]byte, l.nodeBytes)
			h := header{version: r.Uint32(), rightmost: true, low: l.Bottom, high: l.NoHigh()}
			if end := buildLeaf(b, l, testAddr, &h, p, 0, len(p.list)); end > len(b) {
				t.Fatalf("%+v: leaf of %d bytes", l, end)
			}
			var leaf leaf
			if !leaf.open(l, testAddr, b) {
				t.Fatalf("%+v round %d: a built leaf does not open", l, round)
			}
			for i := range p.list {
				key, value := p.pair(i)
				_, e, o := leaf.find(key, l.Fingerprint(key))
				if _, v, _ := l.Pair(e); o != present || !bytes.Equal(v, value) {
					t.Fatalf("%+v: key %x: %v %x", l, key, o, v)
				}
			}
			changeLeaf(t, &leaf, r, p)
		}
	}
}

// changeLeaf updates, deletes and inserts in the image of a leaf that holds p.
func changeLeaf(t *testing.T, l *leaf, r *rand.Rand, p *pairs) {
	t.Helper()
	var m heapMap
	want := map[string]string{}
	for i := range p.list {
		key, value := p.pair(i)
		want[string(key)] = string(value)
	}
	for range 100 {
		other := randomPairs(l.lay, r, 1)
		key, value := other.pair(0)
		if len(p.list) > 0 && r.IntN(2) == 0 {
			key = p.key(r.IntN(len(p.list)))
		}
		e := l.lay.PutEntry(make([]byte, maxEntryBytes), key, value)
		i, _, o := l.find(key, l.lay.Fingerprint(key))
		if _, there := want[string(key)]; there != (o == present) {
			t.Fatalf("key %x: %v, there %v", key, o, there)
		}
		if o == present && r.IntN(3) == 0 {
			l.remove(i)
			delete(want, string(key))
			continue
		}
		if o == absent {
			i = l.vacant()
		}
		off := l.place(&m, len(e))
		if i < 0 || off == 0 {
			continue
		}
		l.put(i, l.lay.Fingerprint(key), off, e)
		want[string(key)] = string(value)
	}
	got := &pairs{}
	if !l.collect(got) || len(got.list) != len(want) {
		t.Fatalf("%d pairs, want %d", len(got.list), len(want))
	}
	for i := range got.list {
		if key, value := got.pair(i); want[string(key)] != string(value) {
			t.Fatalf("key %x: %x, want %x", key, value, want[string(key)])
		}
	}
}

// TestMixedLeafNeverVerifies mixes two states of a leaf word by word, as a READ beside a WRITE may see it: what verifies is of one of
// them, and a miss is never answered while a key that both have is overwritten.
func TestMixedLeafNeverVerifies(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	l := mustLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	build := func(version uint32, keys []uint64, value byte) []byte {
		p := &pairs{lay: l, image: make([]byte, grain)}
		for _, k := range keys {
			e := l.PutEntry(make([]byte, 16), binary.BigEndian.AppendUint64(nil, k), bytes.Repeat([]byte{value}, 8))
			p.list = append(p.list, entryAt{k, uint32(len(p.image)), 16})
			p.image = append(p.image, e...)
		}
		b := make([]byte, l.nodeBytes)
		h := header{version: version, rightmost: true, low: l.Bottom, high: l.NoHigh()}
		buildLeaf(b, l, testAddr, &h, p, 0, len(p.list))
		return b
	}
	for range 1500 {
		version := r.Uint32()
		old := build(version, []uint64{1, 2, 3, 4, 5, 6}, 'o')
		now := build(version+1, []uint64{6, 4, 2, 5, 1, 3}, 'n') // other slots, other places
		mixed := make([]byte, len(old))
		for i := 0; i < len(mixed); i += 8 {
			from := old
			if r.IntN(2) == 0 {
				from = now
			}
			copy(mixed[i:i+8], from[i:])
		}
		var leaf leaf
		if !leaf.open(l, testAddr, mixed) {
			continue
		}
		want := byte('o')
		if leaf.version != version {
			want = 'n'
		}
		for k := range uint64(6) {
			key := binary.BigEndian.AppendUint64(nil, k+1)
			_, e, o := leaf.find(key, l.Fingerprint(key))
			if o == absent || o == present && e[8] != want {
				t.Fatalf("key %d in a mixture of two versions: %v %q, header is of %q", k+1, o, e, want)
			}
		}
	}
}

// TestSplitFits fills leaves with entries of the worst sizes and splits them.
func TestSplitFits(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, l := range layouts(t) {
		for range 300 {
			p := &pairs{lay: l, image: make([]byte, grain)}
			h := header{rightmost: true, low: l.Bottom, high: l.NoHigh()}
			for n := 0; ; n++ {
				d := loadOf(p.list)
				if d.used() > l.room(h.low, h.high) { // one entry more than it holds
					break
				}
				key := make([]byte, l.MaxKey)
				if key[len(key)-1] = byte(n); len(key) > 1 {
					key[len(key)-2] = byte(n >> 8)
				} else if n > 255 {
					break
				}
				size := l.Inline
				if r.IntN(3) == 0 {
					size = r.IntN(l.Inline + 1)
				}
				e := l.PutEntry(make([]byte, maxEntryBytes), key, make([]byte, size))
				p.list = append(p.list, entryAt{item.PrefixOf(key), uint32(len(p.image)), uint16(len(e))})
				p.image = append(p.image, e...)
				p.image = append(p.image, make([]byte, roundUp(len(p.image))-len(p.image))...)
			}
			if len(p.list) < 2 {
				continue
			}
			at := splitAt(&h, p, r.IntN(2) == 0)
			sep := l.Separator(p.key(at-1), p.key(at))
			left, right := loadOf(p.list[:at]), loadOf(p.list[at:])
			if at == 0 || at == len(p.list) || left.used() > l.room(h.low, sep) || right.used() > l.room(sep, h.high) {
				t.Fatalf("%+v: split of %d at %d: %+v and %+v", l, len(p.list), at, left, right)
			}
		}
	}
}

// FuzzLeaf decodes any bytes: no panic, no endless loop, and what verifies lies in the heap.
func FuzzLeaf(f *testing.F) {
	r := rand.New(rand.NewPCG(4, 4))
	for i, l := range layouts(f) {
		b := make([]byte, l.nodeBytes)
		h := header{version: 9, rightmost: true, low: l.Bottom, high: l.NoHigh()}
		p := randomPairs(l, r, 1)
		buildLeaf(b, l, testAddr, &h, p, 0, len(p.list))
		f.Add(byte(i), b, []byte("key"), true)
	}
	all := layouts(f)
	f.Fuzz(func(t *testing.T, which byte, data, key []byte, seal bool) {
		l := all[int(which)%len(all)]
		b := make([]byte, l.nodeBytes)
		copy(b, data)
		var h header
		if seal && h.decode(b, l) { // past the CRC
			unit.Seal(b, h.end, testAddr, h.version)
		}
		var leaf leaf
		if !leaf.open(l, testAddr, b) {
			return
		}
		if l.Uint64 {
			key = append(key, make([]byte, 8)...)[:8]
		}
		if _, e, o := leaf.find(key, l.Fingerprint(key)); o == present {
			if k, _, ok := l.Pair(e); !ok || !bytes.Equal(k, key) {
				t.Fatalf("found %x for key %x", e, key)
			}
		}
		leaf.vacant()
		var p pairs
		if leaf.collect(&p) {
			p.sort()
			var m heapMap
			if off := leaf.place(&m, 16); off != 0 && (off < leaf.heap || off+16 > len(b)) {
				t.Fatalf("place at %d", off)
			}
		}
	})
}

// FuzzInner decodes any bytes as an inner node, and a node that verifies can be searched and changed.
func FuzzInner(f *testing.F) {
	all := layouts(f)
	for i, l := range all {
		d := &draft{low: l.Bottom, high: l.NoHigh(), rightmost: true, level: 1, children: []pool.Addr{1, 2}, seps: [][]byte{make([]byte, l.MaxKey)}}
		d.seps[0][0] = 1
		b := make([]byte, l.nodeBytes)
		d.build(b, l, testAddr, 5)
		f.Add(byte(i), b, []byte("key"))
	}
	f.Fuzz(func(t *testing.T, which byte, data, key []byte) {
		l := all[int(which)%len(all)]
		b := make([]byte, l.nodeBytes)
		copy(b, data)
		n := decodeInner(l, testAddr, b)
		for end := HeaderBytes; n == nil && end <= min(len(b), 256); end += 2 { // past the CRC
			unit.Seal(b, end, testAddr, binary.LittleEndian.Uint32(b))
			n = decodeInner(l, testAddr, b)
		}
		if n == nil {
			return
		}
		if l.Uint64 {
			key = append(key, make([]byte, 8)...)[:8]
		}
		if i := n.child(l, key); i < 0 || i >= len(n.children) {
			t.Fatalf("child %d of %d", i, len(n.children))
		}
		if i := n.childBelow(l, key); i < 0 || i >= len(n.children) {
			t.Fatalf("child %d of %d", i, len(n.children))
		}
		for i := range len(n.children) - 1 {
			n.separator(i)
		}
		_ = n.memory
	})
}

// TestInnerRoundTrip builds inner nodes, splits them, and finds the way in them.
func TestInnerRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, l := range layouts(t) {
		d := &draft{low: l.Bottom, high: l.NoHigh(), rightmost: true, level: 3, children: []pool.Addr{1}}
		b := make([]byte, l.nodeBytes)
		next := pool.Addr(2)
		for n := range 800 {
			d.build(b, l, testAddr, uint32(n))
			node := decodeInner(l, testAddr, b)
			if node == nil || len(node.children) != len(d.children) || node.Version != uint32(n) {
				t.Fatalf("%+v: node of %d children is read as %v", l, len(d.children), node)
			}
			sep := randomPairs(l, r, 1).key(0)
			at := node.child(l, sep)
			if at > 0 && item.Below(sep, d.seps[at-1]) || at < len(d.seps) && !item.Below(sep, d.seps[at]) {
				t.Fatalf("%+v: key %x leads to child %d", l, sep, at)
			}
			if i := node.childBelow(l, sep); i != at && !(i == at-1 && bytes.Equal(sep, d.seps[i])) {
				t.Fatalf("%+v: below key %x leads to child %d, the key itself to %d", l, sep, i, at)
			}
			if item.Below(d.low, sep) && !(at > 0 && bytes.Equal(sep, d.seps[at-1])) && (d.rightmost || item.Below(sep, d.high)) {
				d.insert(at, bytes.Clone(sep), next)
				next++
			}
			if d.bytes(l) <= l.nodeBytes {
				continue
			}
			right, up := d.split(l, r.IntN(4) == 0)
			if d.bytes(l) > l.nodeBytes || right.bytes(l) > l.nodeBytes || len(right.children) == 0 || !bytes.Equal(right.low, up) || !bytes.Equal(d.high, up) {
				t.Fatalf("%+v: split into %d and %d children, %d and %d bytes", l, len(d.children), len(right.children), d.bytes(l), right.bytes(l))
			}
			if r.IntN(2) == 0 {
				d = right
			}
			if !d.rightmost && len(d.children) < 3 { // its range may be used up
				d.rightmost, d.high = true, l.NoHigh()
			}
		}
	}
}

func TestLayoutDefaults(t *testing.T) {
	f := func(o index.Options, node, inline int) {
		t.Helper()
		if l := mustLayout(t, o); l.nodeBytes != node || l.Inline != inline {
			t.Errorf("%+v: nodes of %d bytes with values of %d, want %d with %d", o, l.nodeBytes, l.Inline, node, inline)
		}
	}
	f(index.Options{Uint64: true, MaxValueBytes: 8}, 1024, 8)
	f(index.Options{Uint64: true, MaxValueBytes: 4096}, 1024, 256)
	f(index.Options{Uint64: true, MaxValueBytes: 4096, InlineBytes: 16}, 1024, 16)
	f(index.Options{MaxKeyBytes: 32, MaxValueBytes: 64}, 1024, 64)
	f(index.Options{MaxKeyBytes: 64, MaxValueBytes: 1024}, 1024, 256)
	f(index.Options{MaxKeyBytes: 256, MaxValueBytes: 8}, 2048, 8)
	f(index.Options{MaxKeyBytes: 256, MaxValueBytes: 2048}, 2048, 216)
	f(index.Options{MaxKeyBytes: 512, MaxValueBytes: 2048}, 4096, 256)
	f(index.Options{MaxKeyBytes: 8, MaxValueBytes: 8, NodeBytes: 4096}, 4096, 8)
	f(index.Options{MaxKeyBytes: 8, MaxValueBytes: 3000, NodeBytes: 512}, 512, 192)
}

func TestSeparator(t *testing.T) {
	l := mustLayout(t, index.Options{MaxKeyBytes: 100})
	f := func(left, right, want string) {
		t.Helper()
		if got := l.Separator([]byte(left), []byte(right)); string(got) != want {
			t.Errorf("between %q and %q: %q, want %q", left, right, got, want)
		}
	}
	f("", "a", "a")
	f("", "abc", "a")
	f("abc", "abd", "abd")
	f("abc", "abcd", "abcd")
	f("abc", "abcde", "abcd")
	f("a/long/path", "b/long/path", "b")
	f("\x00", "\x00\x00", "\x00\x00")
}

func TestHeapMap(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 200 {
		var m heapMap
		const n = 512
		plain := [n]bool{}
		for range r.IntN(20) {
			at, k := r.IntN(n-80), 1+r.IntN(80)
			m.mark(at, k)
			for i := range k {
				plain[at+i] = true
			}
		}
		for at := range n {
			for _, set := range []bool{false, true} {
				want := at
				for want < n && plain[want] != set {
					want++
				}
				if got := m.next(at, n, set); got != want {
					t.Fatal(fmt.Sprint(at, set, got, want))
				}
			}
		}
	}
}

// TestBlockIsNoNode: a block, in any state, is taken for neither leaf nor inner node.
func TestBlockIsNoNode(t *testing.T) {
	l := mustLayout(t, index.Options{MaxKeyBytes: 64, MaxValueBytes: 5000})
	for n := l.Inline + 1; n <= l.MaxValue; n += 97 {
		value := bytes.Repeat([]byte{byte(n)}, n)
		size := blocks.Size(&l.Codec, n)
		r, b := blocks.ReferTo(testAddr, size, value), make([]byte, max(size, l.nodeBytes))
		r.Build(b, uint32(n), value)
		if (&leaf{}).open(l, testAddr, b) || decodeInner(l, testAddr, b) != nil {
			t.Fatalf("the block of a value of %d bytes is taken for a node", n)
		}
	}
}
