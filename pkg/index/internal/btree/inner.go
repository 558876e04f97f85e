package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/pool"
)

// An inner node is one unit: it is written whole and its sum covers all of it. It has n children
// and n-1 separators between them; child i holds the keys from separator i-1 (or the low fence) up
// to separator i (or the high fence).
//
//	offset   size     field
//	0        h        header (package fence), level 1 or more, count = n
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
	n := new(inner)
	if !n.decode(l, a, b) {
		return nil
	}
	// others read a copy without a lock: nobody appends to what it has
	n.children, n.kids, n.numbers = slices.Clip(n.children), slices.Clip(n.kids), slices.Clip(n.numbers)
	n.ends, n.prefixes, n.seps = slices.Clip(n.ends), slices.Clip(n.prefixes), slices.Clip(n.seps)
	return n
}

// decode is decodeInner in an inner that nobody else knows, whose slices are used again. It reports
// whether n is the node; else n is of no use.
func (n *inner) decode(l *fence.Layout, a pool.Addr, b []byte) bool {
	var h fence.Header
	if !h.Decode(b, l) || h.Level == 0 || h.Count == 0 {
		return false
	}
	end := unitEnd(l, &h, b)
	if !l.Verify(b, end, a, h.Version) || end == h.End {
		return false
	}
	ends := h.End + childBytes*h.Count
	at := ends + 2*(h.Count-1)
	n.Head = nodecache.Head{Addr: a, Version: h.Version}
	n.rightmost, n.sibling, n.memory, n.skip = h.Rightmost, h.Sibling, innerBytes, 0
	n.hints, n.kids, n.place = nil, nil, nil
	n.SetLevel(h.Level)
	fences := room[byte](n, nil, len(h.Low)+len(h.High))
	n.low, n.high = fences[:len(h.Low):len(h.Low)], fences[len(h.Low):]
	copy(n.low, h.Low)
	copy(n.high, h.High)
	n.children = room(n, n.children, h.Count)
	for i := range n.children {
		n.children[i] = pool.Addr(binary.LittleEndian.Uint64(b[h.End+childBytes*i:]))
	}
	if n.Level() > 1 {
		n.kids = room(n, n.kids, h.Count)
	}
	if l.Uint64 {
		n.top = binary.BigEndian.Uint64(n.high)
		n.numbers = room(n, n.numbers, h.Count-1)
		for i := range n.numbers {
			n.numbers[i] = binary.BigEndian.Uint64(b[ends+8*i:])
		}
		return true
	}
	if !n.rightmost {
		n.skip = item.CommonPrefix(n.low, n.high)
	}
	n.ends = room(n, n.ends, h.Count-1)
	n.prefixes = room(n, n.prefixes, h.Count-1)
	n.seps = room(n, n.seps, end-at)
	copy(n.seps, b[at:end])
	before := 0
	for i := range n.ends {
		e := int(binary.LittleEndian.Uint16(b[ends+2*i:]))
		if e < before || e > len(n.seps) {
			return false
		}
		n.ends[i] = int32(e)
		n.prefixes[i] = item.PrefixOf(n.seps[before:e])
		before = e
	}
	return true
}

// addHints gives a copy of level 1, which nobody else knows yet, room for a leaf cache's hints.
func (n *inner) addHints() {
	if n.Level() == 1 {
		n.hints = room(n, n.hints, len(n.children))
	}
}

// separator is the full separator i, which stands between children i and i+1.
func (n *inner) separator(i int) []byte { return n.appendSeparator(nil, i) }

// appendSeparator appends separator i to b.
func (n *inner) appendSeparator(b []byte, i int) []byte {
	if n.numbers != nil {
		return binary.BigEndian.AppendUint64(b, n.numbers[i])
	}
	stored := n.stored(i)
	return append(append(slices.Grow(b, n.skip+len(stored)), n.low[:n.skip]...), stored...)
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

// above reports whether key lies above the node's range.
func (n *inner) above(key []byte) bool { return n.beyond(key, fence.Holding) }

// innerBytes is what the allocator takes for an inner without its slices: sizes from 256 to 384 are
// in steps of 32.
const innerBytes = (int(unsafe.Sizeof(inner{})) + 31) &^ 31

// room makes s, which n had before, or nil, a slice of count elements for n, and counts what the
// allocator really takes for it: append makes use of all of that.
func room[T any](n *inner, s []T, count int) []T {
	s = slices.Grow(s[:0], count)
	n.memory += cap(s) * int(unsafe.Sizeof(*new(T)))
	return s[:count]
}

// innerOf is the copy that a head is of.
func innerOf(h *nodecache.Head) *inner { return (*inner)(unsafe.Pointer(h)) }

// The head is the first field: this does not compile else.
const _ = -unsafe.Offsetof(inner{}.Head)

func (n *inner) String() string {
	return fmt.Sprintf("inner node %v of level %d, version %#x, %d children", n.Addr, n.Level(), n.Version, len(n.children))
}
