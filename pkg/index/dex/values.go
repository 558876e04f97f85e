package dex

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
)

// values is a part of the cache that keeps what lies in blocks (blocks.go), so that a lookup of a
// popular key READs nothing, however long its value is. The paper has no such values.
//
// What is kept are entries (rowcache.go) with larger buckets. In the place of the key is a tag: the
// reference to the block, and the epoch in which this client has the range of the key. So finding a
// value says nothing of the key: whoever looks has found the reference in the key's leaf, and waits
// for what that has to wait for. It is the value of the reference, as no other block than the one
// that was READ has had that reference since. It could have one that is used again, and has the
// same address, length and check of another value:
//
//	who has READ the block                      who takes the reference out of its leaf
//	1  found the reference in a leaf            a  has the lock of the leaf's frame
//	2  READs the block                          b  sees that the bucket, not locked, does not have
//	3  locks the bucket                            the tag, or takes it out under the lock
//	4  sees the same reference in the leaf:     c  changes the leaf
//	   in its frame, whose version stands       d  gives the block up
//	   still, or as an entry's reader does
//	   who has READ the leaf
//	5  puts the value in, and unlocks
//
// The reader is in an operation from 1 on, so the block is nobody else's before 5. If 3 to 5 was
// over before b, then b takes the value out. Else 3 comes after b looked, so after a, and 4 sees
// the frame locked, or what c left there. So when a block is given up, its value is not here. Who
// finds a value in an operation got the reference in that; who is in none (lookupCached) looks at
// the leaf again afterwards. In the next epoch of the range, which other clients may have had
// meanwhile, tags are others.
//
// A change that takes out what was here puts its own value in, as a reader: what is popular stays.
//
// It begins with nothing, and grows when something has no room, to half of the cache, by doubling;
// frames go for it (balance.go). A tag is then in the part that its hash and the number of parts
// say. What was in another one before is not found any more, since the number never falls; it goes
// as what nobody uses.
type values struct {
	live  atomic.Int32 // parts that are used: a power of two, or 0
	parts [valueParts]rowCache
	short atomic.Bool // something had no room
	each  int         // bytes of a part
	bound int         // of all
	size  int         // words of a bucket
	most  int         // words of the largest value, with head and tag
	bytes atomic.Int64
}

const (
	valueParts = balances / 2 // of the steps in which the cache is divided

	// valueTiny is the part that values have of a cache in which nothing moves.
	valueTiny = 8

	// valueRoom is how many of the largest values a bucket has room for.
	valueRoom = 4

	tagBytes = item.ReferenceBytes + 8
)

// tag is a reference and an epoch.
type tag [tagBytes]byte

func (t *tag) set(reference []byte, epoch uint64) {
	copy(t[:], reference)
	binary.LittleEndian.PutUint64(t[item.ReferenceBytes:], epoch)
}

// start prepares for values of at most so many bytes in a cache of cacheBytes, and returns how many
// bytes it takes at once: where nothing moves.
func (v *values) start(cacheBytes, longest int, moves bool) int {
	v.most = 1 + wordsOf(tagBytes) + wordsOf(longest)
	v.size = (bucketBegin + valueRoom*v.most + 7) &^ 7
	v.each, v.bound = max(cacheBytes/balances, 8*v.size), cacheBytes/2
	if moves {
		return 0
	}
	v.each = cacheBytes / valueTiny
	v.grow()
	return int(v.bytes.Load())
}

// part is the one that t is in, if it is anywhere; nil: there is none.
func (v *values) part(t *tag) *rowCache {
	n := uint64(v.live.Load())
	if n == 0 {
		return nil
	}
	r := blocks.Decode(t[:item.ReferenceBytes])
	return &v.parts[lfu.Hash(r.Addr)>>40&(n-1)]
}

// find appends the value of t to dst, if it is here.
func (v *values) find(x *dex, t *tag, dst []byte) ([]byte, bool) {
	p := v.part(t)
	if p == nil {
		return dst, false
	}
	return p.find(x, t[:], dst)
}

// keep puts the value of t in, if it is still right when it has the bucket.
func (v *values) keep(x *dex, t *tag, value []byte, right func() bool) {
	p := v.part(t)
	if p == nil {
		v.short.Store(true)
		return
	}
	p.enter(x, t[:], value, right)
	if p.full.Load() && !v.short.Load() {
		v.short.Store(true)
	}
}

// drop takes the value of t out, to which nothing will refer any more; had: it was here. ok is
// false if somebody has the bucket; try again.
func (v *values) drop(x *dex, t *tag) (had, ok bool) {
	p := v.part(t)
	if p == nil {
		return false, true
	}
	return p.drop(x, t[:])
}

// wants says how many bytes it takes to grow; 0: it does not want to, or may not.
func (v *values) wants() int64 {
	n := int(v.live.Load())
	if !v.short.Load() || max(1, 2*n) > valueParts || max(1, 2*n)*v.each > v.bound {
		return 0
	}
	return int64(max(1, n) * v.each)
}

// grow doubles it.
func (v *values) grow() {
	n := int(v.live.Load())
	for i := n; i < max(1, 2*n); i++ {
		v.bytes.Add(int64(v.parts[i].make(v.each, v.size, v.most)))
	}
	v.live.Store(int32(max(1, 2*n)))
	v.content()
}

// content ends what it wanted, until something has no room again.
func (v *values) content() {
	for i := range v.parts {
		v.parts[i].full.Store(false)
	}
	v.short.Store(false)
}
