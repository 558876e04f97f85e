package memserver

import (
	"encoding/binary"
	"testing"
)

var sampleHeader = header{incarnation: 0xabcdef, dataBytes: 1 << 30, chunkBytes: 8 << 20, lockBytes: 256 << 10, slots: 64, boot: [16]byte{1, 15: 2}}

// TestHeader pins the layout: whoever changes it changes the format version.
func TestHeader(t *testing.T) {
	b := sampleHeader.encode()
	for offset, want := range map[int]uint64{16: 0xabcdef, 24: 1 << 30, 32: 8 << 20, 40: 256 << 10, 48: 64, 56: 1, 64: 2 << 56} {
		if got := binary.LittleEndian.Uint64(b[offset:]); got != want {
			t.Errorf("%#x at offset %d, want %#x", got, offset, want)
		}
	}
	if string(b[:8]) != "dmRegion" || b[8] != 1 || headerSize != len(b) {
		t.Errorf("header %q", b[:16])
	}
	if h, err := decodeHeader(b[:]); err != nil || h != sampleHeader {
		t.Errorf("%+v, %v", h, err)
	}
	if superblockOffset(0) != 4096 || superblockOffset(63)+superblockBytes > MinChunkBytes {
		t.Error("superblocks do not fit before the first chunk")
	}
}

// TestHeaderDamage flips every bit: none goes unnoticed.
func TestHeaderDamage(t *testing.T) {
	for i := range 8 * headerSize {
		b := sampleHeader.encode()
		b[i/8] ^= 1 << (i % 8)
		if h, err := decodeHeader(b[:]); err == nil {
			t.Errorf("bit %d flipped: %+v", i, h)
		}
	}
}

func FuzzHeader(f *testing.F) {
	b := sampleHeader.encode()
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHeader(b)
		if err != nil {
			return
		}
		if again := h.encode(); string(again[:]) != string(b[:headerSize]) {
			t.Fatal("it reads as something else")
		}
	})
}
