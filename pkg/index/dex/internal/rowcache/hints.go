package rowcache

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/internal/op"
)

// hints say which entries a bucket may have (a Bloom filter): in each word a bit of each entry's
// hash. The bits of an entry are set before it is checked that it may be put in, and cleared only
// after it has gone, under the bucket's lock (rowcache.go).
type hints struct{ first, second uint64 }

// HintWords is how many words there are of a bucket. With 20 entries one would tell 73 in a hundred
// keys without an entry, two tell 93: 1-(1-(63/64)^20)^HintWords.
const HintWords = 2

// hintOf is the hints of an entry with this head.
func hintOf(head uint64) hints { return hints{1 << (head >> 52 & 63), 1 << (head >> 42 & 63)} }

func (h hints) or(o hints) hints      { return hints{h.first | o.first, h.second | o.second} }
func (h hints) and(o hints) hints     { return hints{h.first & o.first, h.second & o.second} }
func (h hints) without(o hints) hints { return hints{h.first &^ o.first, h.second &^ o.second} }

// lacksAt reports whether the bucket of a key has no entry of it, and none is about to be put in of
// a leaf that had no frame when this began. It looks at nothing but the hints. The two words need
// not be of one moment: an entry that is there has both bits all the time, and one that is about to
// be has them before it is checked that the leaf has no frame. It is false if the place was another
// one meanwhile.
func (e *Cache) lacksAt(p spot) bool {
	op.Pause(e.env) // the place may change
	has, one := &e.hints[p.Bucket], hintOf(p.head)
	if atomic.LoadUint64(&has.first)&one.first != 0 && atomic.LoadUint64(&has.second)&one.second != 0 {
		return false
	}
	op.Pause(e.env)
	return e.state.Load() == p.state
}

// Lacks reports whether the hints say that key has no entry, and none is about to be put in of a
// leaf that had no frame when this began.
func (e *Cache) Lacks(key []byte) bool { return e.lacksAt(e.Place(key)) }

// LacksNumber is Lacks for a key of one word.
func (e *Cache) LacksNumber(word uint64) bool {
	return e.lacksAt(e.placeOf(e.hash.OfNumber(word), 8))
}

// hint makes the hints of bucket i those of its entries. Under its lock.
func (e *Cache) hint(i uint64) {
	b, has := e.at(i), hints{}
	for at := BucketBegin; at < len(b) && b[at] != 0; at += extent(b[at]) {
		has = has.or(hintOf(b[at]))
	}
	e.setHints(i, has)
}

// setHints makes the hints of bucket i these. Under its lock. The stores are atomic, not those of
// package seqlock: who sets a hint looks for a frame afterwards, and others must see the hint by
// then. Those that are set already were seen before the bucket's last holder unlocked it.
func (e *Cache) setHints(i uint64, has hints) {
	h := &e.hints[i]
	if h.first != has.first {
		atomic.StoreUint64(&h.first, has.first)
	}
	if h.second != has.second {
		atomic.StoreUint64(&h.second, has.second)
	}
}
