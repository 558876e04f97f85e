package smart

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

var testSums = sum.NewKey(siphash.Key{K0: 1, K1: 2})

// TestSizes: leaves have room for their values, and lie within what is allocated.
func TestSizes(t *testing.T) {
	for key := range 100 {
		for value := range 600 {
			s := newShape(key, value)
			if !s.hasRoom(value) || s.bytes() > s.allocated() || art.LeafSlot(0, s.bytes(), 0).LeafBytes() > s.allocated() || s.cell%8 != 0 || s.allocated()%art.AddrUnit != 0 {
				t.Fatalf("key of %d, value of %d: %+v", key, value, s)
			}
		}
	}
	if n := newShape(8, 8).allocated(); n != 64 {
		t.Errorf("an 8/8 leaf takes %d bytes", n)
	}
}

// TestLeafRoundTrip builds leaves and changes them as updates, deletes and moves do.
func TestLeafRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 2000 {
		key, value := random(r, r.IntN(60)), random(r, r.IntN(300))
		a := pool.NewAddr(3, 64*(1+r.Uint64N(1<<30)))
		c := content{value: value}
		if r.IntN(3) == 0 {
			c = content{long: true, ref: blocks.Reference{Addr: a + 64, Check: r.Uint32(), Length: r.IntN(1 << 15), Size: 64 * r.IntN(600)}}
		}
		b := make([]byte, 2000)
		var l leaf
		b = l.build(testSums, newShape(len(key), c.bytes()), b, a, r.Uint32(), key, &c)
		see := func(st state, want *content) {
			t.Helper()
			var g leaf
			if v := g.open(testSums, b, a); v != whole || g.ctl.state() != st || !g.hasKey(key) || !bytes.Equal(g.appendKey(nil), key) {
				t.Fatalf("key %x, value %x: verdict %d, state %d", key, value, v, g.ctl.state())
			}
			if v, long := g.value(); want != nil && (long != want.long || !long && !bytes.Equal(v, want.value) || long && reference(v) != want.ref) {
				t.Fatalf("key %x: value %x, want %+v", key, v, want)
			}
			if g.open(testSums, b, a+64) == whole {
				t.Fatal("a leaf verifies at another address")
			}
			before := b[atControl]
			if b[atControl]++; g.open(testSums, b, a) != torn {
				t.Fatal("a leaf verifies with another control word")
			}
			b[atControl] = before
		}
		see(alive, &c)
		// the cell that does not count is nobody's business
		next := content{value: random(r, min(l.cell-cellHead, r.IntN(20)))}
		l.putCell(1, &next)
		see(alive, &c)
		l.setControl(1, alive)
		see(alive, &next)
		if has := append(bytes.Clone(key), 0); l.hasKey(has) || len(key) > 0 && l.hasKey(key[1:]) {
			t.Fatalf("key %x is taken for another one", key)
		}
		l.setControl(1, dead)
		see(dead, nil)
		to := art.LeafSlot(3, 64, art.Slot(r.Uint64())&art.AddrMask)
		l.putForward(0, to)
		l.setControl(0, moved)
		see(moved, nil)
		if l.forward() != to {
			t.Fatalf("moved to %#x, want %#x", l.forward(), to)
		}
		unit.PutDead(b, a, art.KindLeaf, r.Uint32())
		if l.open(testSums, b, a) != out || art.Marks(a, b[:pool.HeadBytes]) != pool.Over || art.Marks(a+64, b[:pool.HeadBytes]) != pool.Used {
			t.Fatal("a dead mark is not seen")
		}
	}
}

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// FuzzOpen: any bytes are a leaf, a node, or neither.
func FuzzOpen(f *testing.F) {
	a := pool.NewAddr(1, 64)
	var l leaf
	f.Add(bytes.Clone(l.build(testSums, newShape(20, 8), make([]byte, 200), a, 7, make([]byte, 20), &content{value: make([]byte, 8)})))
	h := art.Header{Outline: art.Outline{Kind: art.FirstType}}
	f.Add(bytes.Clone(h.Build(testSums, make([]byte, 64), a, 9)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < atCells {
			return
		}
		var l leaf
		if l.open(testSums, b, a) == whole {
			l.value()
			l.appendKey(nil)
		}
		// A check that fits makes what follows it reached.
		unit.SealUnder(testSums, b, art.HeadBytes, a, binary.LittleEndian.Uint32(b))
		var h art.Header
		h.Decode(testSums, b, a)
		lay, err := newLayout(index.Options{MaxKeyBytes: 20, MaxValueBytes: 8})
		if err != nil {
			t.Fatal(err)
		}
		lay.Sums = testSums
		c := art.NewCopy()
		if ty := art.NodeType(b[unit.AtKind]); ty >= art.FirstType && ty <= art.Direct && len(b) >= ty.Bytes() {
			c.Decode(&lay.Layout, a, ty, b)
		}
	})
}

// TestDefaultsFitEveryLength: an index whose options name no size of nodes can be made for keys and
// values of every length, and opened again with the options that its superblock then has.
func TestDefaultsFitEveryLength(t *testing.T) {
	for _, value := range []int{0, 1, 8, 100, 256, 257, 4096, blocks.MaxValue} {
		for key := 1; key < 4<<10; key++ {
			o := index.Options{MaxKeyBytes: key, MaxValueBytes: value}
			l, err := newLayout(o)
			if err != nil {
				t.Fatalf("%+v: %v", o, err)
			}
			o.NodeBytes, o.InlineBytes = l.nodeSize, l.Inline
			if again, err := newLayout(o); err != nil || again.Inline != l.Inline || again.Blocks != l.Blocks || again.maxLeaf != l.maxLeaf {
				t.Fatalf("%+v: %d in place and leaves of %d bytes, opened with %d and %d: %v", o, l.Inline, l.maxLeaf, again.Inline, again.maxLeaf, err)
			}
		}
	}
}
