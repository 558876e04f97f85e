package pool

import "fmt"

// LockWords are the words of a lock region as its memory server changes them: by the same atomics
// as its clients (G2). Offsets are in bytes.
type LockWords interface {
	// LoadLocks reads the words from at on.
	LoadLocks(at uint64, dst []uint64) error
	// SwapLocks is a compare-and-swap. It returns what it found.
	SwapLocks(at, compare, swap uint64) (old uint64, err error)
}

// SweepLocks turns those of locks locks, from the first one on, to Repair that hold one of ids, and
// returns how many: what fencing does once nothing of these clients takes effect any more. Other
// locks of their words may change meanwhile. It knows no more of a lock than its holder; memory
// servers and test harnesses have no sweep of their own.
func SweepLocks(w LockWords, first, locks uint64, ids []uint16) (turned int, err error) {
	var fenced [1 << lockBits / 64]uint64
	for _, id := range ids {
		fenced[id/64] |= 1 << (id % 64)
	}
	var block [512]uint64
	for at, end := 2*first, 2*(first+locks); at < end; at += 8 {
		i := (at - 2*first) / 8 % uint64(len(block))
		if i == 0 {
			err = w.LoadLocks(at, block[:min(uint64(len(block)), (end-at+7)/8)])
		}
		old := block[i]
		for err == nil {
			next, n := toRepair(old, &fenced)
			if n == 0 {
				break
			}
			var found uint64
			if found, err = w.SwapLocks(at, old, next); err == nil && found == old {
				turned += n
				break
			}
			old = found
		}
		if err != nil {
			return turned, fmt.Errorf("turn locks of fenced clients to repair: %w", err)
		}
	}
	return turned, nil
}

// toRepair is a word with the locks of fenced clients, a bit each, turned to Repair, and how many
// these are.
func toRepair(word uint64, fenced *[1 << lockBits / 64]uint64) (next uint64, turned int) {
	next = word
	for shift := 0; shift < 64; shift += lockBits {
		holder := uint16(word >> shift)
		if holder != 0 && holder != Repair && fenced[holder/64]>>(holder%64)&1 != 0 {
			next |= lockMask << shift
			turned++
		}
	}
	return next, turned
}
