package dex

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// TestEntriesFollowTheSecret: where entries lie depends on the secret of the index, so nobody can
// choose keys of one bucket.
func TestEntriesFollowTheSecret(t *testing.T) {
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	x, _ := openedBy(t, "shm", index.Options{MaxKeyBytes: 8, MaxValueBytes: 8, CacheBytes: 8 << 20})
	y, _ := openedBy(t, "shm", index.Options{MaxKeyBytes: 8, MaxValueBytes: 8, CacheBytes: 8 << 20})
	if x.lay.Secret == (siphash.Key{}) || x.lay.Secret == y.lay.Secret {
		t.Fatalf("the secrets are %x and %x", x.lay.Secret, y.lay.Secret)
	}
	e, f := &x.cache.rows, &y.cache.rows
	const here = 3 // a bucket
	others := map[uint64]int{}
	for n, chosen := uint64(0), 0; chosen < 200; n++ {
		if e.place(key(n)).bucket == here {
			chosen++
			others[f.place(key(n)).bucket]++
		}
	}
	for bucket, n := range others {
		if n > 10 {
			t.Errorf("of 200 keys of one bucket of %d, %d are in bucket %d of another index", e.buckets(), n, bucket)
		}
	}
}

// TestEntriesSpread: keys that are alike lie in all buckets, and set all hints, whatever the secret
// is.
func TestEntriesSpread(t *testing.T) {
	for _, secret := range []siphash.Key{{}, {K0: 1, K1: 1}, {K0: 0xD1B54A32D192ED03, K1: 0x8CB92BA72F3D8DD7}} {
		h := rowHashOf(secret)
		for what, key := range map[string]func(n uint64) []byte{
			"big-endian numbers":    func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) },
			"little-endian numbers": func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) },
			"long keys":             func(n uint64) []byte { return binary.BigEndian.AppendUint64(bytes.Repeat([]byte("user"), 4), n) },
			"one prefix":            func(n uint64) []byte { return append([]byte("user:"), byte(n>>16), byte(n>>8), byte(n)) },
		} {
			const n, buckets = 1 << 16, 256
			var upper, slots, first, second [buckets]int
			for i := range uint64(n) {
				x := h.of(key(i))
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
		if k := uint64(0x0123456789ABCDEF); h.ofNumber(k) != h.of(binary.LittleEndian.AppendUint64(nil, k)) {
			t.Error("a number has another hash than its bytes")
		}
	}
}
