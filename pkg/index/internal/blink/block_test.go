package blink

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestBlockRoundTrip builds blocks, entries that point to them, and dead marks.
func TestBlockRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, o := range []index.Options{
		{Uint64: true, MaxValueBytes: maxBlockValue, InlineBytes: 1},
		{MaxKeyBytes: 64, MaxValueBytes: 5000},
	} {
		l := mustLayout(t, o)
		for range 300 {
			value := make([]byte, l.Inline+1+r.IntN(l.MaxValue-l.Inline))
			for i := range value {
				value[i] = byte(r.Uint32())
			}
			size, a := l.blockBytes(len(value)), pool.NewAddr(3, r.Uint64N(1<<40)&^63)
			if size%blockUnit != 0 || size < blockFixed+len(value) || size > blockFixed+len(value)*3/2+2*blockUnit {
				t.Fatalf("a value of %d bytes gets a block of %d", len(value), size)
			}
			b := make([]byte, size)
			p := pointTo(a, size, value)
			p.build(b, r.Uint32(), value)
			key := make([]byte, 8)
			e := l.putPointer(make([]byte, maxEntryBytes), key, &p)
			got, long := l.pointerOf(e)
			if k, _, ok := l.Pair(e); !ok || !long || got != p || !bytes.Equal(k, key) || len(e) > l.LongestEntry() {
				t.Fatalf("%+v became %+v, %v", p, got, long)
			}
			if _, long := l.pointerOf(l.PutEntry(make([]byte, maxEntryBytes), key, value[:l.Inline])); long {
				t.Fatal("a short value has a pointer")
			}
			if !verifyBlock(a, b) || verifyBlock(a+64, b) || !p.holds(b[blockFixed:blockFixed+len(value)]) || Marks(a, b[:pool.HeadBytes]) != pool.Used {
				t.Fatalf("a block of %d bytes does not verify", size)
			}
			if h := (leaf{}); h.open(l, a, b) || decodeInner(l, a, b) != nil {
				t.Fatal("a block is taken for a node")
			}
			unit.PutDead(b, a, blockLevel, r.Uint32())
			if verifyBlock(a, b) || !p.holds(b[blockFixed:blockFixed+len(value)]) || Marks(a, b[:pool.HeadBytes]) != pool.Over {
				t.Fatal("a dead block is not what it should be")
			}
			b[blockFixed+r.IntN(len(value))] ^= 1 << r.IntN(8)
			if p.holds(b[blockFixed : blockFixed+len(value)]) {
				t.Fatal("a value that was changed is what the pointer says")
			}
		}
	}
}

// FuzzBlock: any bytes are a block or none.
func FuzzBlock(f *testing.F) {
	value := []byte("a value that is in a block")
	b := make([]byte, 128)
	p := pointTo(pool.NewAddr(1, 64), 128, value)
	f.Add(bytes.Clone(p.build(b, 7, value)))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if len(b) < blockFixed {
			return
		}
		// A checksum that fits makes what follows it reached.
		unit.Seal(b, blockFixed, pool.NewAddr(1, 64), binary.LittleEndian.Uint32(b))
		verifyBlock(pool.NewAddr(1, 64), b)
	})
}

// TestMarksBelongToAnAddress: the image of a dead node, or of a dead block, is not dead at another address.
func TestMarksBelongToAnAddress(t *testing.T) {
	b := make([]byte, HeaderBytes)
	for level, want := range map[uint8]pool.Mark{0: pool.Dead, 3: pool.Dead, blockLevel: pool.Over} {
		unit.PutDead(b, testAddr, level, 7)
		if got := Marks(testAddr, b); got != want {
			t.Errorf("a dead node of level %d is marked %v, want %v", level, got, want)
		}
		for _, other := range []pool.Addr{testAddr + 64, testAddr - 64, pool.NewAddr(testAddr.Server()+1, testAddr.Offset())} {
			if got := Marks(other, b); got != pool.Used {
				t.Errorf("its image at %v is marked %v", other, got)
			}
		}
	}
}
