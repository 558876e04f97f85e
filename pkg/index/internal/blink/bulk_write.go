package blink

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// batch is nodes that are written together: as many as a session has buffers for.
type batch struct {
	most  int
	nodes []loadNode
	bytes []byte            // entries and fences of leaves, and images of inner nodes
	items []slotted.EntryAt // of the entries, by their offset from their leaf's start
	pairs slotted.Pairs     // of one leaf at a time

	blocks []blocks.Reference
	values []byte // of the blocks, one behind the other
}

// mostValues is how many bytes of long values a batch has, but for those of its last leaf.
const mostValues = 256 << 10

// loadNode is one of them. Numbers are places in the batch's bytes.
type loadNode struct {
	addr       pool.Addr
	start, end int // a leaf's entries, or an inner node's image
	from, to   int // a leaf's items; none = it is an inner node
	low, high  int // a leaf's fences lie from end to low and from low to high
	rightmost  bool
	sibling    pool.Addr
	version    uint32
}

func newBatch(lay *fence.Layout, most int) *batch {
	// Entries take less than the nodes; two nodes more may be raised by the one that fills the
	// batch.
	return &batch{most: most, bytes: make([]byte, 0, (most+2)*lay.NodeBytes), nodes: make([]loadNode, 0, most+2), pairs: slotted.Pairs{Lay: lay}}
}

func (b *batch) reset() {
	b.nodes, b.bytes, b.items = b.nodes[:0], b.bytes[:0], b.items[:0]
	b.blocks, b.values = b.blocks[:0], b.values[:0]
}

// leaf adds the leaf that ld has filled.
func (b *batch) leaf(ld *loader, high []byte, sibling pool.Addr) {
	n := loadNode{addr: ld.leaf, start: ld.start, end: len(b.bytes), from: ld.from, to: len(b.items), sibling: sibling,
		rightmost: sibling == pool.Nil, version: unit.NewVersion(ld.t.env)}
	b.bytes = append(b.bytes, ld.low...)
	n.low = len(b.bytes)
	b.bytes = append(b.bytes, high...)
	n.high = len(b.bytes)
	b.nodes = append(b.nodes, n)
}

// inner adds the image of an inner node.
func (b *batch) inner(d *draft, lay *fence.Layout, a pool.Addr, version uint32) {
	start := len(b.bytes)
	b.bytes = append(b.bytes, make([]byte, lay.NodeBytes)...)
	size := d.build(b.bytes[start:], lay, a, version)
	b.nodes = append(b.nodes, loadNode{addr: a, start: start, end: start + size})
}

// build makes the image of a node in dst, as it shall be at a and with a version if it is a leaf,
// and returns how long it is.
func (b *batch) build(n *loadNode, dst []byte, lay *fence.Layout, a pool.Addr, version uint32) int {
	if n.from == n.to {
		return copy(dst, b.bytes[n.start:n.end])
	}
	h := fence.Header{Version: version, Rightmost: n.rightmost, Sibling: n.sibling, Low: b.bytes[n.end:n.low], High: b.bytes[n.low:n.high]}
	b.pairs.Image, b.pairs.List = b.bytes[n.start:n.end], b.items[n.from:n.to]
	return slotted.Build(dst, lay, a, &h, &b.pairs, 0, n.to-n.from)
}

// has says whether the node or block at a is in the batch.
func (b *batch) has(a pool.Addr) bool {
	for i := range b.blocks {
		if b.blocks[i].Addr == a {
			return true
		}
	}
	for i := range b.nodes {
		if b.nodes[i].addr == a {
			return true
		}
	}
	return false
}

// loadWriter is a session that writes batches, on a goroutine of its own. b and err are its own
// from work to idle, else the loader's.
type loadWriter struct {
	s          *session
	b          *batch
	err        error
	busy, over bool // the loader's: a batch is with the writer; nothing comes any more
	work, idle env.Event
	group      *env.WaitGroup
}

// run writes until there is nothing more to come. The source of pairs may take its time, so the
// wait has no limit.
func (w *loadWriter) run() {
	for {
		w.work.Wait(env.Forever)
		if w.over {
			return
		}
		w.err = w.write()
		w.idle.Set()
	}
}

// write makes the images and WRITEs them: one list for each server, as many round trips as it takes
// for the buffers, one mostly.
func (w *loadWriter) write() error {
	s, b := w.s, w.b
	s.Begin()
	defer s.End()
	if err := s.Blocks.WriteAll(b.blocks, b.values); err != nil {
		return err
	}
	for i := range b.nodes {
		n, buf := &b.nodes[i], s.ring[i%len(s.ring)]
		if i > 0 && i%len(s.ring) == 0 {
			if err := s.PS.Post(); err != nil {
				return op.Failure(err, false)
			}
		}
		s.PS.Write(pool.Sole, n.addr, buf[:b.build(n, buf, s.lay, n.addr, n.version)])
	}
	return op.Failure(s.PS.Post(), false)
}

// mayHandOver hands the batch over if it is full.
func (ld *loader) mayHandOver() error {
	if len(ld.b.nodes) < ld.b.most && len(ld.b.values) < mostValues {
		return nil
	}
	return ld.handOver()
}

// handOver gives the batch to the writer whose turn it is, once that is idle, and takes its empty
// one. Writers have a batch each and the loader one more, so memory is bounded whatever the source
// does.
func (ld *loader) handOver() error {
	w := ld.writers[ld.turn]
	ld.turn = (ld.turn + 1) % len(ld.writers)
	if err := w.settle(); err != nil {
		return err
	}
	ld.b, w.b = w.b, ld.b
	ld.b.reset()
	w.busy = true
	w.work.Set()
	return nil
}

// settle waits until the writer is idle and says how it went.
func (w *loadWriter) settle() error {
	if w.busy {
		w.idle.Wait(env.Forever) // each of its requests has a limit
		w.busy = false
	}
	return w.err
}

// wait waits for all writers. It returns the first error.
func (ld *loader) wait() (err error) {
	for _, w := range ld.writers {
		if e := w.settle(); err == nil {
			err = e
		}
	}
	return err
}

// close ends the writers and their sessions.
func (ld *loader) close() error {
	errs := []error{ld.s.Close()}
	for _, w := range ld.writers {
		_ = w.settle() // run has said so
		w.over = true
		w.work.Set()
		w.group.Wait(env.Forever)
		errs = append(errs, w.s.Close())
	}
	return errors.Join(errs...)
}
