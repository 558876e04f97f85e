package item

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// TestHashSpreads: keys that are alike lie in all buckets, and set all hints, whatever the secret
// is.
func TestHashSpreads(t *testing.T) {
	for _, secret := range []siphash.Key{{}, {K0: 1, K1: 1}, {K0: 0xD1B54A32D192ED03, K1: 0x8CB92BA72F3D8DD7}} {
		h := HashOf(secret)
		for what, key := range map[string]func(n uint64) []byte{
			"big-endian numbers":    func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) },
			"little-endian numbers": func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) },
			"long keys":             func(n uint64) []byte { return binary.BigEndian.AppendUint64(bytes.Repeat([]byte("user"), 4), n) },
			"one prefix":            func(n uint64) []byte { return append([]byte("user:"), byte(n>>16), byte(n>>8), byte(n)) },
		} {
			const n, buckets = 1 << 16, 256
			var upper, slots, first, second [buckets]int
			for i := range uint64(n) {
				x := h.Of(key(i))
				upper[x>>56]++
				slots[x%buckets]++
				first[x>>20&63]++
				second[x>>10&63]++
			}
			for where, of := range map[string][]int{"buckets": upper[:], "slots": slots[:], "hints": first[:64], "other hints": second[:64]} {
				chi, mean := 0.0, float64(n)/float64(len(of))
				for _, c := range of {
					chi += (float64(c) - mean) * (float64(c) - mean) / mean
				}
				if chi > 2*float64(len(of)) {
					t.Errorf("secret %x, %s: %s have a chi-square of %.0f, of %d", secret, what, where, chi, len(of))
				}
			}
		}
		if k := uint64(0x0123456789ABCDEF); h.OfNumber(k) != h.Of(binary.LittleEndian.AppendUint64(nil, k)) {
			t.Error("a number has another hash than its bytes")
		}
	}
}
