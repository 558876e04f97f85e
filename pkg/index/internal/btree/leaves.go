package btree

import (
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Leaves is the format of a tree's leaves, as far as the tree asks for it: for fences and sibling,
// for how full a leaf is, and for what a merge makes. Operations on pairs, splits among them, are
// the design's. Methods post nothing and keep none of the bytes that they get.
//
// A leaf has the size of an inner node. Like every node it begins with version, sum, kind (0: it is
// a leaf) and flags (package unit), and its dead mark is that of package unit.
//
// Several sessions use the format at once, but for Merge.
type Leaves interface {
	// Open returns the fences and the sibling of the leaf at a, of which b was READ. b may be any
	// bytes. ok is false if they are no leaf at a, or torn. The fences are a part of b.
	Open(a pool.Addr, b []byte) (h fence.Header, ok bool)

	// Verify reports whether b is the leaf at a, whole.
	Verify(a pool.Addr, b []byte) bool

	// Load returns how full the leaf is that Open has opened.
	Load(a pool.Addr, b []byte) Load

	// BuildEmpty makes in b the image of a leaf without pairs, and returns how much of b it takes.
	BuildEmpty(b []byte, a pool.Addr, h *fence.Header) int

	// Merge makes in b the next version of the leaf at a[0], with the pairs that it and its right
	// sibling at a[1] have, and returns how much of b it takes. nodes are the two, locked. It
	// returns 0 if they are no siblings, or do not fit (MayFill). One goroutine at a time calls it.
	Merge(b []byte, a [2]pool.Addr, nodes *[2][]byte) int
}

// HeadedLeaves are leaves whose fences and sibling are a unit of their own.
type HeadedLeaves interface {
	Leaves
	// HeadBytes is how much of a leaf Open looks at, at most.
	HeadBytes() int
}

// Load is how full a leaf is.
type Load struct {
	Pairs int
	Bytes int // that they take, behind the header
}
