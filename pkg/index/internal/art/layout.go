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
	// LeafBytes is how much to READ of each leaf; 0 = what its slot says. Where all are READ alike
	// the code of a leaf's slot is used for its place (WordWithPlace)
	LeafBytes int
	// LoneLeaves: a leaf that is left alone in a node stays there. Else it takes the node's place,
	// and its word comes back into a slot where it was before (Fork). With them no word does, so a
	// swap from a word that was seen shows that nothing has changed there since
	LoneLeaves bool
}

// LeafBytesOf is how much to READ of the leaf of w.
func (l *Layout) LeafBytesOf(w Slot) int {
	if l.LeafBytes > 0 {
		return l.LeafBytes
	}
	return w.LeafBytes()
}

// WordWithPlace is the word w of a leaf in a slot behind whose byte the leaf's place goes on with
// rest. Where all leaves are READ alike its code is the upper seven bits of the first of these
// bytes, 0 if there is none. They are in the word, so they are never older than it, and they say of
// most keys below the place that they are: such a key belongs to the leaf before. All that hangs a
// leaf into a slot of another depth makes them anew.
func (l *Layout) WordWithPlace(w Slot, rest []byte) Slot {
	if l.LeafBytes == 0 || !w.Leaf() {
		return w
	}
	return w&^codeMask | Slot(hiddenCode(rest))<<48
}

// hang is the word w in the slot of a place in a node whose prefix ends at end.
func (l *Layout) hang(w Slot, place []byte, end int) Slot {
	return l.WordWithPlace(w.WithKey(branchKey(Branch(place, end))), suffix(place, end+1))
}

// inPlaceOf is the word w of a leaf in the slot where one with the same place hangs.
func (l *Layout) inPlaceOf(w, before Slot) Slot {
	w = w.Clean().WithKey(before.Key())
	if l.LeafBytes == 0 {
		return w
	}
	return w&^codeMask | before&codeMask
}

// isAbove reports whether w says that its leaf's place is above a key that goes on with rest behind
// the byte of the slot.
func (l *Layout) isAbove(w Slot, rest []byte) bool {
	return l.LeafBytes > 0 && w.Code() > hiddenCode(rest)
}

// hiddenCode is what of rest a code has room for. It is no smaller for what is above rest.
func hiddenCode(rest []byte) uint8 {
	if len(rest) == 0 {
		return 0
	}
	return rest[0] >> 1
}

// suffix is what a key has from a byte on.
func suffix(key []byte, at int) []byte { return key[min(at, len(key)):] }

// Damaged reports whether s says of a child what no client says: memory was damaged, or a program
// wrote what it must not. Slots have no sum; what they lead to has. end: s is an end slot, which
// leads to leaves only. What a slot of an inner node leads to is asked besides (Header.Under).
func (l *Layout) Damaged(s Slot, end bool) bool {
	return s.Inner() && (end || NodeType(s.Code()) > Direct) || s.Leaf() && s.Code() > l.MostLeaf && l.LeafBytes == 0
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
