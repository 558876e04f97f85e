package core

import (
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Words are the intent slots and the lock words in the data region, as the server changes them: by
// the same atomics as its clients (G2).
type Words struct {
	Bytes   []byte                // the data region; nil = there are no intent slots
	atomics verbs.LocalAtomics    // nil = the processor's are the same as the clients'
	First   func(slot int) uint64 // where the intent slots of a superblock slot begin
	Slots   int
	Chunk   func(at uint64) uint32 // the chunk that a byte lies in; 0 = none
	// where a chunk begins, and the size of each
	ChunkAt    func(chunk uint32) uint64
	ChunkBytes uint64
}

// wordsToRepair turns the lock words of an index that clients hold to Repair and says how many.
func (c *Core) wordsToRepair(view *ledger.Index, ids []uint16) (turned int, err error) {
	if c.Words.Bytes == nil {
		return 0, nil
	}
	m := indexWords{&c.Words, c.Accounts, view.Identity}
	return pool.SweepWords(m, c.Words.First(view.Slot), c.Words.Slots, ids)
}

// indexWords are the words of one index.
type indexWords struct {
	*Words
	accounts *Accounts
	index    string
}

func (w indexWords) word(at uint64) *uint64 { return (*uint64)(unsafe.Pointer(&w.Bytes[at])) }

// LoadWords implements pool.WordMemory. The data region is in host memory.
func (w indexWords) LoadWords(at uint64, dst []uint64) error {
	for i := range dst {
		dst[i] = atomic.LoadUint64(w.word(at + 8*uint64(i)))
	}
	return nil
}

// SwapWord implements pool.WordMemory.
func (w indexWords) SwapWord(at, compare, swap uint64) (uint64, error) {
	if w.atomics != nil {
		return w.atomics.CompareSwap(verbs.RegionData, at, compare, swap)
	}
	return swapWord(w.word(at), compare, swap), nil
}

// Owns implements pool.WordMemory.
func (w indexWords) Owns(at uint64) (owns bool) {
	_ = w.While(at, func() error { owns = true; return nil })
	return owns
}

// While implements pool.WordMemory. A chunk is given and given back in the ledger.
func (w indexWords) While(at uint64, do func() error) (err error) {
	number := w.Chunk(at)
	if number == 0 {
		return nil
	}
	w.accounts.Read(func(l *ledger.Ledger) {
		if l.Has(w.index, number) {
			err = do()
		}
	})
	return err
}

// Chunks implements pool.WordMemory.
func (w indexWords) Chunks() (at []uint64, bytes uint64) {
	w.accounts.Read(func(l *ledger.Ledger) {
		for _, number := range l.Chunks(w.index) {
			at = append(at, w.ChunkAt(number))
		}
	})
	return at, w.ChunkBytes
}

// swapWord is a compare-and-swap that says what it found.
func swapWord(w *uint64, compare, swap uint64) uint64 {
	for {
		if atomic.CompareAndSwapUint64(w, compare, swap) {
			return compare
		}
		if old := atomic.LoadUint64(w); old != compare {
			return old
		}
	}
}
