package art

// NodeType is the type of an inner node: how many slots it has.
type NodeType uint8

// shapes are the types. Each fills the lines of 64 bytes that it takes, since nodes are allocated
// in these. Types count from 1. The last one has a slot for each byte, and needs no search. What a
// damaged slot may say besides has no slots.
var shapes = [128]int{0, 5, 13, 21, 29, 45, 61, 93, 125, 257}

// FirstType is the smallest type. Direct is the one with a slot for each byte, and mostSlots how
// many slots it has.
const (
	FirstType NodeType = 1
	Direct    NodeType = 9
	mostSlots          = 257
)

// Slots is how many slots a node of the type has, the end slot included.
func (t NodeType) Slots() int { return shapes[t] }

// Bytes is how much of a node is READ and written.
func (t NodeType) Bytes() int { return HeadBytes + SlotBytes*shapes[t] }

// SlotAt is where a slot lies in its node.
func SlotAt(i int) int { return HeadBytes + SlotBytes*i }

// typeIn is the type whose nodes are allocated in so many bytes.
func typeIn(size int) NodeType {
	for t := FirstType; t < Direct; t++ {
		if AllocatedFor(t.Bytes()) >= size {
			return t
		}
	}
	return Direct
}

// typeFor is the smallest type with so many slots.
func typeFor(slots int) NodeType {
	for t := FirstType; t < Direct; t++ {
		if shapes[t] >= slots {
			return t
		}
	}
	return Direct
}
