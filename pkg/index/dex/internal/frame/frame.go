// Package frame is one cached leaf: it is read, edited, and written back. A frame knows neither the
// cache that it belongs to nor the log: it only keeps two positions of the log for those that do.
//
//	Frame                              words
//	+---------+------+---------+       +--------+--------+-----------+------ ... ---+ +-------+
//	| version | addr | pageLSN |       | header | fences | slots     |    entries   | | notes |
//	| uses    | id   | recLSN  | ----> +--------+--------+--|--------+--^-- ... ---+ +-------+
//	+---------+------+---------+                            +-----------+   image, as the memory
//	                                                                        server will have it
//
// The image is kept as words, each loaded atomically and stored whole (package seqlock). A reader
// takes no lock: it loads the version and the address, reads, and loads the version again
// (optimistic lock coupling, DEX section 4). A change acquires the lock, which makes the version
// odd, and its Unlock makes it another even one. Nobody waits for the lock here: TryLock says that
// it is taken, and the caller decides.
//
//	          SetAddr, Fill                Put, Remove; SetRecLSN of the first one
//	free -----------------------> clean ----------------------------------------> dirty
//	  ^                             |  ^                                            |
//	  +-----------------------------+  +------------ Queue, confirmed, Clean -------+
//	          SetAddr(Nil)
//
// All of these happen under the lock. A frame that is not clean is never freed: its changes would
// be lost with it.
//
// What edits leave alone. A write-back has several parts, which a crash may separate
// (writeback.go). So until it is confirmed
//
//   - an entry is put only where neither the image's nor the memory server's slots point to
//     (busy), or over the one that it replaces (own);
//   - that is one which the memory server has not got, unless entries are put in place
//     (inplace.go);
//   - a slot that was emptied is not reused (clears).
package frame

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Frame is a place of the cache for one leaf.
type Frame struct {
	// Loaded by a reader: one cache line.
	version atomic.Uint64 // odd = locked
	addr    atomic.Uint64 // of the leaf; 0 = none
	page    atomic.Uint64 // see PageLSN
	rec     atomic.Uint64 // see RecLSN
	used    atomic.Uint32 // how often it was found; halved from time to time
	id      int32         // in the cache
	// the image; behind it, up to its capacity, the notes, which only the lock's holder uses
	words []uint64
}

// Init gives f its number in the cache and the words of its image, with NoteWords(len(words)) more
// of capacity. Nobody else knows f yet.
func (f *Frame) Init(id int32, words []uint64) { f.id, f.words = id, words }

// ID is the number of f in the cache.
func (f *Frame) ID() int32 { return f.id }

// Version returns the version, which is odd while the frame is locked. Two equal even ones say
// that what was loaded between them was the leaf at one moment.
func (f *Frame) Version() uint64 { return f.version.Load() }

// IsLocked reports whether somebody has the lock. That may be over at once.
func (f *Frame) IsLocked() bool { return f.version.Load()&1 != 0 }

// Addr is that of the frame's leaf; Nil = it has none. It changes under the lock.
func (f *Frame) Addr() pool.Addr     { return pool.Addr(f.addr.Load()) }
func (f *Frame) SetAddr(a pool.Addr) { f.addr.Store(uint64(a)) }

// PageLSN is where the record of the last change ends in the log.
func (f *Frame) PageLSN() uint64       { return f.page.Load() }
func (f *Frame) SetPageLSN(lsn uint64) { f.page.Store(lsn) }

// RecLSN is where the record of the first change since the last flush ends; 0 = the frame is clean.
func (f *Frame) RecLSN() uint64       { return f.rec.Load() }
func (f *Frame) SetRecLSN(lsn uint64) { f.rec.Store(lsn) }

// Uses is how often the leaf was found.
func (f *Frame) Uses() uint32     { return f.used.Load() }
func (f *Frame) SetUses(n uint32) { f.used.Store(n) }

// Hit counts that f was found, by a plain store. Of two concurrent counts one may be lost.
func (f *Frame) Hit() {
	if u := f.Uses(); u < lfu.Most {
		f.SetUses(u + 1)
	}
}

// TryLock acquires the lock if it is free.
func (f *Frame) TryLock() bool {
	v := f.version.Load()
	return v&1 == 0 && f.version.CompareAndSwap(v, v+1)
}

// Unlock releases the lock. Readers that began meanwhile start again.
func (f *Frame) Unlock() { f.version.Add(1) }
