package region

import (
	"encoding/binary"
	"testing"
)

var sampleHeader = Header{Incarnation: 0xabcdef, DataBytes: 1 << 30, ChunkBytes: 8 << 20, LockBytes: 256 << 10, Slots: 64, Boot: [16]byte{1, 15: 2}}

// TestHeader pins the layout: whoever changes it changes the format version.
func TestHeader(t *testing.T) {
	b := sampleHeader.Encode()
	for offset, want := range map[int]uint64{16: 0xabcdef, 24: 1 << 30, 32: 8 << 20, 40: 256 << 10, 48: 64, 56: 1, 64: 2 << 56} {
		if got := binary.LittleEndian.Uint64(b[offset:]); got != want {
			t.Errorf("%#x at offset %d, want %#x", got, offset, want)
		}
	}
	if string(b[:8]) != "dmRegion" || b[8] != 3 || HeaderBytes != len(b) {
		t.Errorf("header %q", b[:16])
	}
	if h, err := Decode(b[:]); err != nil || h != sampleHeader {
		t.Errorf("%+v, %v", h, err)
	}
	if SuperblockOffset(0) != 4096 || SuperblockOffset(63)+SuperblockBytes != RepairOffset(0) || RepairOffset(0) != 260<<10 || RepairOffset(3) != 260<<10+96 {
		t.Error("superblocks or repair records lie elsewhere")
	}
	if n, at := IntentSlots(256<<10), IntentOffset(256<<10, 0); n != 768 || at != 260<<10+4<<20 || IntentOffset(256<<10, 2) != at+2*768*64 {
		t.Errorf("%d intent slots from %#x on", n, at)
	}
	if n, at := IntentSlots(8), IntentOffset(8, 0); n != 16 || at != 260<<10+128 {
		t.Errorf("%d intent slots from %#x on", n, at)
	}
	if at, want := PresenceOffset(8<<20, 256<<10, 0), uint64(260<<10+4<<20+64*768*64); at != want || PresenceOffset(8<<20, 256<<10, 2) != want+2*768*8 {
		t.Errorf("presence words from %#x on, want %#x", at, want)
	}
	// the intent slots end 12 KiB before chunk 1, and the words of 64 indexes take 150
	if at := PresenceOffset(1<<20, 100<<10, 1); at != 0 {
		t.Errorf("presence words from %#x on, where there is no room", at)
	}
}

// TestChunksLieBehindTheIntentSlots: the first multiple of the chunk size behind them, and
// numbers count from there.
func TestChunksLieBehindTheIntentSlots(t *testing.T) {
	f := func(chunkBytes, lockBytes, dataBytes, start uint64, chunks uint32) {
		t.Helper()
		h := Header{ChunkBytes: chunkBytes, LockBytes: lockBytes, DataBytes: dataBytes}
		if got := h.ChunkOffset(1); got != start || got < IntentOffset(lockBytes, SuperblockSlots) || got%chunkBytes != 0 {
			t.Errorf("chunk 1 lies at %#x, want %#x", got, start)
		}
		if h.Chunks() != chunks {
			t.Errorf("%d chunks, want %d", h.Chunks(), chunks)
		}
		for n := uint32(1); n <= chunks; n++ {
			if at := h.ChunkOffset(n); h.ChunkAt(at) != n || h.ChunkAt(at+8) != 0 || at+chunkBytes > dataBytes {
				t.Errorf("chunk %d lies at %#x, where chunk %d is", n, at, h.ChunkAt(at))
			}
		}
		for _, at := range []uint64{0, start - chunkBytes, dataBytes, dataBytes + chunkBytes, 1 << 63} {
			if n := h.ChunkAt(at); n != 0 {
				t.Errorf("chunk %d lies at %#x", n, at)
			}
		}
	}
	f(8<<20, 256<<10, 64<<20, 8<<20, 7)
	f(1<<20, 256<<10, 12<<20, 8<<20, 4)
	f(1<<20, 8, 2<<20, 1<<20, 1)
	// the intent slots end just before a multiple of the chunk size, then behind it
	f(1<<20, 64<<10-8, 3<<20, 2<<20, 1)
	f(1<<20, 64<<10, 4<<20, 3<<20, 1)
}

// TestHeaderDamage flips every bit: none goes unnoticed.
func TestHeaderDamage(t *testing.T) {
	for i := range 8 * HeaderBytes {
		b := sampleHeader.Encode()
		b[i/8] ^= 1 << (i % 8)
		if h, err := Decode(b[:]); err == nil {
			t.Errorf("bit %d flipped: %+v", i, h)
		}
	}
}

func FuzzHeader(f *testing.F) {
	b := sampleHeader.Encode()
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Decode(b)
		if err != nil {
			return
		}
		if again := h.Encode(); string(again[:]) != string(b[:HeaderBytes]) {
			t.Fatal("it reads as something else")
		}
	})
}
