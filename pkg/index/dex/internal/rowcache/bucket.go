package rowcache

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/seqlock"
)

// A bucket of entries: rowcache.go has what its words mean.

const (
	// all but the length of the value, and its state
	headMask = ^uint64(0xffff<<16 | stale)
	// it is taken out: its place and count are the next one's
	stale = 1 << 15
)

// WordsOf is how many words n bytes take.
func WordsOf(n int) int { return (n + 7) / 8 }

// shape is how many words the key of a head takes, and the value.
func shape(head uint64) (key, value int) {
	return WordsOf(keyLen(head)), WordsOf(valueLen(head))
}

// extent is how many words the entry of a head takes.
func extent(head uint64) int {
	k, v := shape(head)
	return 1 + k + v
}

func keyLen(head uint64) int   { return int(head & (stale - 1)) }
func valueLen(head uint64) int { return int(head >> 16 & 0xffff) }

// seek is the entry of key, also one that is taken out: its number in the bucket, its first word,
// and its head; 0 if it is not there. Without the lock it may be nonsense; then the version has
// changed.
func seek(b []uint64, want uint64, key []byte) (number, at int, head uint64) {
	for at = BucketBegin; at < len(b); number++ {
		head = atomic.LoadUint64(&b[at])
		n := extent(head)
		if head == 0 || at+n > len(b) || number == mostEntries {
			break
		}
		if head&headMask == want && same(b[at+1:at+1+WordsOf(len(key))], key) {
			return number, at, head
		}
		at += n
	}
	return 0, 0, 0
}

func same(words []uint64, key []byte) bool {
	for i := range words {
		w := atomic.LoadUint64(&words[i])
		if rest := key[8*i:]; len(rest) >= 8 && w != binary.LittleEndian.Uint64(rest) || len(rest) < 8 && w != item.Word(rest) {
			return false
		}
	}
	return true
}

// valueAt appends the value of the entry at word at to dst.
func valueAt(b []uint64, at int, head uint64, dst []byte) []byte {
	k, _ := shape(head)
	for i, n := at+1+k, valueLen(head); n > 0; i, n = i+1, n-8 {
		w := atomic.LoadUint64(&b[i])
		if n >= 8 {
			dst = binary.LittleEndian.AppendUint64(dst, w)
			continue
		}
		for j := range n {
			dst = append(dst, byte(w>>(8*j)))
		}
	}
	return dst
}

// keyAt appends the key of the entry at word at to dst.
func keyAt(b []uint64, at int, dst []byte) []byte {
	k, _ := shape(b[at])
	for _, w := range b[at+1 : at+1+k] {
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	return dst[:len(dst)-8*k+keyLen(b[at])]
}

func lock(b []uint64) bool {
	v := atomic.LoadUint64(&b[0])
	return v&1 == 0 && atomic.CompareAndSwapUint64(&b[0], v, v+1)
}

func unlock(b []uint64) { atomic.AddUint64(&b[0], 1) }

// put writes p from word at on and returns where it ends. Under the lock, as all that follows.
func put(b []uint64, at int, p []byte) int {
	for ; len(p) >= 8; at, p = at+1, p[8:] {
		seqlock.Store(&b[at], binary.LittleEndian.Uint64(p))
	}
	if len(p) > 0 {
		seqlock.Store(&b[at], item.Word(p))
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
	seqlock.Store(w, atomic.LoadUint64(w)&^(0xff<<shift)|uint64(n)<<shift)
}

// vacancy is where an entry has room in a bucket.
type vacancy struct {
	number, at int
	took       bool  // entries were taken out for it
	hints      hints // of the others
}

// makeRoom takes entries out until one of so many words has room, which an empty bucket has. The
// least used one goes, of those the oldest. All counts are halved now and then: so what was popular
// once grows old.
func makeRoom(b []uint64, size int, ghosts *uint64) (v vacancy) {
	for {
		least, leastAt, uses := -1, 0, uint8(0)
		number, at, once, twice := 0, BucketBegin, hints{}, hints{}
		for ; at < len(b) && b[at] != 0; number++ {
			head := b[at]
			if c := count(b, number); least < 0 || c < uses {
				least, leastAt, uses = number, at, c
			}
			h := hintOf(head)
			twice = twice.or(once.and(h))
			once = once.or(h)
			at += extent(head)
		}
		if at+size <= len(b) && number < mostEntries {
			return vacancy{number, at, v.took, once}
		}
		v.took = true
		once = once.without(hintOf(b[leastAt])).or(twice)
		haunt(ghosts, b[leastAt])
		at -= extent(b[leastAt])
		number--
		takeOut(b, least, leastAt)
		gone := count(b, mostEntries) + 1
		if gone == entryHalving {
			gone = 0
			for i := range number {
				setCount(b, i, count(b, i)/2)
			}
		}
		setCount(b, mostEntries, gone)
		if at+size <= len(b) {
			return vacancy{number, at, true, once}
		}
	}
}

// takeOut takes entry number out, which begins at word at; those behind it move up, with their
// counts.
func takeOut(b []uint64, number, at int) {
	from := at + extent(b[at])
	for ; from < len(b); at, from = at+1, from+1 {
		seqlock.Store(&b[at], b[from])
	}
	for ; at < len(b); at++ {
		seqlock.Store(&b[at], 0)
	}
	gone := count(b, mostEntries)
	for i := number / 8; i < BucketBegin-1; i++ {
		w, next := atomic.LoadUint64(&b[1+i]), uint64(0)
		if i < BucketBegin-2 {
			next = atomic.LoadUint64(&b[2+i])
		}
		stay := uint64(1)<<(8*max(0, number-8*i)) - 1
		seqlock.Store(&b[1+i], w&stay|w>>8&^stay|next<<56)
	}
	setCount(b, mostEntries-1, 0)
	setCount(b, mostEntries, gone)
}
