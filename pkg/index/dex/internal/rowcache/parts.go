package rowcache

import (
	"math"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/seqlock"
)

// parts says in which bucket the entry of a key is. The number of buckets changes, by one at a
// time (Resize), and all buckets have about as many keys.
//
// Buckets lie in parts of equal size, one part behind the other. By its hash a key has an offset in
// its part, and a slot. If there are k buckets at an offset, owners says for each slot in which of
// these parts its keys are. Each of k parts gives some of its slots to the next one; nothing else
// moves. The last part may have only its first buckets.
//
// # Who sees what
//
// state says how many buckets there are. The bucket that is added, or removed, is the last one.
// Entries of its offset move while all buckets of the offset are locked:
//
//	session that needs the entry of a key     session that changes the number of buckets
//	1  reads state, which says the bucket     a  locks all buckets of the offset
//	2  reads the hints, or the bucket         b  moves entries to their new buckets, and sets
//	   between two looks at its version          the hints of these
//	3  finds that state is the same           c  changes state
//	                                          d  clears the hints of what has gone, and unlocks
//
// A state does not come again, so from 1 to 3 the entry of the key was in no other bucket: it
// changes its bucket at c only. A session that locks the bucket reads state afterwards, and tries
// again if the key has another bucket by then. If it has not, it keeps this one until that is
// unlocked, because a needs the lock.
//
// A removed bucket stays locked (removed). The memory of buckets that fill a page is given back to
// the kernel, which unlocks them. A session with an old state may lock one for a moment; it reads
// state, and does nothing there.
//
// Entries move as they are: their leaves do not know in which bucket they are. One for which there
// is no room is dropped.
//
// Who looks at all buckets, one after the other, holds their number (Hold).
type parts struct {
	Room
	owners []uint8
	// the whole parts (bits 32 to 39), the buckets of the next part (0 to 31), and a number that
	// each change increments
	state  atomic.Uint64
	hash   item.Hash
	ghosts ghosts
	env    env.Env

	changing struct {
		env.Mutex
		holds int
	}
}

// spot is where the entry of a key is by a state, and what its head looks like but for the value's
// length.
type spot struct{ Bucket, head, state uint64 }

const (
	entrySlots = 1 << 10
	mostParts  = 1<<8 - 1
	removed    = math.MaxUint64 // the version of a bucket that is not there
	// how often a bucket is locked again whose key has another one by then
	placeTries = 8
)

// Room is how many buckets a part has, which is the least number of them, and how many there
// are at first and at most.
type Room struct{ Part, First, Most uint64 }

// Moves reports whether the number changes.
func (r Room) Moves() bool { return r.Most > r.Part }

// Bytes is how many bytes it takes at first, with buckets of so many words.
func (r Room) Bytes(size int) int64 {
	n := 8 * (r.First*uint64(size) + HintWords*r.Most)
	if r.Moves() {
		n += 8 * r.Most // ghosts
	}
	return int64(n)
}

func (r *parts) start(in env.Env, hash item.Hash, room Room) {
	r.Room, r.env, r.hash = room, in, hash
	if r.Part == 0 {
		return
	}
	r.changing.Mutex = in.NewMutex()
	r.state.Store(r.First/r.Part<<32 | r.First%r.Part)
	if r.owners = sharedOwners; r.Most > sharedParts*r.Part {
		r.owners = ownersOf(int((r.Most + r.Part - 1) / r.Part))
	}
	if r.Moves() {
		r.ghosts = make(ghosts, r.Most)
	}
}

// sharedOwners is the table of owners of all caches of this process: for fewer parts it is the
// beginning of the one for more. So it has no share in the bytes of any of them. What is rounded
// down makes twice as many parts as there are least shares in the most at the outside.
var sharedOwners = ownersOf(sharedParts)

// sharedParts bounds the parts for which the table is common to all caches. One with more has a
// table of its own.
const sharedParts = 32

// ownersOf has for each number of parts up to n the owner of each slot.
func ownersOf(n int) []uint8 {
	owners := make([]uint8, (n+1)*entrySlots)
	for k := 2; k <= n; k++ {
		before, now := owners[(k-1)*entrySlots:k*entrySlots], owners[k*entrySlots:]
		var has [mostParts + 1]int
		for _, o := range before {
			has[o]++
		}
		for i, o := range before {
			if now[i] = o; has[o] > entrySlots/k && has[k-1] < entrySlots/k {
				now[i] = uint8(k - 1)
				has[o]--
				has[k-1]++
			}
		}
	}
	return owners
}

// Bytes is how many bytes the buckets take that there are.
func (e *Cache) Bytes() int64 {
	room := e.Room
	room.First = e.Buckets()
	return room.Bytes(int(e.size))
}

// Resized is how often the number of buckets changed.
func (r *parts) Resized() int { return int(r.state.Load() >> 40) }

// Empty reports whether there are no buckets at all.
func (r *parts) Empty() bool { return r.Part == 0 }

// Buckets is how many there are.
func (r *parts) Buckets() uint64 {
	s := r.state.Load()
	return s>>32&mostParts*r.Part + s&math.MaxUint32
}

// Place is where the entry of key is.
func (r *parts) Place(key []byte) spot { return r.placeOf(r.hash.Of(key), len(key)) }

// placeOf is Place for a key of so many bytes with a hash.
func (r *parts) placeOf(h uint64, length int) spot {
	s := r.state.Load()
	offset, parts := h>>32*r.Part>>32, s>>32&mostParts
	if offset < s&math.MaxUint32 {
		parts++
	}
	owner := uint64(r.owners[parts*entrySlots+h%entrySlots])
	return spot{owner*r.Part + offset, 1<<63 | h<<32 | uint64(length), s}
}

// owner is the part that has the entry with this head, if so many have one.
func (r *parts) owner(head, parts uint64) uint64 {
	return uint64(r.owners[parts*entrySlots+head>>32%entrySlots])
}

// acquire locks the bucket of key, if nobody has it.
func (e *Cache) acquire(key []byte) (p spot, b []uint64, ok bool) {
	for range placeTries {
		p = e.Place(key)
		op.Pause(e.env)
		if b = e.at(p.Bucket); !lock(b) {
			return p, nil, false
		}
		if e.state.Load() == p.state || e.Place(key).Bucket == p.Bucket {
			return p, b, true
		}
		unlock(b)
	}
	return p, nil, false
}

// unchanged reports whether a bucket has the same version still, and has been that of the key.
func (e *Cache) unchanged(p spot, version uint64) bool {
	return atomic.LoadUint64(&e.words[p.Bucket*e.size]) == version && e.state.Load() == p.state
}

// Hold keeps the number of buckets as it is, and their entries where they are, until Release.
func (r *parts) Hold() {
	r.changing.Lock()
	r.changing.holds++
	r.changing.Unlock()
}

// Release ends a Hold.
func (r *parts) Release() {
	r.changing.Lock()
	r.changing.holds--
	r.changing.Unlock()
}

// Resize adds a bucket, or removes one. It returns false if that cannot be now: a bucket that it
// needs is locked. Then it does not wait, because others would wait for the buckets that it has
// locked by then.
func (e *Cache) Resize(more bool) bool {
	e.changing.Lock()
	defer e.changing.Unlock()
	n := e.Buckets()
	if e.changing.holds > 0 || more && n == e.Most || !more && n <= e.Part {
		return false
	}
	last := n
	if !more {
		last--
	}
	offset, parts := last%e.Part, last/e.Part // that have the offset besides
	for i := range parts {
		if !e.tryLock(e.at(i*e.Part + offset)) {
			for i > 0 {
				i--
				unlock(e.at(i*e.Part + offset))
			}
			return false
		}
	}
	b := e.at(last)
	done := more && atomic.CompareAndSwapUint64(&b[0], removed, 1) || e.tryLock(b)
	switch {
	case done && more:
		e.addLast(last, offset, parts)
	case done:
		e.removeLast(last, offset, parts)
	}
	op.Pause(e.env)
	if done {
		e.change(last, more)
		op.Pause(e.env)
	}
	for i := range parts {
		if done && more { // of a removed bucket they are set
			e.hint(i*e.Part + offset)
		}
		unlock(e.at(i*e.Part + offset))
	}
	op.Pause(e.env)
	switch {
	case !done:
	case more:
		unlock(b)
	default:
		e.setHints(last, hints{})
		atomic.StoreUint64(&e.ghosts[last], 0)
		atomic.StoreUint64(&b[0], removed)
		e.freePage(last)
	}
	return done
}

// change makes the bucket last the one that follows the last one, or the last one.
func (e *Cache) change(last uint64, more bool) {
	n := last
	if more {
		n++
	}
	s := e.state.Load()
	e.state.Store((s>>40+1)<<40 | n/e.Part<<32 | n%e.Part)
}

// addLast moves entries to the new last bucket.
func (e *Cache) addLast(last, offset, parts uint64) {
	for i := range parts {
		b := e.at(i*e.Part + offset)
		for number, at := 0, BucketBegin; at < len(b) && b[at] != 0; {
			if e.owner(b[at], parts+1) != parts {
				at += extent(b[at])
				number++
				continue
			}
			e.accept(last, b[at:at+extent(b[at])], count(b, number))
			takeOut(b, number, at)
		}
	}
	e.hint(last)
}

// removeLast moves the entries of the last bucket to others.
func (e *Cache) removeLast(last, offset, parts uint64) {
	b := e.at(last)
	for number, at := 0, BucketBegin; at < len(b) && b[at] != 0; number++ {
		n := extent(b[at])
		to := e.owner(b[at], parts)*e.Part + offset
		e.accept(to, b[at:at+n], count(b, number))
		e.hint(to)
		at += n
	}
	for i := 1; i < len(b); i++ {
		seqlock.Store(&b[i], 0)
	}
}

// accept puts an entry of another bucket into bucket i, if it is worth its room there.
func (e *Cache) accept(i uint64, entry []uint64, uses uint8) {
	b := e.at(i)
	if !worthRoom(b, len(entry), uses) {
		return
	}
	v := makeRoom(b, len(entry), e.ghosts.of(i))
	for k, w := range entry {
		seqlock.Store(&b[v.at+k], w)
	}
	setCount(b, v.number, uses)
}

// worthRoom reports whether b has room for an entry of so many words, or has an entry that was used
// as little.
func worthRoom(b []uint64, size int, uses uint8) bool {
	number, at, less := 0, BucketBegin, false
	for ; at < len(b) && b[at] != 0; number++ {
		less = less || count(b, number) <= uses
		at += extent(b[at])
	}
	return less || at+size <= len(b) && number < mostEntries
}

// freePage gives the memory of the buckets from i on, which are not there, to the kernel if they
// fill a page. It has their locks meanwhile: otherwise one that a session with an old state has for
// a moment would be locked for ever. If one stays locked the page is not given back this time.
func (e *Cache) freePage(i uint64) {
	n := memory.PageBytes / (8 * e.size)
	if n == 0 || i%n != 0 {
		return
	}
	end := min(e.Most, i+n)
	for k := i; k < end; k++ {
		if v := &e.at(k)[0]; atomic.LoadUint64(v) != removed {
			if !e.tryLock(e.at(k)) {
				return
			}
			atomic.StoreUint64(v, removed)
		}
	}
	op.Pause(e.env)
	memory.Free(e.words[i*e.size : end*e.size])
}
