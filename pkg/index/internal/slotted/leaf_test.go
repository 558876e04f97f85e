package slotted

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

func mustLayout(t testing.TB, o index.Options) *fence.Layout {
	t.Helper()
	l, err := NewLayout(o)
	if err != nil {
		t.Fatal(err)
	}
	l.SetSecret(siphash.Key{K0: 1, K1: 2})
	return &l
}

var testAddr = pool.NewAddr(7, 0x12345640)

// layouts are options of all kinds.
func layouts(t testing.TB) []*fence.Layout {
	var all []*fence.Layout
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
func randomPairs(l *fence.Layout, r *rand.Rand, n int) *Pairs {
	p := &Pairs{Lay: l}
	seen := map[string]bool{}
	for tries := 0; len(p.List) < n && tries < 1000; tries++ {
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
		e := l.PutEntry(make([]byte, MaxEntryBytes), key, value)
		off := fence.RoundUp(len(p.Image) + fence.Grain)
		p.Image = append(p.Image, make([]byte, off-len(p.Image))...)
		p.Image = append(p.Image, e...)
		p.List = append(p.List, EntryAt{item.PrefixOf(key), uint32(off), uint16(len(e))})
	}
	return p
}

// TestLeafRoundTrip builds leaves, finds in them what they hold and nothing else, and changes them.
func TestLeafRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, l := range layouts(t) {
		for round := range 200 {
			p := randomPairs(l, r, r.IntN(20))
			for d := LoadOf(p.List); d.Used() > l.Room(l.Bottom, l.NoHigh()); d = LoadOf(p.List) {
				p.List = p.List[:len(p.List)-1]
			}
			b := make([]byte, l.NodeBytes)
			h := fence.Header{Version: r.Uint32(), Rightmost: true, Low: l.Bottom, High: l.NoHigh()}
			if end := Build(b, l, testAddr, &h, p, 0, len(p.List)); end > len(b) {
				t.Fatalf("%+v: leaf of %d bytes", l, end)
			}
			var leaf Leaf
			if !leaf.Open(l, testAddr, b) {
				t.Fatalf("%+v round %d: a built leaf does not open", l, round)
			}
			for i := range p.List {
				key, value := p.Pair(i)
				_, e, o := leaf.Find(key, l.Fingerprint(key))
				if _, v, _ := l.Pair(e); o != Present || !bytes.Equal(v, value) {
					t.Fatalf("%+v: key %x: %v %x", l, key, o, v)
				}
			}
			changeLeaf(t, &leaf, r, p)
		}
	}
}

// changeLeaf updates, deletes and inserts in the image of a leaf that holds p.
func changeLeaf(t *testing.T, l *Leaf, r *rand.Rand, p *Pairs) {
	t.Helper()
	var m Space
	want := map[string]string{}
	for i := range p.List {
		key, value := p.Pair(i)
		want[string(key)] = string(value)
	}
	for range 100 {
		other := randomPairs(l.Lay, r, 1)
		key, value := other.Pair(0)
		if len(p.List) > 0 && r.IntN(2) == 0 {
			key = p.Key(r.IntN(len(p.List)))
		}
		e := l.Lay.PutEntry(make([]byte, MaxEntryBytes), key, value)
		i, _, o := l.Find(key, l.Lay.Fingerprint(key))
		if _, there := want[string(key)]; there != (o == Present) {
			t.Fatalf("key %x: %v, there %v", key, o, there)
		}
		if o == Present && r.IntN(3) == 0 {
			l.Remove(i)
			delete(want, string(key))
			continue
		}
		if o == Absent {
			i = l.Vacant()
		}
		off := l.Place(&m, len(e))
		if i < 0 || off == 0 {
			continue
		}
		l.Put(i, l.Lay.Fingerprint(key), off, e)
		want[string(key)] = string(value)
	}
	got := &Pairs{}
	if !l.Collect(got) || len(got.List) != len(want) {
		t.Fatalf("%d pairs, want %d", len(got.List), len(want))
	}
	for i := range got.List {
		if key, value := got.Pair(i); want[string(key)] != string(value) {
			t.Fatalf("key %x: %x, want %x", key, value, want[string(key)])
		}
	}
}

// TestMixedLeafNeverVerifies mixes two states of a leaf word by word, as a READ beside a WRITE may
// see it: what verifies is of one of them, and a miss is never answered while a key that both have
// is overwritten.
func TestMixedLeafNeverVerifies(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	l := mustLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	build := func(version uint32, keys []uint64, value byte) []byte {
		p := &Pairs{Lay: l, Image: make([]byte, fence.Grain)}
		for _, k := range keys {
			e := l.PutEntry(make([]byte, 16), binary.BigEndian.AppendUint64(nil, k), bytes.Repeat([]byte{value}, 8))
			p.List = append(p.List, EntryAt{k, uint32(len(p.Image)), 16})
			p.Image = append(p.Image, e...)
		}
		b := make([]byte, l.NodeBytes)
		h := fence.Header{Version: version, Rightmost: true, Low: l.Bottom, High: l.NoHigh()}
		Build(b, l, testAddr, &h, p, 0, len(p.List))
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
		var leaf Leaf
		if !leaf.Open(l, testAddr, mixed) {
			continue
		}
		want := byte('o')
		if leaf.Version != version {
			want = 'n'
		}
		for k := range uint64(6) {
			key := binary.BigEndian.AppendUint64(nil, k+1)
			_, e, o := leaf.Find(key, l.Fingerprint(key))
			if o == Absent || o == Present && e[8] != want {
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
			p := &Pairs{Lay: l, Image: make([]byte, fence.Grain)}
			h := fence.Header{Rightmost: true, Low: l.Bottom, High: l.NoHigh()}
			for n := 0; ; n++ {
				d := LoadOf(p.List)
				if d.Used() > l.Room(h.Low, h.High) { // one entry more than it holds
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
				e := l.PutEntry(make([]byte, MaxEntryBytes), key, make([]byte, size))
				p.List = append(p.List, EntryAt{item.PrefixOf(key), uint32(len(p.Image)), uint16(len(e))})
				p.Image = append(p.Image, e...)
				p.Image = append(p.Image, make([]byte, fence.RoundUp(len(p.Image))-len(p.Image))...)
			}
			if len(p.List) < 2 {
				continue
			}
			at := SplitAt(&h, p, r.IntN(2) == 0)
			sep := l.Separator(p.Key(at-1), p.Key(at))
			left, right := LoadOf(p.List[:at]), LoadOf(p.List[at:])
			if at == 0 || at == len(p.List) || left.Used() > l.Room(h.Low, sep) || right.Used() > l.Room(sep, h.High) {
				t.Fatalf("%+v: split of %d at %d: %+v and %+v", l, len(p.List), at, left, right)
			}
		}
	}
}

// FuzzLeaf decodes any bytes: no panic, no endless loop, and what verifies lies in the heap.
func FuzzLeaf(f *testing.F) {
	r := rand.New(rand.NewPCG(4, 4))
	for i, l := range layouts(f) {
		b := make([]byte, l.NodeBytes)
		h := fence.Header{Version: 9, Rightmost: true, Low: l.Bottom, High: l.NoHigh()}
		p := randomPairs(l, r, 1)
		Build(b, l, testAddr, &h, p, 0, len(p.List))
		f.Add(byte(i), b, []byte("key"), true)
	}
	all := layouts(f)
	f.Fuzz(func(t *testing.T, which byte, data, key []byte, seal bool) {
		l := all[int(which)%len(all)]
		b := make([]byte, l.NodeBytes)
		copy(b, data)
		var h fence.Header
		if seal && h.Decode(b, l) { // past the sum
			l.Seal(b, h.End, testAddr, h.Version)
		}
		var leaf Leaf
		if !leaf.Open(l, testAddr, b) {
			return
		}
		if l.Uint64 {
			key = append(key, make([]byte, 8)...)[:8]
		}
		if _, e, o := leaf.Find(key, l.Fingerprint(key)); o == Present {
			if k, _, ok := l.Pair(e); !ok || !bytes.Equal(k, key) {
				t.Fatalf("found %x for key %x", e, key)
			}
		}
		leaf.Vacant()
		var p Pairs
		if leaf.Collect(&p) {
			p.Sort()
			var m Space
			if off := leaf.Place(&m, 16); off != 0 && (off < leaf.heap || off+16 > len(b)) {
				t.Fatalf("place at %d", off)
			}
		}
	})
}

func TestLayoutDefaults(t *testing.T) {
	f := func(o index.Options, node, inline int) {
		t.Helper()
		if l := mustLayout(t, o); l.NodeBytes != node || l.Inline != inline {
			t.Errorf("%+v: nodes of %d bytes with values of %d, want %d with %d", o, l.NodeBytes, l.Inline, node, inline)
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

func TestHeapMap(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 200 {
		var m HeapMap
		const n = 512
		plain := [n]bool{}
		for range r.IntN(20) {
			at, k := r.IntN(n-80), 1+r.IntN(80)
			m.Mark(at, k)
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
				if got := m.Next(at, n, set); got != want {
					t.Fatal(fmt.Sprint(at, set, got, want))
				}
			}
		}
	}
}

// TestDefaultsFitEveryLength: an index whose options name no size of nodes can be made for keys and
// values of every length, and opened again with the options that its superblock then has.
func TestDefaultsFitEveryLength(t *testing.T) {
	for _, value := range []int{0, 1, 8, 100, 256, 257, 4096, blocks.MaxValue} {
		for key := 1; key <= MaxEntryBytes-64; key++ {
			o := index.Options{MaxKeyBytes: key, MaxValueBytes: value}
			l, err := NewLayout(o)
			if err != nil {
				t.Fatalf("%+v: %v", o, err)
			}
			o.NodeBytes, o.InlineBytes = l.NodeBytes, l.Inline
			again, err := NewLayout(o)
			if err != nil || again.NodeBytes != l.NodeBytes || again.Inline != l.Inline || again.Blocks != l.Blocks {
				t.Fatalf("%+v: nodes of %d bytes and %d in place, opened with %d and %d: %v", o, l.NodeBytes, l.Inline, again.NodeBytes, again.Inline, err)
			}
		}
	}
}
