package dex

import (
	"math"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/seqlock"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// rowParts says in which bucket the entry of a key is. The number of buckets changes, by one at a
// time (entryshare.go), and all buckets have about as many keys.
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
// Who looks at all buckets, one after the other, holds their number (hold).
type rowParts struct {
	entryRoom
	owners []uint8
	// the whole parts (bits 32 to 39), the buckets of the next part (0 to 31), and a number that
	// each change increments
	state  atomic.Uint64
	hash   rowHash
	ghosts ghosts
	env    env.Env

	changing struct {
		env.Mutex
		holds int
	}
}

// spot is where the entry of a key is by a state, and what its head looks like but for the value's
// length.
type spot struct{ bucket, head, state uint64 }

const (
	entrySlots = 1 << 10
	mostParts  = 1<<8 - 1
	removed    = math.MaxUint64 // the version of a bucket that is not there
	// how often a bucket is locked again whose key has another one by then
	placeTries = 8
)

// entryRoom is how many buckets a part has, which is the least number of them, and how many there
// are at first and at most.
type entryRoom struct{ part, first, most uint64 }

// moves reports whether the number changes.
func (r entryRoom) moves() bool { return r.most > r.part }

// taken is how many bytes it takes at first, with buckets of so many words.
func (r entryRoom) taken(size int) int64 {
	n := 8 * (r.first*uint64(size) + hintWords*r.most)
	if r.moves() {
		n += 8 * r.most // ghosts
	}
	return int64(n)
}

func (r *rowParts) start(in env.Env, room entryRoom) {
	r.entryRoom, r.env, r.hash = room, in, rowHashOf(siphash.Key{})
	if r.part == 0 {
		return
	}
	r.changing.Mutex = in.NewMutex()
	r.state.Store(r.first/r.part<<32 | r.first%r.part)
	if r.owners = sharedOwners; r.most > sharedParts*r.part {
		r.owners = ownersOf(int((r.most + r.part - 1) / r.part))
	}
	if r.moves() {
		r.ghosts = make(ghosts, r.most)
	}
}

// sharedOwners is the table of owners of all caches of this process: for fewer parts it is the
// beginning of the one for more. So it has no share in the bytes of any of them. What is rounded
// down makes twice as many parts as there are least shares in the most at the outside.
var sharedOwners = ownersOf(sharedParts)

const sharedParts = 2 * leastEntryShare / mostEntryShare

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

// empty reports whether there are no buckets at all.
func (r *rowParts) empty() bool { return r.part == 0 }

// buckets is how many there are.
func (r *rowParts) buckets() uint64 {
	s := r.state.Load()
	return s>>32&mostParts*r.part + s&math.MaxUint32
}

// place is where the entry of key is.
func (r *rowParts) place(key []byte) spot { return r.placeOf(r.hash.of(key), len(key)) }

// placeOf is place for a key of so many bytes with a hash.
func (r *rowParts) placeOf(h uint64, length int) spot {
	s := r.state.Load()
	offset, parts := h>>32*r.part>>32, s>>32&mostParts
	if offset < s&math.MaxUint32 {
		parts++
	}
	owner := uint64(r.owners[parts*entrySlots+h%entrySlots])
	return spot{owner*r.part + offset, 1<<63 | h<<32 | uint64(length), s}
}

// owner is the part that has the entry with this head, if so many have one.
func (r *rowParts) owner(head, parts uint64) uint64 {
	return uint64(r.owners[parts*entrySlots+head>>32%entrySlots])
}

// acquire locks the bucket of key, if nobody has it.
func (e *rowCache) acquire(key []byte) (p spot, b []uint64, ok bool) {
	for range placeTries {
		p = e.place(key)
		op.Pause(e.env)
		if b = e.at(p.bucket); !lock(b) {
			return p, nil, false
		}
		if e.state.Load() == p.state || e.place(key).bucket == p.bucket {
			return p, b, true
		}
		unlock(b)
	}
	return p, nil, false
}

// unchanged reports whether a bucket has the same version still, and has been that of the key.
func (e *rowCache) unchanged(p spot, version uint64) bool {
	return atomic.LoadUint64(&e.words[p.bucket*e.size]) == version && e.state.Load() == p.state
}

// hold keeps the number of buckets as it is, and their entries where they are, until release.
func (r *rowParts) hold() {
	r.changing.Lock()
	r.changing.holds++
	r.changing.Unlock()
}

func (r *rowParts) release() {
	r.changing.Lock()
	r.changing.holds--
	r.changing.Unlock()
}

// resize adds a bucket, or removes one. It returns false if that cannot be now: a bucket that it
// needs is locked. Then it does not wait, because others would wait for the buckets that it has
// locked by then.
func (e *rowCache) resize(x *dex, more bool) bool {
	e.changing.Lock()
	defer e.changing.Unlock()
	n := e.buckets()
	if e.changing.holds > 0 || more && n == e.most || !more && n <= e.part {
		return false
	}
	last := n
	if !more {
		last--
	}
	offset, parts := last%e.part, last/e.part // that have the offset besides
	for i := range parts {
		if !x.tryBucket(e.at(i*e.part + offset)) {
			for i > 0 {
				i--
				unlock(e.at(i*e.part + offset))
			}
			return false
		}
	}
	b := e.at(last)
	done := more && atomic.CompareAndSwapUint64(&b[0], removed, 1) || x.tryBucket(b)
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
			e.hint(i*e.part + offset)
		}
		unlock(e.at(i*e.part + offset))
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
		e.freePage(x, last)
	}
	return done
}

// change makes the bucket last the one that follows the last one, or the last one.
func (e *rowCache) change(last uint64, more bool) {
	n := last
	if more {
		n++
	}
	s := e.state.Load()
	e.state.Store((s>>40+1)<<40 | n/e.part<<32 | n%e.part)
}

// addLast moves entries to the new last bucket.
func (e *rowCache) addLast(last, offset, parts uint64) {
	for i := range parts {
		b := e.at(i*e.part + offset)
		for number, at := 0, bucketBegin; at < len(b) && b[at] != 0; {
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
func (e *rowCache) removeLast(last, offset, parts uint64) {
	b := e.at(last)
	for number, at := 0, bucketBegin; at < len(b) && b[at] != 0; number++ {
		n := extent(b[at])
		to := e.owner(b[at], parts)*e.part + offset
		e.accept(to, b[at:at+n], count(b, number))
		e.hint(to)
		at += n
	}
	for i := 1; i < len(b); i++ {
		seqlock.Store(&b[i], 0)
	}
}

// accept puts an entry of another bucket into bucket i, if it is worth its room there.
func (e *rowCache) accept(i uint64, entry []uint64, uses uint8) {
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
	number, at, less := 0, bucketBegin, false
	for ; at < len(b) && b[at] != 0; number++ {
		less = less || count(b, number) <= uses
		at += extent(b[at])
	}
	return less || at+size <= len(b) && number < mostEntries
}

// freePage gives the memory of the buckets from i on, which are not there, to the kernel if they
// fill a page. It has their locks meanwhile: otherwise one that a session with an old state has for
// a moment would be locked for ever. If one stays locked the page is not given back this time.
func (e *rowCache) freePage(x *dex, i uint64) {
	n := pageBytes / (8 * e.size)
	if n == 0 || i%n != 0 {
		return
	}
	end := min(e.most, i+n)
	for k := i; k < end; k++ {
		if v := &e.at(k)[0]; atomic.LoadUint64(v) != removed {
			if !x.tryBucket(e.at(k)) {
				return
			}
			atomic.StoreUint64(v, removed)
		}
	}
	op.Pause(e.env)
	memory.Free(e.words[i*e.size : end*e.size])
}
