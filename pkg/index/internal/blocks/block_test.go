package blocks

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestRoundTrip builds blocks, entries with references to them, and dead marks.
func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, o := range []index.Options{
		{Uint64: true, MaxValueBytes: MaxValue, InlineBytes: 1},
		{MaxKeyBytes: 64, MaxValueBytes: 5000, InlineBytes: 100},
	} {
		c, err := item.NewCodec(o)
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			value := make([]byte, c.Inline+1+r.IntN(c.MaxValue-c.Inline))
			for i := range value {
				value[i] = byte(r.Uint32())
			}
			size, a := Size(&c, len(value)), pool.NewAddr(3, r.Uint64N(1<<40)&^63)
			if size%sizeUnit != 0 || size < HeadBytes+len(value) ||
				size > HeadBytes+len(value)*3/2+2*sizeUnit {
				t.Fatalf("a value of %d bytes gets a block of %d", len(value), size)
			}
			b := make([]byte, size)
			p := ReferTo(a, size, value)
			p.Build(b, r.Uint32(), value)
			key := make([]byte, 8)
			e := p.PutEntry(&c, make([]byte, c.LongestEntry()), key)
			got, long := ReferenceIn(&c, e)
			k, _, ok := c.Pair(e)
			if !ok || !long || got != p || !bytes.Equal(k, key) || len(e) > c.LongestEntry() {
				t.Fatalf("%+v became %+v, %v", p, got, long)
			}
			short := c.PutEntry(make([]byte, c.LongestEntry()), key, value[:c.Inline])
			if _, long := ReferenceIn(&c, short); long {
				t.Fatal("a short value has a reference")
			}
			if !Verify(a, b) || Verify(a+64, b) || !p.Matches(b[HeadBytes:HeadBytes+len(value)]) ||
				Marks(a, b[:pool.HeadBytes]) != pool.Used {
				t.Fatalf("a block of %d bytes does not verify", size)
			}
			putDead(b, a, r.Uint32())
			if Verify(a, b) || !p.Matches(b[HeadBytes:HeadBytes+len(value)]) ||
				Marks(a, b[:pool.HeadBytes]) != pool.Uncached {
				t.Fatal("a dead block is not what it should be")
			}
			b[HeadBytes+r.IntN(len(value))] ^= 1 << r.IntN(8)
			if p.Matches(b[HeadBytes : HeadBytes+len(value)]) {
				t.Fatal("a value that was changed is what the reference says")
			}
		}
	}
}

// FuzzBlock: any bytes are a block or none.
func FuzzBlock(f *testing.F) {
	value := []byte("a value that is in a block")
	b := make([]byte, 128)
	p := ReferTo(pool.NewAddr(1, 64), 128, value)
	f.Add(bytes.Clone(p.Build(b, 7, value)))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if len(b) < HeadBytes {
			return
		}
		// A checksum that fits makes what follows it reached.
		unit.Seal(b, HeadBytes, pool.NewAddr(1, 64), binary.LittleEndian.Uint32(b))
		Verify(pool.NewAddr(1, 64), b)
	})
}

// TestMarksBelongToAnAddress: the image of a dead node, or of a dead block, is not dead at another
// address.
func TestMarksBelongToAnAddress(t *testing.T) {
	const server, offset = 3, 4096
	b, a := make([]byte, HeadBytes), pool.NewAddr(server, offset)
	for level, want := range map[uint8]pool.Mark{0: pool.Dead, 3: pool.Dead, kind: pool.Uncached} {
		unit.PutDead(b, a, level, 7)
		if got := Marks(a, b); got != want {
			t.Errorf("a dead node of level %d is marked %v, want %v", level, got, want)
		}
		for _, other := range []pool.Addr{a + 64, a - 64, pool.NewAddr(server+1, offset)} {
			if got := Marks(other, b); got != pool.Used {
				t.Errorf("its image at %v is marked %v", other, got)
			}
		}
	}
}
