package smart

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

var testSums = sum.NewKey(siphash.Key{K0: 1, K1: 2})

// TestSlots: what is packed into a word comes out again, and kinds of words are told apart.
func TestSlots(t *testing.T) {
	for _, a := range []pool.Addr{pool.NewAddr(1, 64), pool.NewAddr(1<<serverBits-1, 1<<(offsetBits+6)-64)} {
		at, ok := pack(a)
		if !ok || at.addr() != a {
			t.Errorf("%v is packed as %#x, which is %v", a, at, at.addr())
		}
		inner, leaf := innerSlot(200, direct, at), leafSlot(7, 64, at)
		for _, c := range []struct {
			s                        slot
			empty, tomb, inner, leaf bool
		}{{0, true, false, false, false}, {inner, false, false, true, false}, {leaf, false, false, false, true}, {tombOf(inner, 0), false, true, false, false}, {tombOf(leaf, 7), false, true, false, false}} {
			for _, s := range []slot{c.s, c.s | frozen} {
				if s.empty() != c.empty || s.tomb() != c.tomb || s.inner() != c.inner || s.leaf() != c.leaf || s.child() != (c.inner || c.leaf) || s.clean() != c.s {
					t.Errorf("%#x is taken for another kind", s)
				}
			}
			if !c.empty && !c.tomb && (c.s.addr() != a || c.s.withKey(9).key() != 9 || c.s.withKey(9).addr() != a) {
				t.Errorf("%#x: address %v", c.s, c.s.addr())
			}
		}
		if inner.key() != 200 || nodeType(inner.code()) != direct || tombOf(inner, 5).key() != 200 || tombOf(inner, 2) == tombOf(inner, 4) {
			t.Errorf("%#x, %#x", inner, leaf)
		}
	}
	for _, a := range []pool.Addr{pool.NewAddr(1<<serverBits, 64), pool.NewAddr(1, 1<<(offsetBits+6))} {
		if _, ok := pack(a); ok {
			t.Errorf("%v is packed", a)
		}
	}
}

// TestSizes: codes of leaves cover what is READ and stay within what is allocated; types have room.
func TestSizes(t *testing.T) {
	last := 0
	for n := 1; n <= mostLeaf; n++ {
		w := leafSlot(0, n, 0)
		if got := w.leafBytes(); got < n || got > n+coarseUnit || got < last || leafCode(n) > 127 {
			t.Fatalf("a leaf of %d bytes is READ with %d", n, got)
		}
		last = w.leafBytes()
	}
	for key := range 100 {
		for value := range 600 {
			s := newShape(key, value)
			if !s.fits(value) || s.bytes() > s.allocated() || leafSlot(0, s.bytes(), 0).leafBytes() > s.allocated() || s.cell%8 != 0 || s.allocated()%addrUnit != 0 {
				t.Fatalf("key of %d, value of %d: %+v", key, value, s)
			}
		}
	}
	if n := newShape(8, 8).allocated(); n != 64 {
		t.Errorf("an 8/8 leaf takes %d bytes", n)
	}
	for n := 1; n <= mostSlots; n++ {
		if s := typeFor(n).slots(); s < n {
			t.Errorf("the type for %d slots has %d", n, s)
		}
	}
	for ty := firstType; ty < direct; ty++ {
		if ty.bytes()%addrUnit != 0 {
			t.Errorf("type %d has %d bytes", ty, ty.bytes())
		}
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
			if v := g.open(testSums, b, a); v != whole || g.ctl.state() != st || !g.has(key) || !bytes.Equal(g.appendKey(nil), key) {
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
		if has := append(bytes.Clone(key), 0); l.has(has) || len(key) > 0 && l.has(key[1:]) {
			t.Fatalf("key %x is taken for another one", key)
		}
		l.setControl(1, dead)
		see(dead, nil)
		to := leafSlot(3, 64, slot(r.Uint64())&addrMask)
		l.putForward(0, to)
		l.setControl(0, moved)
		see(moved, nil)
		if l.forward() != to {
			t.Fatalf("moved to %#x, want %#x", l.forward(), to)
		}
		unit.PutDead(b, a, kindLeaf, r.Uint32())
		if l.open(testSums, b, a) != out || marks(a, b[:pool.HeadBytes]) != pool.Over || marks(a+64, b[:pool.HeadBytes]) != pool.Used {
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

// TestHeadRoundTrip builds heads of inner nodes, and compares prefixes.
func TestHeadRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 2000 {
		key := random(r, r.IntN(40))
		depth := r.IntN(len(key) + 1)
		n := min(mostPrefix, r.IntN(len(key)-depth+1))
		h := head{kind: firstType + nodeType(r.IntN(int(direct)))}
		h.setPrefix(depth, key[depth:depth+n])
		a := pool.NewAddr(2, 64*(1+r.Uint64N(1<<30)))
		b := h.build(testSums, make([]byte, direct.bytes()), a, r.Uint32())
		var g head
		if !g.decode(testSums, b, a) || g != h || g.decode(testSums, b, a+64) || marks(a, b[:pool.HeadBytes]) != pool.Used {
			t.Fatalf("%+v became %+v", h, g)
		}
		if at := h.mismatch(key); at != -1 {
			t.Fatalf("%x does not have its own bytes at %d", key, at)
		}
		if n > 0 {
			at := depth + r.IntN(n)
			other := bytes.Clone(key)
			other[at]++
			if got := h.mismatch(other); got != at {
				t.Fatalf("%x and %x differ at %d, not %d", key, other, at, got)
			}
			if got := h.mismatch(key[:at]); got != at {
				t.Fatalf("%x ends at %d, not %d", key[:at], at, got)
			}
		}
	}
}

// FuzzOpen: any bytes are a leaf, a node, or neither.
func FuzzOpen(f *testing.F) {
	a := pool.NewAddr(1, 64)
	var l leaf
	f.Add(bytes.Clone(l.build(testSums, newShape(20, 8), make([]byte, 200), a, 7, make([]byte, 20), &content{value: make([]byte, 8)})))
	h := head{kind: firstType}
	f.Add(bytes.Clone(h.build(testSums, make([]byte, 64), a, 9)))
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
		unit.SealUnder(testSums, b, headBytes, a, binary.LittleEndian.Uint32(b))
		var h head
		h.decode(testSums, b, a)
		lay, err := newLayout(index.Options{MaxKeyBytes: 20, MaxValueBytes: 8})
		if err != nil {
			t.Fatal(err)
		}
		lay.sums = testSums
		var c copied
		if ty := nodeType(b[unit.AtKind]); ty >= firstType && ty <= direct && len(b) >= ty.bytes() {
			c.decode(&lay, a, ty, b)
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
