package workload

import (
	"bytes"
	"math"
	"testing"
)

// TestFloor finds the number of every key, and of keys between.
func TestFloor(t *testing.T) {
	for _, length := range []int{8, 12, 16, 33} {
		k, err := NewKeys(length)
		if err != nil {
			t.Fatal(err)
		}
		for item := range uint64(50) {
			x := Scramble(item)
			key := k.AppendScrambled(nil, x)
			if have := k.Floor(key); have != x {
				t.Errorf("keys of %d bytes: %x is the key of %x, not of %x", length, key, x, have)
			}
			// Fences may be as short as still tells neighbours apart, or longer.
			for _, fence := range [][]byte{key[:length-1], append(bytes.Clone(key), 0)} {
				have := k.Floor(fence)
				if bytes.Compare(k.AppendScrambled(nil, have), fence) < 0 || have > 0 && bytes.Compare(k.AppendScrambled(nil, have-1), fence) >= 0 {
					t.Errorf("keys of %d bytes: %x is not the first key from %x on", length, k.AppendScrambled(nil, have), fence)
				}
			}
		}
		if k.Floor(nil) != 0 {
			t.Error("the lowest fence is not that of the lowest key")
		}
	}
}

func TestKeysNameTheirItems(t *testing.T) {
	for _, bytes := range []int{8, 12, 16, 23, 32} {
		k, err := NewKeys(bytes)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, item := range []uint64{0, 1, 2, 3, 1 << 20, 1<<32 - 1, 1 << 32, 1<<48 - 1} {
			key := k.Append(nil, item)
			if back, err := k.Item(key); back != item || err != nil || len(key) != bytes || seen[string(key)] {
				t.Errorf("%d bytes: item %d has key %x, which is item %d's: %v", bytes, item, key, back, err)
			}
			seen[string(key)] = true
		}
	}
	if _, err := NewKeys(7); err == nil {
		t.Error("keys of 7 bytes")
	}
}

// TestKeysAreScattered: neighbours in number fall all over the key space.
func TestKeysAreScattered(t *testing.T) {
	const n = 1 << 16
	var counts [256]int
	for item := range uint64(n) {
		counts[Scramble(item)>>56]++
	}
	statistic := 0.0
	for _, c := range counts {
		statistic += math.Pow(float64(c)-n/256, 2) / (n / 256)
	}
	if limit := 255 + 4*math.Sqrt(2*255); statistic > limit {
		t.Errorf("chi-square of the first byte is %.0f, at most %.0f is to be expected", statistic, limit)
	}
}
