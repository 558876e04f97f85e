package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// cached makes a copy of an inner node of uint64 keys.
func cached(tb testing.TB, l *fence.Layout, a pool.Addr, level uint8, children int, version uint32) *inner {
	tb.Helper()
	d := &Draft{Low: l.Bottom, High: l.NoHigh(), Rightmost: true, Level: level}
	for i := range children {
		d.Children = append(d.Children, pool.Addr(i))
		if i > 0 {
			d.Separators = append(d.Separators, binary.BigEndian.AppendUint64(nil, uint64(i)))
		}
	}
	b := make([]byte, l.NodeBytes)
	d.Build(b, l, a, version)
	n := decodeInner(l, a, b)
	if n == nil {
		tb.Fatal("it does not decode")
	}
	return n
}

// TestCacheBytesAreReal compares what the cache says with what the heap says.
func TestCacheBytesAreReal(t *testing.T) {
	for i, o := range []index.Options{{Uint64: true, MaxValueBytes: 8}, {MaxKeyBytes: 100, MaxValueBytes: 8}, {Uint64: true, MaxValueBytes: 8}} {
		l := testLayout(t, o)
		d := &Draft{Low: l.Bottom, High: l.NoHigh(), Rightmost: true, Level: uint8(1 + i/2), Children: []pool.Addr{0}}
		for i := 1; ; i++ {
			sep := fmt.Appendf(nil, "%08d", i)
			if d.insert(i-1, sep, pool.Addr(i)); d.Bytes(l) > l.NodeBytes*7/10 {
				break
			}
		}
		b := make([]byte, l.NodeBytes)
		d.Build(b, l, 64, 1)
		const n = 20000
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		all := make([]*inner, n)
		for i := range all {
			if all[i] = decodeInner(l, 64, b); o.Uint64 {
				all[i].addHints()
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		real, said := float64(after.HeapAlloc-before.HeapAlloc)/n-8, float64(all[n-1].memory)
		t.Logf("uint64 %v: %.0f bytes, it says %.0f", o.Uint64, real, said)
		if real > said*1.02 || real < said*0.95 {
			t.Errorf("a copy takes %.0f bytes, it says %.0f", real, said)
		}
	}
}

var testAddr = pool.NewAddr(7, 0x12345640)

func testLayout(t testing.TB, o index.Options) *fence.Layout {
	t.Helper()
	l, err := slotted.NewLayout(o)
	if err != nil {
		t.Fatal(err)
	}
	l.SetSecret(siphash.Key{K0: 1, K1: 2})
	return &l
}

// layouts are options of all kinds.
func layouts(t testing.TB) (all []*fence.Layout) {
	for _, o := range []index.Options{
		{Uint64: true, MaxValueBytes: 8},
		{Uint64: true},
		{Uint64: true, MaxValueBytes: 500, NodeBytes: 2048},
		{MaxKeyBytes: 1, MaxValueBytes: 0},
		{MaxKeyBytes: 40, MaxValueBytes: 100},
		{MaxKeyBytes: 512, MaxValueBytes: 2048},
		{MaxKeyBytes: 1000, MaxValueBytes: 3000},
	} {
		all = append(all, testLayout(t, o))
	}
	return all
}

func randomKey(l *fence.Layout, r *rand.Rand) []byte {
	key := make([]byte, l.MaxKey)
	if !l.Uint64 {
		key = key[:r.IntN(l.MaxKey+1)]
	}
	for i := range key {
		key[i] = byte(r.Uint32())
	}
	return key
}

// FuzzInner decodes any bytes as an inner node, and a node that verifies can be searched and
// changed.
func FuzzInner(f *testing.F) {
	all := layouts(f)
	for i, l := range all {
		d := &Draft{Low: l.Bottom, High: l.NoHigh(), Rightmost: true, Level: 1, Children: []pool.Addr{1, 2}, Separators: [][]byte{make([]byte, l.MaxKey)}}
		d.Separators[0][0] = 1
		b := make([]byte, l.NodeBytes)
		d.Build(b, l, testAddr, 5)
		f.Add(byte(i), b, []byte("key"))
	}
	f.Fuzz(func(t *testing.T, which byte, data, key []byte) {
		l := all[int(which)%len(all)]
		b := make([]byte, l.NodeBytes)
		copy(b, data)
		n := decodeInner(l, testAddr, b)
		// past the sum
		for end := fence.HeaderBytes; n == nil && end <= min(len(b), 256); end += 2 {
			l.Seal(b, end, testAddr, binary.LittleEndian.Uint32(b))
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
		d := &Draft{Low: l.Bottom, High: l.NoHigh(), Rightmost: true, Level: 3, Children: []pool.Addr{1}}
		b := make([]byte, l.NodeBytes)
		next := pool.Addr(2)
		for n := range 800 {
			d.Build(b, l, testAddr, uint32(n))
			node := decodeInner(l, testAddr, b)
			if node == nil || len(node.children) != len(d.Children) || node.Version != uint32(n) {
				t.Fatalf("%+v: node of %d children is read as %v", l, len(d.Children), node)
			}
			sep := randomKey(l, r)
			at := node.child(l, sep)
			if at > 0 && item.Below(sep, d.Separators[at-1]) || at < len(d.Separators) && !item.Below(sep, d.Separators[at]) {
				t.Fatalf("%+v: key %x leads to child %d", l, sep, at)
			}
			if i := node.childBelow(l, sep); i != at && !(i == at-1 && bytes.Equal(sep, d.Separators[i])) {
				t.Fatalf("%+v: below key %x leads to child %d, the key itself to %d", l, sep, i, at)
			}
			if item.Below(d.Low, sep) && !(at > 0 && bytes.Equal(sep, d.Separators[at-1])) && (d.Rightmost || item.Below(sep, d.High)) {
				d.insert(at, bytes.Clone(sep), next)
				next++
			}
			if d.Bytes(l) <= l.NodeBytes {
				continue
			}
			right, up := d.split(l, r.IntN(4) == 0)
			if d.Bytes(l) > l.NodeBytes || right.Bytes(l) > l.NodeBytes || len(right.Children) == 0 || !bytes.Equal(right.Low, up) || !bytes.Equal(d.High, up) {
				t.Fatalf("%+v: split into %d and %d children, %d and %d bytes", l, len(d.Children), len(right.Children), d.Bytes(l), right.Bytes(l))
			}
			if r.IntN(2) == 0 {
				d = right
			}
			if !d.Rightmost && len(d.Children) < 3 { // its range may be used up
				d.Rightmost, d.High = true, l.NoHigh()
			}
		}
	}
}

// TestBlockIsNoNode: a block, in any state, is taken for neither leaf nor inner node.
func TestBlockIsNoNode(t *testing.T) {
	l := testLayout(t, index.Options{MaxKeyBytes: 64, MaxValueBytes: 5000})
	for n := l.Inline + 1; n <= l.MaxValue; n += 97 {
		value := bytes.Repeat([]byte{byte(n)}, n)
		size := blocks.Size(&l.Codec, n)
		r, b := blocks.ReferTo(testAddr, size, value), make([]byte, max(size, l.NodeBytes))
		r.Build(b, uint32(n), value)
		if (&slotted.Leaf{}).Open(l, testAddr, b) || decodeInner(l, testAddr, b) != nil {
			t.Fatalf("the block of a value of %d bytes is taken for a node", n)
		}
	}
}
