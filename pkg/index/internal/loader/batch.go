package loader

import (
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Leaves are the leaves of a batch as a design keeps them until a writer makes their images, so
// that sessions make them side by side.
type Leaves interface {
	// Build makes in b the image of leaf i, as it shall be at a and with a version, and returns how
	// much of b it takes.
	Build(i int, b []byte, a pool.Addr, version uint32) int

	// Reset drops all leaves.
	Reset()
}

// Batch is nodes that are written together: as many as a session has buffers for.
type Batch struct {
	Leaves Leaves
	most   int
	nodes  []node
	images []byte

	blocks []blocks.Reference
	values []byte // of the blocks, one behind the other
}

// node is one of them.
type node struct {
	addr       pool.Addr
	start, end int // of its image; none if it is a leaf
	leaf       int // its number
	version    uint32
}

func newBatch(most int, leaves Leaves) *Batch {
	// two nodes more may be raised by the one that fills the batch
	return &Batch{most: most, Leaves: leaves, nodes: make([]node, 0, most+2)}
}

func (b *Batch) reset() {
	b.nodes, b.images = b.nodes[:0], b.images[:0]
	b.blocks, b.values = b.blocks[:0], b.values[:0]
	b.Leaves.Reset()
}

// AddLeaf adds leaf i of Leaves, which shall lie at a.
func (b *Batch) AddLeaf(i int, a pool.Addr, version uint32) {
	b.nodes = append(b.nodes, node{addr: a, leaf: i, version: version})
}

// AddImage adds the node that shall lie at a, of at most size bytes. build makes its image in the
// bytes that it gets, and returns how many it takes.
func (b *Batch) AddImage(a pool.Addr, size int, build func(image []byte) int) {
	start := len(b.images)
	b.images = append(b.images, make([]byte, size)...)
	b.nodes = append(b.nodes, node{addr: a, start: start, end: start + build(b.images[start:])})
}

// build makes the image of a node in dst and returns how long it is.
func (b *Batch) build(n *node, dst []byte) int {
	if n.start == n.end {
		return b.Leaves.Build(n.leaf, dst, n.addr, n.version)
	}
	return copy(dst, b.images[n.start:n.end])
}

// appendAll appends the addresses of the batch's nodes and blocks to dst.
func (b *Batch) appendAll(dst []pool.Addr) []pool.Addr {
	for i := range b.blocks {
		dst = append(dst, b.blocks[i].Addr)
	}
	for i := range b.nodes {
		dst = append(dst, b.nodes[i].addr)
	}
	return dst
}
