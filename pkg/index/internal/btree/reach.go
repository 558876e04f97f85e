package btree

import (
	"encoding/binary"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

// How far a scan reaches. The leaves that it will use are READ together; one too many is a READ for
// nothing, one too few a round trip more. A scan of some pairs uses what its first leaf has of
// them, and then leaves as full as those that scans have met before. How much of the first leaf
// lies before a scan its cursor says, and the separators on both sides of the leaf, if keys lie
// evenly in so small a range: numbers do, and what is spread by hashing. Else it is wrong by as
// much as a half is, which is what is assumed where nothing is known.

// A session that has met few leaves shares what it knows with others of its client. Else short
// scans of many sessions would go by a guess for long. Later it would be in the others' way.

const (
	part      = 256 // of a leaf's range
	perLeafIn = 16  // parts of a pair, in which perLeaf counts
	perLeafOf = 8   // leaves make up perLeaf, about
	fewLeaves = 2 * perLeafOf
	guess     = 16 * perLeafIn // of perLeaf, where none was met
)

// leavesFrom is how many leaves a scan of limit pairs is likely to use from child i of n on.
func (s *Session) leavesFrom(n *inner, i int, cursor []byte, at fence.Side, limit int) int {
	s.adoptKnown()
	lies := n.ahead(s.Lay, i, cursor, at)
	pairs := perLeafIn * limit
	first := s.perLeaf * lies / part
	if pairs <= first {
		return 1
	}
	return 1 + (pairs-first+s.perLeaf-1)/s.perLeaf
}

// countPairs notes that a scan has found so many pairs in a leaf.
func (s *Session) countPairs(pairs int) {
	few := s.adoptKnown()
	s.perLeaf = max(perLeafIn, s.perLeaf+(perLeafIn*pairs-s.perLeaf)/perLeafOf)
	if few {
		s.leavesMet++
		s.t.perLeaf.Store(int64(s.perLeaf))
	}
}

// adoptKnown takes over what other sessions know, if this one has met few leaves.
func (s *Session) adoptKnown() (few bool) {
	if s.leavesMet == fewLeaves {
		return false
	}
	if known := s.t.perLeaf.Load(); known > 0 {
		s.perLeaf = int(known)
	}
	return true
}

// ahead is which part of the range of child i lies from cursor on, or, if at is ending, below it.
func (n *inner) ahead(l *fence.Layout, i int, cursor []byte, at fence.Side) int {
	if at == fence.Ending && len(cursor) == 0 {
		return part
	}
	low, ok := n.bound(l, i)
	high, known := n.bound(l, i+1)
	if !ok || !known || high <= low {
		return part / 2
	}
	key := min(max(n.number(l, cursor), low), high)
	// Both have at most 56 bits, so that the product has no more than 64.
	shift := max(0, bits.Len64(high-low)-56)
	below := int((key - low) >> shift * part / ((high - low) >> shift))
	if at == fence.Ending {
		return below
	}
	return part - below
}

// bound is a number for the lower end of child i of n; behind the last child it is that of the
// upper end of n. Numbers are in the order of the keys. ok is false if there is no end.
func (n *inner) bound(l *fence.Layout, i int) (b uint64, ok bool) {
	switch {
	case i == 0:
		return n.number(l, n.low), true
	case i == len(n.children):
		return n.number(l, n.high), !n.rightmost
	case l.Uint64:
		return n.numbers[i-1], true
	}
	return n.prefixes[i-1], true
}

// number is the number of key.
func (n *inner) number(l *fence.Layout, key []byte) uint64 {
	if l.Uint64 {
		return binary.BigEndian.Uint64(key)
	}
	if len(key) < n.skip {
		return 0
	}
	return item.PrefixOf(key[n.skip:])
}
