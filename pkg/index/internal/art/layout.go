package art

import "github.com/dmindex/dmindex/pkg/sum"

// Layout is what the inner nodes of an index depend on besides what they say of themselves.
type Layout struct {
	// Ends: slot 0 of each inner node is for the key that ends with the node's prefix; where no key
	// is a prefix of another one there is none
	Ends     bool
	MostLeaf uint8 // code of the largest leaf
	// Sums is of heads; nil until the index has a secret
	Sums *sum.Key
}

// Damaged reports whether s says of a child what no client says: memory was damaged, or a program
// wrote what it must not. Slots have no sum; what they lead to has. end: s is an end slot, which
// leads to leaves only. What a slot of an inner node leads to is asked besides (Header.Under).
func (l *Layout) Damaged(s Slot, end bool) bool {
	return s.Inner() && (end || NodeType(s.Code()) > Direct) || s.Leaf() && s.Code() > l.MostLeaf
}

// Base is the first slot that is not the end slot.
func (l *Layout) Base() int {
	if l.Ends {
		return 1
	}
	return 0
}

// EndBranch is the branch of a key that ends with a node's prefix.
const EndBranch = -1

// Branch is where key goes on from a node whose prefix ends at depth: the next byte, or EndBranch.
func Branch(key []byte, depth int) int {
	if depth >= len(key) {
		return EndBranch
	}
	return int(key[depth])
}

// branchKey is the partial key of a branch.
func branchKey(b int) byte {
	if b == EndBranch {
		return 0
	}
	return byte(b)
}
