package dex

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
	"github.com/dmindex/dmindex/pkg/pool"
)

// rowCache is the part of the cache that keeps single entries: of keys that were looked up and
// whose leaves are not worth a frame. Popular keys lie among unpopular ones, so a byte of entries
// saves more READs than a byte of leaves. It is not in the paper.
//
// Entries lie in buckets, by the hash of the key. Each bucket is a few cache lines, of words that
// are loaded and stored atomically:
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
// An invalidated entry keeps its place and its count until others need the place (again). Otherwise
// a key that is looked up and changed often would start from zero after each change.
//
// An entry is valid only while it is what a lookup of the key must answer. This client owns the
// key, so no other client changes its value:
//
//	session that READ it, or called         session that changes it
//	1  reads the eviction clock             a  locks the leaf's frame
//	2  READs the leaf, or calls             b  sees that the bucket is unlocked and has no valid
//	3  locks the bucket                        entry of the key, or invalidates it under the lock
//	4  finds no frame of the leaf, and no   c  changes the leaf in the frame, or, under that lock,
//	   time of it after 1                      in the memory servers
//	5  puts the entry in, and unlocks       d  has written back, records the eviction, and removes
//	                                           the frame from the table (evictionclock.go)
//
// If 3 to 5 was over before b, then b invalidates the entry. Otherwise 3 comes after b looked, so
// after a. If 4 finds nothing, all of d came before 1 by the argument of evictionclock.go, so the
// READ saw the change; or the time of the leaf is after 1. A leaf that is divided or merged has a
// frame too, and its eviction is recorded; the key's new leaf has a frame before it is changed. So
// after b no lookup finds the old value, and before b the change is not answered. What is in the
// memory servers is durable in the log, so a lookup that finds an entry waits for nothing.
//
// When a leaf is evicted, the entries that changed while it had its frame are kept. They are
// written back and durable by then, whichever session did it. They are put in between d's first
// part and its others, while the frame's lock keeps everybody from a. Without that, a popular key
// that changes often would not be kept, because each change invalidates it.
//
// When a range is given its entries are removed, while no session is in an operation on its keys.
type rowCache struct {
	cache *cache
	words []uint64
	size  uint64      // words of a bucket
	most  int         // words of the largest entry that is kept, with its head
	n     uint64      // buckets
	again bool        // invalidated entries keep their place and count
	some  atomic.Bool // there was an entry
	full  atomic.Bool // an entry was evicted for another one
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

	// entryShare is the part of the cache that entries have.
	entryShare = 6
)

// start makes room for entries in at most so many bytes and returns how many it takes.
func (e *rowCache) start(c *cache, bytes int) int {
	e.cache, e.again = c, true
	return e.make(bytes, bucketWords, mostEntryWords)
}

// make is start with buckets of so many words, and entries of at most so many.
func (e *rowCache) make(bytes, size, most int) int {
	e.size, e.most, e.n = uint64(size), most, uint64(bytes/(8*size))
	e.words = make([]uint64, e.n*e.size)
	memory.Huge(e.words)
	return 8 * len(e.words)
}

// bucket is where the entry of key is, if there is one, and what its head looks like but for the
// value's length.
func (e *rowCache) bucket(key []byte) (b []uint64, head uint64) {
	h := hashOf(key)
	at := h >> 32 * e.n >> 32 * e.size
	return e.words[at : at+e.size : at+e.size], 1<<63 | h<<32 | uint64(len(key))
}

// hashOf is a hash of key.
func hashOf(key []byte) uint64 {
	h := uint64(len(key))
	rest := key
	for ; len(rest) >= 8; rest = rest[8:] {
		h = (bits.RotateLeft64(h, 29) ^ binary.LittleEndian.Uint64(rest)) * 0x9E3779B97F4A7C15
	}
	if len(rest) > 0 {
		h = (bits.RotateLeft64(h, 29) ^ tail(rest)) * 0x9E3779B97F4A7C15
	}
	h = (h ^ h>>32) * 0xD6E8FEB86659FD93
	h ^= h >> 32
	return h
}

// tail is b, of less than 8 bytes, as a word.
func tail(b []byte) (w uint64) {
	for i, c := range b {
		w |= uint64(c) << (8 * i)
	}
	return w
}

const (
	// all but the length of the value, and whether that holds
	headMask = ^uint64(0xffff<<16 | stale)
	// it is taken out: its place and count are the next one's
	stale = 1 << 15
)

func wordsOf(n int) int { return (n + 7) / 8 }

// shape is how many words the key of a head takes, and the value.
func shape(head uint64) (key, value int) {
	return wordsOf(keyLen(head)), wordsOf(valueLen(head))
}

func keyLen(head uint64) int   { return int(head & (stale - 1)) }
func valueLen(head uint64) int { return int(head >> 16 & 0xffff) }

// seek is the entry of key, also one that is taken out: its number in the bucket, its first word,
// and its head; 0 if it is not there. Without the lock it may be nonsense; then the version has
// changed.
func seek(b []uint64, want uint64, key []byte) (number, at int, head uint64) {
	for at = bucketBegin; at < len(b); number++ {
		head = atomic.LoadUint64(&b[at])
		k, v := shape(head)
		if head == 0 || at+1+k+v > len(b) || number == mostEntries {
			break
		}
		if head&headMask == want && same(b[at+1:at+1+k], key) {
			return number, at, head
		}
		at += 1 + k + v
	}
	return 0, 0, 0
}

func same(words []uint64, key []byte) bool {
	for i := range words {
		w := atomic.LoadUint64(&words[i])
		if rest := key[8*i:]; len(rest) >= 8 && w != binary.LittleEndian.Uint64(rest) || len(rest) < 8 && w != tail(rest) {
			return false
		}
	}
	return true
}

// find appends the value of key to dst, if its entry is there. It takes no lock.
func (e *rowCache) find(x *dex, key, dst []byte) ([]byte, bool) {
	if !e.some.Load() {
		return dst, false
	}
	b, want := e.bucket(key)
	version := atomic.LoadUint64(&b[0])
	if version&1 != 0 {
		return dst, false
	}
	x.pause()
	number, at, head := seek(b, want, key)
	if head == 0 || head&stale != 0 {
		return dst, false
	}
	x.pause()
	k, _ := shape(head)
	value, n := dst, valueLen(head)
	for i := at + 1 + k; n > 0; i, n = i+1, n-8 {
		w := atomic.LoadUint64(&b[i])
		if n >= 8 {
			value = binary.LittleEndian.AppendUint64(value, w)
			continue
		}
		for j := range n {
			value = append(value, byte(w>>(8*j)))
		}
	}
	x.pause()
	if atomic.LoadUint64(&b[0]) != version {
		return dst, false
	}
	counts := &b[1+number/8]
	if c, shift := atomic.LoadUint64(counts), 8*(number%8); c>>shift&0xff < lfu.Most {
		// else somebody counts another one, and this is not counted
		atomic.CompareAndSwapUint64(counts, c, c+1<<shift)
	}
	return value, true
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
	if e.n == 0 || size > e.most {
		return
	}
	e.some.Store(true)
	b, head := e.bucket(key)
	if !lock(b) {
		return
	}
	x.pause()
	number, at, there := seek(b, head, key)
	if (there == 0 || there&stale != 0) && right() {
		x.pause()
		uses := uint8(1)
		if there != 0 {
			uses += min(lfu.Most-1, count(b, number))
			takeOut(b, number, at)
		}
		number, at, full := makeRoom(b, size)
		if full && !e.full.Load() {
			e.full.Store(true)
		}
		head |= uint64(len(value)) << 16
		atomic.StoreUint64(&b[at], head)
		at = put(b, at+1, key)
		put(b, at, value)
		setCount(b, number, uses)
	}
	unlock(b)
}

// drop takes the entry of key out, whose value is about to change; had: there was one. ok is false
// if somebody has the bucket; try again.
func (e *rowCache) drop(x *dex, key []byte) (had, ok bool) {
	if !e.some.Load() {
		return false, true
	}
	b, want := e.bucket(key)
	version := atomic.LoadUint64(&b[0])
	if version&1 != 0 {
		return false, false
	}
	x.pause()
	if _, _, head := seek(b, want, key); head == 0 || head&stale != 0 {
		return false, atomic.LoadUint64(&b[0]) == version
	}
	if !lock(b) {
		return false, false
	}
	number, at, head := seek(b, want, key)
	switch {
	case head == 0:
	case e.again:
		atomic.StoreUint64(&b[at], head|stale)
	default:
		takeOut(b, number, at)
	}
	unlock(b)
	return head != 0 && head&stale == 0, true
}

// forget takes out what lies in given; again is called when somebody has a bucket.
func (e *rowCache) forget(given *ranges, again func() error) error {
	if !e.some.Load() {
		return nil
	}
	var key []byte
	for i := range int(e.n) {
		b := e.words[uint64(i)*e.size : uint64(i+1)*e.size]
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
			k, v := shape(b[at])
			key = key[:0]
			for _, w := range b[at+1 : at+1+k] {
				key = binary.LittleEndian.AppendUint64(key, w)
			}
			if given.at(key[:keyLen(b[at])]) >= 0 {
				takeOut(b, number, at)
				continue
			}
			at += 1 + k + v
			number++
		}
		unlock(b)
	}
	return nil
}

func lock(b []uint64) bool {
	v := atomic.LoadUint64(&b[0])
	return v&1 == 0 && atomic.CompareAndSwapUint64(&b[0], v, v+1)
}

func unlock(b []uint64) { atomic.AddUint64(&b[0], 1) }

// put writes p from word at on and returns where it ends. Under the lock, as all that follows.
func put(b []uint64, at int, p []byte) int {
	for ; len(p) >= 8; at, p = at+1, p[8:] {
		atomic.StoreUint64(&b[at], binary.LittleEndian.Uint64(p))
	}
	if len(p) > 0 {
		atomic.StoreUint64(&b[at], tail(p))
		at++
	}
	return at
}

func count(b []uint64, number int) uint8 {
	return uint8(atomic.LoadUint64(&b[1+number/8]) >> (8 * (number % 8)))
}

// setCount may undo what a reader counts at the same moment.
func setCount(b []uint64, number int, n uint8) {
	w, shift := &b[1+number/8], 8*(number%8)
	atomic.StoreUint64(w, atomic.LoadUint64(w)&^(0xff<<shift)|uint64(n)<<shift)
}

// makeRoom takes entries out until one of so many words has room, and returns its number and place;
// full: it took any. The least used one goes, of those the oldest. All counts are halved now and
// then: so what was popular once grows old.
func makeRoom(b []uint64, size int) (number, at int, full bool) {
	for {
		least, leastAt, uses := -1, 0, uint8(0)
		for number, at = 0, bucketBegin; at < len(b) && b[at] != 0; number++ {
			if c := count(b, number); least < 0 || c < uses {
				least, leastAt, uses = number, at, c
			}
			k, v := shape(b[at])
			at += 1 + k + v
		}
		if at+size <= len(b) && number < mostEntries {
			return number, at, full
		}
		full = true
		takeOut(b, least, leastAt)
		gone := count(b, mostEntries) + 1
		if gone == entryHalving {
			gone = 0
			for i := range number - 1 {
				setCount(b, i, count(b, i)/2)
			}
		}
		setCount(b, mostEntries, gone)
	}
}

// takeOut takes entry number out, which begins at word at; those behind it move up.
func takeOut(b []uint64, number, at int) {
	k, v := shape(b[at])
	from := at + 1 + k + v
	for ; from < len(b); at, from = at+1, from+1 {
		atomic.StoreUint64(&b[at], b[from])
	}
	for ; at < len(b); at++ {
		atomic.StoreUint64(&b[at], 0)
	}
	for ; number < mostEntries-1; number++ {
		setCount(b, number, count(b, number+1))
	}
	setCount(b, number, 0)
}
