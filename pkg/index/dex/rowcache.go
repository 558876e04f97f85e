package dex

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/ranges"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/seqlock"
	"github.com/dmindex/dmindex/pkg/pool"
)

// rowCache is the part of the cache that keeps single entries: of keys that were looked up and
// whose leaves are not worth a frame. Popular keys lie among unpopular ones, so a byte of entries
// saves more READs than a byte of leaves. It is not in the paper.
//
// Entries lie in buckets, by the hash of the key. Each bucket is a few cache lines, of words that
// are each loaded atomically and stored whole (package seqlock):
//
//	word    content
//	0       version; odd = locked
//	1..3    counts, a byte for each entry in their order: how often it was found; the last byte
//	        counts evicted entries
//	4..63   the entries, the oldest first, up to a word that is 0: a head, the key, the value,
//	        each in whole words. A head has the lengths of key (bits 0 to 14) and value (16 to
//	        31), and a part of the hash (32 to 63); bit 63 is set. Bit 15 = the entry is
//	        invalid: its value does not hold any more
//
// An invalidated entry keeps its place and its count until others need the place. Otherwise a key
// that is looked up and changed often would start from zero after each change.
//
// An entry is valid only while it is what a lookup of the key must answer. This client owns the
// key, so no other client changes its value. A session of this client changes it in the frame of
// its leaf. An entry is valid only while no session uses the leaf in a frame:
//
//	session that READ it, or called         session that fills a frame with the leaf
//	1  reads the eviction clock             a  puts the frame into the table, locked
//	2  READs the leaf, or calls             b  fills it
//	3  locks the bucket; sets the hint      c  for each key of the leaf: finds no hint, or locks
//	4  finds no frame of the leaf, and no      the bucket, and invalidates the entry
//	   time of it after 1                   d  unlocks the frame: it is used, and changed
//	5  puts the entry in, and unlocks       e  has written back, records the eviction, and removes
//	                                           the frame from the table (evictionclock.go)
//
// If 4 came after a, it found the frame, or the time of e. Otherwise the hint was set before c
// looked for it, and c waits for the bucket, so it invalidates the entry. If 4 finds nothing, all
// of e came before 1 by the argument of evictionclock.go, so the READ saw the change; or the time
// of the leaf is after 1. A leaf that is divided or merged has a frame too, and its eviction is
// recorded; the key's new leaf has a frame before it is changed. What is in the memory servers is
// durable in the log, so a lookup that finds such an entry waits for nothing.
//
// When a leaf is evicted, the entries are put in again that it had when the frame was filled, and
// those that changed since. They are written back and durable by then, whichever session did it.
// They are put in between e's first part and its others, while the frame's lock keeps everybody
// from the leaf.
//
// When a range is given its entries are removed, while no session is in an operation on its keys.
type rowCache struct {
	rowParts
	cache   *cache
	words   []uint64
	hints   []hints     // of each bucket
	size    uint64      // words of a bucket
	longest int         // words of the largest entry that is kept, with its head
	some    atomic.Bool // there was an entry
	full    atomic.Bool // an entry was evicted for another one
}

const (
	bucketWords = 64
	bucketBegin = 4 // word of the first entry
	mostEntries = 8*(bucketBegin-1) - 1

	// entryHalving is how many entries go from a bucket before its counts are halved: what a count
	// can hold.
	entryHalving = lfu.Most

	// mostEntryWords bounds an entry with its head: a larger one is not much smaller than its leaf.
	mostEntryWords = 16
)

// keepsAll reports whether an entry can be kept of every pair of an index.
func keepsAll(lay *fence.Layout) bool {
	return !lay.Blocks && 1+wordsOf(lay.MaxKey)+wordsOf(lay.MaxValue) <= mostEntryWords
}

// start makes room for entries.
func (e *rowCache) start(c *cache, room entryRoom) {
	e.cache = c
	e.make(c.env, room, bucketWords, mostEntryWords)
}

// make is start with buckets of so many words, and entries of at most so many.
func (e *rowCache) make(in env.Env, room entryRoom, size, longest int) {
	e.size, e.longest = uint64(size), longest
	e.rowParts.start(in, room)
	e.words, e.hints = make([]uint64, room.most*e.size), make([]hints, room.most)
	memory.Huge(e.words)
}

// at is bucket i.
func (e *rowCache) at(i uint64) []uint64 {
	at := i * e.size
	return e.words[at : at+e.size : at+e.size]
}

// find appends the value of key to dst, if its entry is there. It takes no lock.
func (e *rowCache) find(x *dex, key, dst []byte) ([]byte, bool) {
	value, st := e.look(x, key, dst)
	return value, st == frame.Done
}

// look is find that tells more: busy = somebody has the bucket, so it is not known whether there is
// an entry.
func (e *rowCache) look(x *dex, key, dst []byte) (value []byte, st frame.State) {
	if !e.some.Load() {
		return dst, frame.NotFound
	}
	p := e.place(key)
	if e.lacks(p) {
		return dst, frame.NotFound
	}
	b := e.at(p.bucket)
	version := atomic.LoadUint64(&b[0])
	if version&1 != 0 {
		return dst, frame.Busy
	}
	op.Pause(x.env)
	number, at, head := seek(b, p.head, key)
	if head == 0 || head&stale != 0 {
		if !e.unchanged(p, version) {
			return dst, frame.Busy
		}
		return dst, frame.NotFound
	}
	op.Pause(x.env)
	value = valueAt(b, at, head, dst)
	op.Pause(x.env)
	if !e.unchanged(p, version) {
		return dst, frame.Busy
	}
	counts := &b[1+number/8]
	if c, shift := atomic.LoadUint64(counts), 8*(number%8); c>>shift&0xff < lfu.Most {
		// else somebody counts another one, and this is not counted
		atomic.CompareAndSwapUint64(counts, c, c+1<<shift)
	}
	return value, frame.Done
}

// keep puts an entry in that was found in the leaf at a, which was READ, or found by a memory
// server, after the eviction clock showed since; if it is still right. The least used ones make
// room.
func (e *rowCache) keep(x *dex, key, value []byte, a pool.Addr, since uint64) {
	e.enter(x, key, value, func() bool { return e.cache.still(a, since) })
}

// leave puts an entry in of a leaf that was written back and is about to leave its frame, which the
// caller has locked. Nobody changes the key before the leaf has a frame again, so who does comes to
// b after this.
func (e *rowCache) leave(x *dex, key, value []byte) {
	e.enter(x, key, value, func() bool { return true })
}

// enter puts an entry in, if it is right still once the bucket is locked.
func (e *rowCache) enter(x *dex, key, value []byte, right func() bool) {
	size := 1 + wordsOf(len(key)) + wordsOf(len(value))
	if e.empty() || size > e.longest {
		return
	}
	e.some.Store(true)
	p, b, ok := e.acquire(key)
	if !ok {
		return
	}
	i, head := p.bucket, p.head
	// before right looks for a frame: who fills one looks for this afterwards
	e.setHints(i, e.hints[i].or(hintOf(head)))
	op.Pause(x.env)
	number, at, there := seek(b, head, key)
	if (there == 0 || there&stale != 0) && right() {
		op.Pause(x.env)
		uses := uint8(1)
		if there != 0 {
			uses += min(lfu.Most-1, count(b, number))
		}
		if there != 0 && extent(there) == size { // in its place
			seqlock.Store(&b[at], head|uint64(len(value))<<16)
			put(b, at+1+wordsOf(len(key)), value)
			setCount(b, number, uses)
		} else {
			if there != 0 {
				takeOut(b, number, at)
			}
			e.insert(i, head, key, value, size, uses)
		}
	}
	unlock(b)
}

// insert puts an entry of so many words behind the others of bucket i. Under the lock; there is no
// other one of the key.
func (e *rowCache) insert(i, head uint64, key, value []byte, size int, uses uint8) {
	b := e.at(i)
	v := makeRoom(b, size, e.ghosts.of(i))
	if v.took && !e.full.Load() {
		e.full.Store(true)
	}
	e.setHints(i, v.hints.or(hintOf(head)))
	at := v.at
	seqlock.Store(&b[at], head|uint64(len(value))<<16)
	at = put(b, at+1, key)
	put(b, at, value)
	setCount(b, v.number, uses)
}

// drop takes the entry of key out, and its place with it; had: there was one. ok is false if
// somebody has the bucket; try again. Entries of leaves keep their places (takeOutEntry).
func (e *rowCache) drop(x *dex, key []byte) (had, ok bool) {
	if !e.some.Load() {
		return false, true
	}
	p := e.place(key)
	b := e.at(p.bucket)
	version := atomic.LoadUint64(&b[0])
	if version&1 != 0 {
		return false, false
	}
	op.Pause(x.env)
	if _, _, head := seek(b, p.head, key); head == 0 {
		return false, e.unchanged(p, version)
	}
	if p, b, ok = e.acquire(key); !ok {
		return false, false
	}
	number, at, head := seek(b, p.head, key)
	if head != 0 {
		takeOut(b, number, at)
	}
	unlock(b)
	return head != 0, true
}

// forget takes out what lies in given; again is called when somebody has a bucket.
func (e *rowCache) forget(given *ranges.Table, again func() error) error {
	if !e.some.Load() {
		return nil
	}
	e.hold()
	defer e.release()
	var key []byte
	for i := range e.buckets() {
		b := e.at(i)
		if atomic.LoadUint64(&b[0]) == 0 {
			// nobody has locked it so far. Its memory may not be there yet, and would come with the
			// lock
			continue
		}
		for !lock(b) {
			if err := again(); err != nil {
				return err
			}
		}
		for number, at := 0, bucketBegin; at < len(b) && b[at] != 0; {
			if key = keyAt(b, at, key[:0]); given.At(key) >= 0 {
				takeOut(b, number, at)
				continue
			}
			at += extent(b[at])
			number++
		}
		unlock(b)
	}
	return nil
}
