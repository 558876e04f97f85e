package memserver

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// lockTable is the lock region as the server changes it: by the same atomics as its clients (G2).
type lockTable struct {
	bytes   []byte
	atomics verbs.LocalAtomics // nil = the processor's are the same as the clients'
}

// toRepair turns locks of a slice that hold one of ids to REPAIR and says how many. Other locks of their words may change meanwhile.
func (t *lockTable) toRepair(first, locks uint64, ids []uint16) (turned int, err error) {
	var theirs [1 << 16 / 64]uint64
	for _, id := range ids {
		theirs[id/64] |= 1 << (id % 64)
	}
	var block [512]uint64
	for at, end := 2*first, 2*(first+locks); at < end; at += 8 {
		i := (at - 2*first) / 8 % uint64(len(block))
		if i == 0 {
			err = t.load(at, block[:min(uint64(len(block)), (end-at+7)/8)])
		}
		old := block[i]
		for err == nil {
			next, n := old, 0
			for shift := 0; shift < 64; shift += 16 {
				if holder := uint16(old >> shift); holder != 0 && theirs[holder/64]>>(holder%64)&1 != 0 {
					next |= ledger.NoClient << shift
					n++
				}
			}
			if n == 0 {
				break
			}
			var found uint64
			if found, err = t.compareSwap(at, old, next); err == nil && found == old {
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

// zero frees all locks of a slice that is nobody's. Only where the processor's stores do not reach the locks it is done by atomics.
func (t *lockTable) zero(first, locks uint64) error {
	var block [512]uint64
	for at, end := 2*first, 2*(first+locks); at < end; {
		words := block[:min(uint64(len(block)), (end-at+7)/8)]
		if err := t.load(at, words); err != nil {
			return fmt.Errorf("read locks to be freed: %w", err)
		}
		for _, old := range words {
			for old != 0 {
				found, err := t.compareSwap(at, old, 0)
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

func (t *lockTable) word(at uint64) *uint64 { return (*uint64)(unsafe.Pointer(&t.bytes[at])) }

// load reads the words from at on. Where the locks lie in the NIC, the mapping does not show them.
func (t *lockTable) load(at uint64, dst []uint64) (err error) {
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

// compareSwap returns what it found; compare = it was swapped.
func (t *lockTable) compareSwap(at, compare, swap uint64) (old uint64, err error) {
	if t.atomics != nil {
		return t.atomics.CompareSwap(verbs.RegionLocks, at, compare, swap)
	}
	for {
		if atomic.CompareAndSwapUint64(t.word(at), compare, swap) {
			return compare, nil
		}
		if old := atomic.LoadUint64(t.word(at)); old != compare {
			return old, nil
		}
	}
}
