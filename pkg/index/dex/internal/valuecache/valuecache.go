// Package valuecache keeps values that lie in blocks, so that a lookup of a popular key READs
// nothing, however long its value is. The paper has no such values.
//
//	entry of the key, in its leaf       Tag                         Cache
//	+-----+-----------+                 +-----------+-------+       +--------+--------+-- ...
//	| key | reference | --------------> | reference | epoch | ----> | part 0 | part 1 |
//	+-----+-----------+                 +-----------+-------+       +--------+--------+-- ...
//	                                                                  buckets of tags and values
//
// They are kept as entries (package rowcache) in larger buckets. The place of the key has a tag:
// the reference to the block, and the epoch in which this client owns the range of the key. So a
// kept value says nothing about a key: a lookup has found the reference in the key's leaf, and
// waits for what that requires. The value belongs to the reference as long as no other block has
// had the same reference since. A reused block could, with the same address, length and checksum of
// another value:
//
//	session that has READ the block             session that removes the reference from its leaf
//	1  found the reference in a leaf            a  locks the leaf's frame
//	2  READs the block                          b  sees that the bucket is unlocked and does not
//	3  locks the bucket                            have the tag, or removes it under the lock
//	4  sees the same reference in the leaf:     c  changes the leaf
//	   in its frame, whose version has not      d  retires the block
//	   changed, or as the reader of an entry
//	   does that has READ the leaf
//	5  puts the value in, and unlocks
//
// The reader is in an operation from 1 on, so the block is not reused before 5. If 3 to 5 was over
// before b, then b removes the value. Otherwise 3 comes after b looked, so after a, and 4 sees the
// frame locked, or what c left there. So when a block is retired its value is not kept. A lookup
// that finds a value in an operation got the reference in the same operation. One without an
// operation (a lookup in the cache alone) finds afterwards that the leaf's frame has not changed
// meanwhile. In the next epoch of the range, which other clients may have owned in between, tags
// differ.
//
// A change that removes a kept value keeps its own one, as a reader does, so popular values stay.
//
// The part starts with no bytes, and doubles when a value finds no room, up to half of the cache.
// Frames are given up for it by the balance. A tag lies in the part that its hash and the number of
// parts say. Values that were in another part before are not found any more, because the number
// never falls; they are evicted as unused.
package valuecache

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/rowcache"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
)

// Cache is a cache of values. One session at a time grows it, or settles what it wants.
type Cache struct {
	live  atomic.Int32 // parts in use: a power of two, or 0
	parts [Parts]rowcache.Cache
	short atomic.Bool // a value found no room
	each  int         // bytes of a part
	bound int         // of all; of the session that grows it
	half  int         // what bound is at first: half of the cache
	size  int         // words of a bucket
	most  int         // words of the largest value, with head and tag
	taken atomic.Int64
	env   env.Env
	hash  item.Hash
}

const (
	// Parts is how many parts there are at most: in half of the cache, which is divided in
	// twice as many steps.
	Parts = 32

	// valueTiny is the share of values in a cache that is not rebalanced.
	valueTiny = 8

	// valueRoom is how many of the largest values a bucket has room for.
	valueRoom = 4

	tagBytes = item.ReferenceBytes + 8
)

// Tag is a reference and an epoch.
type Tag [tagBytes]byte

// Set makes t the tag of a reference, of a key whose range was taken in an epoch.
func (t *Tag) Set(reference []byte, epoch uint64) {
	copy(t[:], reference)
	binary.LittleEndian.PutUint64(t[item.ReferenceBytes:], epoch)
}

// Start prepares for values of at most so many bytes in a cache of cacheBytes. It returns the bytes
// that it takes at once, in a cache that is not rebalanced.
func (v *Cache) Start(e env.Env, hash item.Hash, cacheBytes, longest int, moves bool) int {
	v.env, v.hash = e, hash
	v.most = 1 + rowcache.WordsOf(tagBytes) + rowcache.WordsOf(longest)
	v.size = (rowcache.BucketBegin + valueRoom*v.most + 7) &^ 7
	v.each, v.half = max(cacheBytes/(2*Parts), v.bucketBytes()), cacheBytes/2
	v.bound = v.half
	if moves {
		return 0
	}
	if v.each = cacheBytes / valueTiny; v.each >= v.bucketBytes() {
		v.Grow()
	}
	return int(v.taken.Load())
}

// bucketBytes is what a bucket takes, with its hints.
func (v *Cache) bucketBytes() int { return 8 * (v.size + rowcache.HintWords) }

// part returns the part that would have t; nil = there is none.
func (v *Cache) part(t *Tag) *rowcache.Cache {
	n := uint64(v.live.Load())
	if n == 0 {
		return nil
	}
	r := blocks.Decode(t[:item.ReferenceBytes])
	return &v.parts[lfu.Hash(r.Addr)>>40&(n-1)]
}

// Get appends the value of t to dst, if it is kept.
func (v *Cache) Get(t *Tag, dst []byte) ([]byte, bool) {
	p := v.part(t)
	if p == nil {
		return dst, false
	}
	return p.Get(t[:], dst)
}

// Put inserts the value of t, if valid still returns true when the bucket is locked.
func (v *Cache) Put(t *Tag, value []byte, valid func() bool) {
	p := v.part(t)
	if p == nil {
		v.short.Store(true)
		return
	}
	p.Put(t[:], value, valid)
	if p.LacksRoom() && !v.short.Load() {
		v.short.Store(true)
	}
}

// Drop removes the value of t, to which nothing will refer any more. had reports that it was kept.
// ok is false if the bucket is locked; try again.
func (v *Cache) Drop(t *Tag) (had, ok bool) {
	p := v.part(t)
	if p == nil {
		return false, true
	}
	return p.Drop(t[:])
}

// Bytes is what the parts take.
func (v *Cache) Bytes() int64 { return v.taken.Load() }

// Wants returns the bytes that it needs to grow; 0 if it need not, or may not.
func (v *Cache) Wants() int64 {
	n := int(v.live.Load())
	if !v.short.Load() || max(1, 2*n) > Parts || max(1, 2*n)*v.each > v.bound {
		return 0
	}
	return int64(max(1, n) * v.each)
}

// Grow doubles it.
func (v *Cache) Grow() {
	n := int(v.live.Load())
	for i := n; i < max(1, 2*n); i++ {
		each := uint64(v.each / v.bucketBytes())
		room := rowcache.Room{Part: each, First: each, Most: each}
		v.parts[i].Make(v.env, v.hash, room, v.size, v.most)
		v.taken.Add(room.Bytes(v.size))
	}
	v.live.Store(int32(max(1, 2*n)))
	v.content()
}

// Settle makes the bytes that it has the bound: frames cannot give what it needs to grow.
func (v *Cache) Settle() {
	v.bound = int(v.live.Load()) * v.each
	v.content()
}

// Settled reports whether Settle has bounded it.
func (v *Cache) Settled() bool { return v.bound < v.half }

// Retry takes Settle back.
func (v *Cache) Retry() { v.bound = v.half }

// content clears the wish to grow, until a value finds no room again.
func (v *Cache) content() {
	for i := range v.parts {
		v.parts[i].RoomAgain()
	}
	v.short.Store(false)
}
