// Package rowcache keeps single entries: the values of keys that were looked up and whose leaves
// are not worth a frame. Popular keys lie among unpopular ones, so a byte of entries saves more
// READs than a byte of leaves. It is not in the paper. The room knows no leaves, frames or ranges:
// its caller says by a function whether an entry is valid, and which keys are to go.
//
//	         hash of the key
//	  +-------------+----------------+
//	  | offset      | slot           |          one bucket
//	  v             v                           +---------+--------+------+-----+--
//	part 0 [ ][ ][ ][#][ ][ ]                   | version | counts | head | key | ...
//	part 1 [ ][ ][ ][#][ ][ ]   owners: which   +---------+--------+------+-----+--
//	part 2 [ ][ ]               part has a slot  hints: which entries it may have
//	           ^ the last bucket: Resize adds one behind it, or removes it
//
// A lookup (Get) takes no lock: hints, then the bucket between two looks at its version. Put, Drop,
// Invalidate and Resize lock buckets by attempts, for a few instructions. Nobody waits for anything
// else with a bucket's lock, so it may be taken with a frame's lock, and not the other way round.
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
//	                                           the frame from the table, after a time of it
//
// If 4 came after a, it found the frame, or the time of e. Otherwise the hint was set before c
// looked for it, and c waits for the bucket, so it invalidates the entry. If 4 finds nothing, all
// of e came before 1 by the argument of the eviction clock, so the READ saw the change; or the time
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
package rowcache

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/seqlock"
)

// Cache is a cache of entries.
type Cache struct {
	parts
	words   []uint64
	hints   []hints     // of each bucket
	size    uint64      // words of a bucket
	longest int         // words of the largest entry that is kept, with its head
	some    atomic.Bool // there was an entry
	full    atomic.Bool // an entry was evicted for another one
}

const (
	BucketWords = 64
	BucketBegin = 4 // word of the first entry
	mostEntries = 8*(BucketBegin-1) - 1

	// entryHalving is how many entries go from a bucket before its counts are halved: what a count
	// can hold.
	entryHalving = lfu.Most

	// mostEntryWords bounds an entry with its head: a larger one is not much smaller than its leaf.
	mostEntryWords = 16
)

// KeepsAll reports whether an entry can be kept of every pair of an index.
func KeepsAll(lay *fence.Layout) bool {
	return !lay.Blocks && 1+WordsOf(lay.MaxKey)+WordsOf(lay.MaxValue) <= mostEntryWords
}

// Start makes room for entries of the default size.
func (e *Cache) Start(in env.Env, hash item.Hash, room Room) {
	e.Make(in, hash, room, BucketWords, mostEntryWords)
}

// Make is Start with buckets of so many words, and entries of at most so many.
func (e *Cache) Make(in env.Env, hash item.Hash, room Room, size, longest int) {
	e.size, e.longest = uint64(size), longest
	e.parts.start(in, hash, room)
	e.words, e.hints = make([]uint64, room.Most*e.size), make([]hints, room.Most)
	memory.Huge(e.words)
}

// at is bucket i.
func (e *Cache) at(i uint64) []uint64 {
	at := i * e.size
	return e.words[at : at+e.size : at+e.size]
}

// lookState is what look finds.
type lookState uint8

const (
	found  lookState = iota // an entry, which is valid
	absent                  // none
	busy                    // somebody has the bucket, so it is not known whether there is one
)

// Used reports whether there was an entry so far.
func (e *Cache) Used() bool { return e.some.Load() }

// LacksRoom reports whether an entry was evicted for another one since RoomAgain.
func (e *Cache) LacksRoom() bool { return e.full.Load() }

// RoomAgain has LacksRoom begin anew.
func (e *Cache) RoomAgain() { e.full.Store(false) }

// Get appends the value of key to dst, if its entry is there. It takes no lock.
func (e *Cache) Get(key, dst []byte) ([]byte, bool) {
	value, st := e.look(key, dst)
	return value, st == found
}

// look is Get that says why nothing was found.
func (e *Cache) look(key, dst []byte) (value []byte, st lookState) {
	if !e.some.Load() {
		return dst, absent
	}
	p := e.Place(key)
	if e.lacksAt(p) {
		return dst, absent
	}
	b := e.at(p.Bucket)
	version := atomic.LoadUint64(&b[0])
	if version&1 != 0 {
		return dst, busy
	}
	op.Pause(e.env)
	number, at, head := seek(b, p.head, key)
	if head == 0 || head&stale != 0 {
		if !e.unchanged(p, version) {
			return dst, busy
		}
		return dst, absent
	}
	op.Pause(e.env)
	value = valueAt(b, at, head, dst)
	op.Pause(e.env)
	if !e.unchanged(p, version) {
		return dst, busy
	}
	counts := &b[1+number/8]
	if c, shift := atomic.LoadUint64(counts), 8*(number%8); c>>shift&0xff < lfu.Most {
		// else somebody counts another one, and this is not counted
		atomic.CompareAndSwapUint64(counts, c, c+1<<shift)
	}
	return value, found
}

// Put puts an entry in, if valid says that it is right once the bucket is locked and its hint is
// set; nil = it is, as of a leaf that is written back and about to leave its frame, which the
// caller has locked. The least used entries make room.
func (e *Cache) Put(key, value []byte, valid func() bool) {
	size := 1 + WordsOf(len(key)) + WordsOf(len(value))
	if e.Empty() || size > e.longest {
		return
	}
	e.some.Store(true)
	p, b, ok := e.acquire(key)
	if !ok {
		return
	}
	i, head := p.Bucket, p.head
	// before valid looks for a frame: who fills one looks for this afterwards
	e.setHints(i, e.hints[i].or(hintOf(head)))
	op.Pause(e.env)
	number, at, there := seek(b, head, key)
	if (there == 0 || there&stale != 0) && (valid == nil || valid()) {
		op.Pause(e.env)
		uses := uint8(1)
		if there != 0 {
			uses += min(lfu.Most-1, count(b, number))
		}
		if there != 0 && extent(there) == size { // in its place
			seqlock.Store(&b[at], head|uint64(len(value))<<16)
			put(b, at+1+WordsOf(len(key)), value)
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
func (e *Cache) insert(i, head uint64, key, value []byte, size int, uses uint8) {
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

// Drop takes the entry of key out, and its place with it; had: there was one. ok is false if
// somebody has the bucket; try again. Entries of leaves keep their places (Invalidate).
func (e *Cache) Drop(key []byte) (had, ok bool) {
	if !e.some.Load() {
		return false, true
	}
	p := e.Place(key)
	b := e.at(p.Bucket)
	version := atomic.LoadUint64(&b[0])
	if version&1 != 0 {
		return false, false
	}
	op.Pause(e.env)
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

// DropIf takes out the entries of the keys that match; again is called when somebody has a bucket.
func (e *Cache) DropIf(match func(key []byte) bool, again func() error) error {
	if !e.some.Load() {
		return nil
	}
	e.Hold()
	defer e.Release()
	var key []byte
	for i := range e.Buckets() {
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
		for number, at := 0, BucketBegin; at < len(b) && b[at] != 0; {
			if key = keyAt(b, at, key[:0]); match(key) {
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

// CheckNone panics if an entry of key is valid, whose leaf has a frame that the caller has locked.
func (e *Cache) CheckNone(key []byte) {
	st := busy
	for st == busy {
		if _, st = e.look(key, nil); st == busy {
			e.env.Yield()
		}
	}
	invariants.Check(st == absent, "an entry of key %x is valid, and its leaf has a frame", key)
}
