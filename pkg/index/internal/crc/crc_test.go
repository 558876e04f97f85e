package crc

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestSum compares with hash/crc32 at every length and alignment.
func TestSum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 1200)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for n := range 1100 {
		for off := range 9 {
			start, p := r.Uint32(), b[off:off+n]
			if got, want := Sum(start, p), table(start, p); got != want {
				t.Fatalf("%d bytes at %d: %#x, want %#x", n, off, got, want)
			}
		}
	}
}

// BenchmarkSum has a peer in package sum.
func BenchmarkSum(b *testing.B) {
	for _, n := range []int{18, 128, 4095} {
		p, total := make([]byte, n), uint32(0)
		b.Run(fmt.Sprintf("crc/%d", n), func(b *testing.B) {
			for i := range b.N {
				total += Sum(uint32(i), p)
			}
		})
	}
}
