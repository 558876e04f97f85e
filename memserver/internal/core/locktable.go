package core

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// LockTable is the lock region as the server changes it: by the same atomics as its clients (G2).
type LockTable struct {
	bytes   []byte
	atomics verbs.LocalAtomics // nil = the processor's are the same as the clients'
}

// toRepair turns locks of a slice that hold one of ids to Repair and says how many.
func (t *LockTable) toRepair(first, locks uint64, ids []uint16) (turned int, err error) {
	return pool.SweepLocks(t, first, locks, ids)
}

// Zero frees all locks of a slice that is nobody's. Only where the processor's stores do not reach
// the locks it is done by atomics.
func (t *LockTable) Zero(first, locks uint64) error {
	var block [512]uint64
	for at, end := 2*first, 2*(first+locks); at < end; {
		words := block[:min(uint64(len(block)), (end-at+7)/8)]
		if err := t.LoadLocks(at, words); err != nil {
			return fmt.Errorf("read locks to be freed: %w", err)
		}
		for _, old := range words {
			for old != 0 {
				found, err := t.SwapLocks(at, old, 0)
				if err != nil {
					return fmt.Errorf("free locks: %w", err)
				}
				if found == old {
					break
				}
				old = found
			}
			at += 8
		}
	}
	return nil
}

func (t *LockTable) word(at uint64) *uint64 { return (*uint64)(unsafe.Pointer(&t.bytes[at])) }

// LoadLocks implements pool.LockWords. Where the locks lie in the NIC, the mapping does not show
// them.
func (t *LockTable) LoadLocks(at uint64, dst []uint64) (err error) {
	if r, ok := t.atomics.(verbs.LocalReads); ok {
		return r.ReadLocal(verbs.RegionLocks, at, dst)
	}
	for i := range dst {
		word := at + 8*uint64(i)
		if t.atomics == nil {
			dst[i] = atomic.LoadUint64(t.word(word))
		} else if dst[i], err = t.atomics.CompareSwap(verbs.RegionLocks, word, 0, 0); err != nil {
			return err
		}
	}
	return nil
}

// SwapLocks implements pool.LockWords.
func (t *LockTable) SwapLocks(at, compare, swap uint64) (old uint64, err error) {
	if t.atomics != nil {
		return t.atomics.CompareSwap(verbs.RegionLocks, at, compare, swap)
	}
	return swapWord(t.word(at), compare, swap), nil
}
