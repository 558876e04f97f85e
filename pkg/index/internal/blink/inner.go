package blink

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// An inner node is one unit: it is written whole and its CRC covers all of it. It has n children
// and n-1 separators between them; child i holds the keys from separator i-1 (or the low fence) up
// to separator i (or the high fence).
//
//	offset   size     field
//	0        h        header (header.go), level 1 or more, count = n
//	h        8 n      addresses of the children
//	h+8n     ...      the separators:
//	                  Uint64: 8 (n-1), big-endian like keys
//	                  Bytes: 2 (n-1), where each ends, counted from the end of this array; then
//	                  their bytes, without the prefix that low and high fence have in common (a
//	                  rightmost node has no such prefix)
//
// An inner is a decoded copy, as the index cache keeps it. What a descent needs of uint64 keys
// comes first, in one cache line or two.
type inner struct {
	nodecache.Head
	top       uint64   // Uint64: the high fence
	numbers   []uint64 // Uint64: the separators
	children  []pool.Addr
	hints     []uint32                // of level 1, with a leaf cache: see swizzle.go
	kids      []atomic.Pointer[inner] // of other levels: the cache's copies of the children
	rightmost bool
	// where the parent points here; nil = nowhere. Guarded by the cache's lock
	place     *atomic.Pointer[inner]
	sibling   pool.Addr
	low, high []byte
	memory    int // bytes that the copy takes

	skip     int      // Bytes: the length of the common prefix
	prefixes []uint64 // Bytes: of each separator without the common prefix
	ends     []int32  // Bytes: of each separator in seps
	seps     []byte
}

const childBytes = 8

// unitEnd is where the unit of a header ends: that of an inner node is the whole node. Where b
// makes no sense it is the header's end.
func unitEnd(l *fence.Layout, h *fence.Header, b []byte) int {
	if h.Level == 0 || h.Count == 0 {
		return h.End
	}
	at := h.End + childBytes*h.Count
	if l.Uint64 {
		at += 8 * (h.Count - 1)
	} else {
		at += 2 * (h.Count - 1)
		if h.Count > 1 && at <= len(b) {
			at += int(binary.LittleEndian.Uint16(b[at-2:]))
		}
	}
	if at > len(b) {
		return h.End
	}
	return at
}

// decodeInner decodes b, which may be any bytes; nil if they are no inner node of address a, or
// torn. The node is a copy.
func decodeInner(l *fence.Layout, a pool.Addr, b []byte) *inner {
	var h fence.Header
	if !h.Decode(b, l) || h.Level == 0 || h.Count == 0 {
		return nil
	}
	end := unitEnd(l, &h, b)
	if !unit.Verify(b, end, a, h.Version) || end == h.End {
		return nil
	}
	ends := h.End + childBytes*h.Count
	at := ends + 2*(h.Count-1)
	n := &inner{Head: nodecache.Head{Addr: a, Version: h.Version, Level: h.Level}, rightmost: h.Rightmost, sibling: h.Sibling,
		memory: innerBytes}
	fences := room[byte](n, len(h.Low)+len(h.High))
	n.low, n.high = fences[:len(h.Low):len(h.Low)], fences[len(h.Low):]
	copy(n.low, h.Low)
	copy(n.high, h.High)
	n.children = room[pool.Addr](n, h.Count)
	for i := range n.children {
		n.children[i] = pool.Addr(binary.LittleEndian.Uint64(b[h.End+childBytes*i:]))
	}
	if n.Level > 1 {
		n.kids = room[atomic.Pointer[inner]](n, h.Count)
	}
	if l.Uint64 {
		n.top = binary.BigEndian.Uint64(n.high)
		n.numbers = room[uint64](n, h.Count-1)
		for i := range n.numbers {
			n.numbers[i] = binary.BigEndian.Uint64(b[ends+8*i:])
		}
		return n
	}
	if !n.rightmost {
		n.skip = item.CommonPrefix(n.low, n.high)
	}
	n.ends = room[int32](n, h.Count-1)
	n.prefixes = room[uint64](n, h.Count-1)
	n.seps = room[byte](n, end-at)
	copy(n.seps, b[at:end])
	before := 0
	for i := range n.ends {
		e := int(binary.LittleEndian.Uint16(b[ends+2*i:]))
		if e < before || e > len(n.seps) {
			return nil
		}
		n.ends[i] = int32(e)
		n.prefixes[i] = item.PrefixOf(n.seps[before:e])
		before = e
	}
	return n
}

// addHints gives a copy of level 1, which nobody else knows yet, room for a leaf cache's hints.
func (n *inner) addHints() {
	if n.Level == 1 {
		n.hints = room[uint32](n, len(n.children))
	}
}

// separator is the full separator i, which stands between children i and i+1.
func (n *inner) separator(i int) []byte {
	if n.numbers != nil {
		return binary.BigEndian.AppendUint64(nil, n.numbers[i])
	}
	return append(bytes.Clone(n.low[:n.skip]), n.stored(i)...)
}

// stored is separator i as it is stored, of Bytes keys.
func (n *inner) stored(i int) []byte {
	start := int32(0)
	if i > 0 {
		start = n.ends[i-1]
	}
	return n.seps[start:n.ends[i]]
}

// child is the number of the child that holds key, which must lie in the node's range: how many
// separators are at most key.
func (n *inner) child(l *fence.Layout, key []byte) int {
	if l.Uint64 {
		return countUpTo(n.numbers, binary.BigEndian.Uint64(key))
	}
	return n.search(key, 0)
}

// childBelow is the number of the child that holds the largest keys below key: how many separators
// are below key.
func (n *inner) childBelow(l *fence.Layout, key []byte) int {
	if l.Uint64 {
		k := binary.BigEndian.Uint64(key)
		if k == 0 {
			return 0
		}
		return countUpTo(n.numbers, k-1)
	}
	return n.search(key, -1)
}

// countUpTo is how many of the sorted numbers are at most k. Its only branch is that of the loop,
// whose number of rounds depends on the length alone: nothing is mispredicted.
func countUpTo(numbers []uint64, k uint64) int {
	base, n := 0, len(numbers)
	for n > 0 {
		half := (n + 1) / 2
		next := base
		if numbers[base+half-1] <= k {
			next = base + half
		}
		base = next
		n -= half
	}
	return base
}

// search counts the separators s with compare(s, key) <= most.
func (n *inner) search(key []byte, most int) int {
	// an upper bound of nothing but the common prefix of the fences cannot be; a key outside can
	if len(key) < n.skip {
		return 0
	}
	key = key[n.skip:]
	p := item.PrefixOf(key)
	lo, hi := 0, len(n.ends)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		less := n.prefixes[mid] < p
		if n.prefixes[mid] == p {
			less = bytes.Compare(n.stored(mid), key) <= most
		}
		if less {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// above says whether key lies above the node's range.
func (n *inner) above(key []byte) bool { return n.beyond(key, fence.Holding) }

// innerBytes is what the allocator takes for an inner without its slices: sizes from 256 to 384 are
// in steps of 32.
const innerBytes = (int(unsafe.Sizeof(inner{})) + 31) &^ 31

// room makes a slice of count elements for n and counts what the allocator really takes for it:
// append makes use of all of that.
func room[T any](n *inner, count int) []T {
	s := slices.Grow([]T(nil), count)
	n.memory += cap(s) * int(unsafe.Sizeof(*new(T)))
	return s[:count:count]
}

// innerOf is the copy that a head is of.
func innerOf(h *nodecache.Head) *inner { return (*inner)(unsafe.Pointer(h)) }

// The head is the first field: this does not compile else.
const _ = -unsafe.Offsetof(inner{}.Head)

// inners implements nodecache.Owner.
type inners struct{}

// Bytes implements nodecache.Owner.
func (inners) Bytes(h *nodecache.Head) int { return innerOf(h).memory }

// Evicted implements nodecache.Owner.
func (inners) Evicted(h *nodecache.Head) { innerOf(h).unlink() }

// newCache makes the cache of inner nodes. Nodes are two thirds full.
func newCache(e env.Env, bound, nodeBytes int) *nodecache.Cache {
	return nodecache.New(e, inners{}, bound, nodeBytes*2/3+innerBytes)
}

// DefaultCacheBytes bounds the index cache unless Options say otherwise.
const DefaultCacheBytes = 64 << 20

// draft is an inner node that is being made: its separators are whole, and between children i and
// i+1 stands separator i.
type draft struct {
	low, high []byte
	rightmost bool
	sibling   pool.Addr
	level     uint8
	children  []pool.Addr
	seps      [][]byte
}

// draft copies n so that it can be changed.
func (n *inner) draft() *draft {
	d := &draft{low: n.low, high: n.high, rightmost: n.rightmost, sibling: n.sibling, level: n.Level}
	d.children = append(d.children, n.children...)
	for i := range len(n.children) - 1 {
		d.seps = append(d.seps, n.separator(i))
	}
	return d
}

// insert puts child, which holds the keys from sep on, behind child i.
func (d *draft) insert(i int, sep []byte, child pool.Addr) {
	d.seps = append(d.seps, nil)
	copy(d.seps[i+1:], d.seps[i:])
	d.seps[i] = sep
	d.children = append(d.children, pool.Nil)
	copy(d.children[i+2:], d.children[i+1:])
	d.children[i+1] = child
}

// remove takes child i, which is not the first, and the separator before it away.
func (d *draft) remove(i int) {
	d.seps = append(d.seps[:i-1], d.seps[i:]...)
	d.children = append(d.children[:i], d.children[i+1:]...)
}

// join appends what its right sibling holds.
func (d *draft) join(right *draft) {
	d.seps = append(append(d.seps, right.low), right.seps...)
	d.children = append(d.children, right.children...)
	d.high, d.rightmost, d.sibling = right.high, right.rightmost, right.sibling
}

func (d *draft) prefix() int {
	if d.rightmost {
		return 0
	}
	return item.CommonPrefix(d.low, d.high)
}

// bytes is how large the node will be.
func (d *draft) bytes(l *fence.Layout) int {
	n := fence.RoundUp(fence.HeaderBytes+len(d.low)+len(d.high)) + childBytes*len(d.children)
	if l.Uint64 {
		return n + 8*len(d.seps)
	}
	skip := d.prefix()
	for _, s := range d.seps {
		n += 2 + len(s) - skip
	}
	return n
}

// build makes the image of the node in b, which it must fit, and returns how much of b it takes.
func (d *draft) build(b []byte, l *fence.Layout, a pool.Addr, version uint32) int {
	h := fence.Header{Version: version, Level: d.level, Rightmost: d.rightmost, Count: len(d.children), Low: d.low, High: d.high, Sibling: d.sibling}
	h.Encode(b)
	at := h.End
	for _, c := range d.children {
		binary.LittleEndian.PutUint64(b[at:], uint64(c))
		at += childBytes
	}
	if l.Uint64 {
		for _, s := range d.seps {
			at += copy(b[at:], s)
		}
	} else {
		skip, ends := d.prefix(), at
		at += 2 * len(d.seps)
		heap := at
		for i, s := range d.seps {
			at += copy(b[at:], s[skip:])
			binary.LittleEndian.PutUint16(b[ends+2*i:], uint16(at-heap))
		}
	}
	unit.Seal(b, at, a, version)
	if invariants.Enabled {
		d.check(b, l, a)
	}
	return at
}

// check panics unless b is the image of d and d is in order.
func (d *draft) check(b []byte, l *fence.Layout, a pool.Addr) {
	n := decodeInner(l, a, b)
	invariants.Check(n != nil, "inner node %v does not verify after it was built", a)
	last := d.low
	for i, s := range d.seps {
		invariants.Check(bytes.Equal(n.separator(i), s), "inner node %v: separator %d is %x, not %x", a, i, n.separator(i), s)
		invariants.Check(item.Below(last, s), "inner node %v: separator %x stands behind %x", a, s, last)
		last = s
	}
	invariants.Check(d.rightmost || item.Below(last, d.high), "inner node %v: separator %x reaches the high fence %x", a, last, d.high)
}

// split divides d near the middle, or near its end if the newest child came last, into d and its
// right sibling; separator is the low fence of that. The caller sets the sibling of d.
func (d *draft) split(l *fence.Layout, newLast bool) (right *draft, separator []byte) {
	target := d.bytes(l) / 2
	if newLast {
		target = target * 9 / 5
	}
	at, used := 1, fence.HeaderBytes
	for ; at < len(d.children)-1 && used < target; at++ {
		used += childBytes + len(d.seps[at-1])
		if !l.Uint64 {
			used += 2 - d.prefix()
		}
	}
	// The left part gets a high fence, which may make it too large where nine tenths were wanted;
	// the middle always fits.
	left, right, separator := d.parts(at)
	for ; at > 1 && left.bytes(l) > l.NodeBytes; at-- {
		left, right, separator = d.parts(at - 1)
	}
	*d = *left
	return right, separator
}

// parts are d up to child at, and from it on.
func (d *draft) parts(at int) (left, right *draft, separator []byte) {
	separator = d.seps[at-1]
	left = &draft{low: d.low, high: separator, level: d.level, children: d.children[:at:at], seps: d.seps[: at-1 : at-1]}
	right = &draft{low: separator, high: d.high, rightmost: d.rightmost, sibling: d.sibling, level: d.level,
		children: d.children[at:], seps: d.seps[at:]}
	return left, right, separator
}

func (n *inner) String() string {
	return fmt.Sprintf("inner node %v of level %d, version %#x, %d children", n.Addr, n.Level, n.Version, len(n.children))
}
