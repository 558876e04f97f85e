package sum

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/sum/crctest"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

var secret = siphash.Key{K0: 0x0706050403020100, K1: 0x0F0E0D0C0B0A0908}

// model is the sum by its definition, with big integers.
func model(k *Key, start uint32, parts ...[]byte) uint32 {
	number := func(w uint64) *big.Int { return new(big.Int).SetUint64(w) }
	modulus := func(n uint) *big.Int { return new(big.Int).Lsh(big.NewInt(1), n) }
	plus := func(a, b uint64) *big.Int {
		s := new(big.Int).Add(number(a), number(b))
		return s.Mod(s, modulus(64))
	}
	h, n := number(k.first), 0
	block := func(p []byte) {
		if len(p) == 0 {
			n++
			return
		}
		var words []uint64
		tail := p
		for ; len(tail) > 16; tail = tail[16:] {
			words = append(words, binary.LittleEndian.Uint64(tail), binary.LittleEndian.Uint64(tail[8:]))
		}
		var b [16]byte
		switch c := len(p); {
		case c >= 16:
			copy(b[:], p[c-16:])
		case c >= 8:
			copy(b[:8], p)
			copy(b[8:], p[c-8:])
		case c >= 4:
			copy(b[:4], p)
			copy(b[8:], p[c-4:])
		case c > 0:
			b[0], b[1], b[2] = p[0], p[c/2], p[c-1]
		}
		words = append(words, binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:]))
		s := new(big.Int)
		for i := 0; i < len(words); i += 2 {
			s.Add(s, new(big.Int).Mul(plus(words[i], k.words[i]), plus(words[i+1], k.words[i+1])))
		}
		s.Mod(s, modulus(128))
		f := k.folds[n]
		for _, w := range []uint64{f.low0, f.low1, f.high0, f.high1} {
			quarter := new(big.Int).Mod(s, modulus(32))
			h.Add(h, quarter.Mul(quarter, number(w)))
			s.Rsh(s, 32)
		}
		h.Add(h, new(big.Int).Mul(number(f.length), big.NewInt(int64(len(p)))))
		n++
	}
	for _, p := range parts {
		for ; len(p) >= blockBytes; p = p[blockBytes:] {
			block(p[:blockBytes])
		}
		block(p)
	}
	h.Mod(h, modulus(64))
	return start ^ uint32(h.Rsh(h, 32).Uint64())
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestModel compares with the definition: at all lengths up to that of some entries, and at those
// near the ends of blocks.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	k := NewKey(secret)
	var lengths []int
	for n := range 600 {
		lengths = append(lengths, n)
	}
	for n := -17; n <= 17; n++ {
		lengths = append(lengths, blockBytes+n, 2*blockBytes+n, 3*blockBytes+n, Most-17+n)
	}
	for _, n := range lengths {
		start, p := r.Uint32(), randomBytes(r, n)
		if got, want := k.Of(start, p), model(k, start, p); got != want {
			t.Fatalf("%d bytes: %#x, want %#x", n, got, want)
		}
		i := r.IntN(n + 1)
		j := i + r.IntN(n-i+1)
		if got, want := k.OfParts(start, p[:i], p[i:j], p[j:]), model(k, start, p[:i], p[i:j], p[j:]); got != want {
			t.Fatalf("parts of %d, %d and %d bytes: %#x, want %#x", i, j-i, n-j, got, want)
		}
	}
}

// TestVectors has sums that another program computed with integers of any size. Indexes are stored
// with them.
func TestVectors(t *testing.T) {
	k := NewKey(secret)
	p := make([]byte, Most)
	for i := range p {
		p[i] = byte(7 * i)
	}
	for _, c := range []struct {
		n    int
		want uint32
	}{
		{0, 0xA1D999AF}, {1, 0xC7720A42}, {3, 0x4A621142}, {4, 0x319F19E3},
		{7, 0x898DF67C}, {8, 0x411F1CD6}, {15, 0x3F80F710}, {16, 0xAE3DE9AD},
		{17, 0xDAA47CD3}, {18, 0xAE12BAE6}, {31, 0x8DCB56A6}, {32, 0xFF2BDD77},
		{33, 0xBED28686}, {112, 0x75CCCD2F}, {113, 0x5CD8752B}, {128, 0xEE859DEF},
		{2047, 0x9302A27D}, {2048, 0x3E2CA144}, {2049, 0x7E35E121}, {4095, 0x3870A9F7},
		{4096, 0xCABA3A03}, {32768, 0xCF087BE4}, {65536, 0xB17AB238},
	} {
		if got := k.Of(0x1234, p[:c.n]); got != c.want {
			t.Errorf("%d bytes: %#X, want %#X", c.n, got, c.want)
		}
	}
	if got := k.OfParts(0x1234, p[:24], nil, p[24:34]); got != 0x22740616 {
		t.Errorf("three parts: %#X", got)
	}
	if got := k.OfParts(0x1234, p[:24], p[24:2072], p[2072:4500]); got != 0xE04B8845 {
		t.Errorf("three long parts: %#X", got)
	}
	if n := testing.AllocsPerRun(100, func() { k.Expand(secret); k.Of(1, p); k.OfParts(1, p[:24], nil, p[24:]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestChosen: contents whose CRC-32C is the same, in every index, have different sums, and these
// differ by other values under other secrets. So do contents that are divided in other places.
func TestChosen(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	seen := map[uint32]bool{}
	const keys = 200
	p := randomBytes(r, 40)
	q := bytes.Clone(p)
	crctest.Change(q, 8, 24)
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	if crc32.Update(7, castagnoli, p) != crc32.Update(7, castagnoli, q) {
		t.Fatal("a CRC tells the contents apart")
	}
	for range keys {
		k := NewKey(siphash.Key{K0: r.Uint64(), K1: r.Uint64()})
		seen[k.Of(7, p)^k.Of(7, q)] = true
		if start := r.Uint32() | 1; k.Of(7, p) == k.Of(7^start, p) {
			t.Error("a content has one sum with two starts")
		}
		if k.OfParts(0, p[:24], p[24:32], p[32:]) == k.OfParts(0, p[:24], p[24:33], p[33:]) || k.Of(0, make([]byte, 8)) == k.Of(0, make([]byte, 9)) {
			t.Error("contents that are divided in other places have one sum")
		}
	}
	if len(seen) != keys || seen[0] {
		t.Errorf("sums of two contents differ by %d values under %d secrets, 0 among them: %v", len(seen), keys, seen[0])
	}
}

// BenchmarkSum has a peer in package crc.
func BenchmarkSum(b *testing.B) {
	k := NewKey(secret)
	for _, n := range []int{18, 128, 4095} {
		p, total := make([]byte, n), uint32(0)
		b.Run(fmt.Sprintf("sum/%d", n), func(b *testing.B) {
			for i := range b.N {
				total += k.Of(uint32(i), p)
			}
		})
	}
	b.Run("expand", func(b *testing.B) {
		for range b.N {
			k.Expand(secret)
		}
	})
}
