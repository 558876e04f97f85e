// Package loader writes what a bulk load makes: many nodes in one list, by sessions of their own
// beside the goroutine that cuts the stream of pairs. It knows no format: a node is an image, or a
// leaf of which a writer makes the image.
//
// Nobody can find what is written before the design publishes it. A load that fails gives back all
// that it has allocated.
//
// A load holds no operation while it waits for its source. Nodes and blocks refer to each other, so
// they are allocated before they are written, and the source may wait in between. So their memory
// is reserved (package pool, reserve.go) until the list that writes it is confirmed: whatever was
// there before may still be marked dead, and no sweep takes it for garbage.
package loader

import (
	"errors"
	"slices"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Session is what a writer needs of a session.
type Session struct {
	Op     *op.Op
	Blocks *blocks.Session
	Ring   [][]byte // buffers of a node each, of the session's arena
	Close  func() error

	// Room is for images one behind the other, where nodes differ much in size, and Largest is the
	// size of the largest one. Without Ring.
	Room    []byte
	Largest int
}

// Load is a bulk load under way. One goroutine uses it, and its writers are goroutines of their
// own.
type Load struct {
	Batch   *Batch // being filled
	pool    *pool.Pool
	memory  pool.Reserved
	writers []*writer
	turn    int // of writers
	made    []made
}

// made is what was allocated of one size.
type made struct {
	size int
	runs []run
}

// run is n nodes one behind the other, of which the last one that was allocated lies at last. step
// is the size of a node, or that downwards. Most nodes come in runs, so a load of many small ones
// keeps little of each.
type run struct {
	last pool.Addr
	n    int
	step int64
}

// add reports whether the node of so many bytes at a goes on with r.
func (r *run) add(a pool.Addr, size int) bool {
	step := int64(a) - int64(r.last)
	if step != int64(size) && step != -int64(size) || r.n > 1 && step != r.step {
		return false
	}
	r.last, r.step = a, step
	r.n++
	return true
}

// eachNode calls do for each node.
func (r *run) eachNode(do func(a pool.Addr)) {
	for i := range int64(r.n) {
		do(pool.Addr(int64(r.last) - i*r.step))
	}
}

// mostPacked is how many nodes a batch has for sessions with Room.
const mostPacked = 2 * verbs.MaxList

// New starts a load with a writer for each session. newLeaves makes what a batch has for leaves.
func New(p *pool.Pool, sessions []Session, newLeaves func() Leaves) *Load {
	most := len(sessions[0].Ring)
	if most == 0 {
		most = mostPacked
	}
	l := &Load{pool: p, memory: p.Reserve(), Batch: newBatch(most, newLeaves())}
	e := p.Env()
	for _, s := range sessions {
		w := &writer{s: s, memory: p.Reserve(), b: newBatch(most, newLeaves()), idle: e.NewEvent(), work: e.NewEvent(), group: env.NewWaitGroup(e)}
		w.group.Go("bulk load", w.run)
		l.writers = append(l.writers, w)
	}
	return l
}

// Allocate takes a node of size bytes, near another one if that is not Nil.
func (l *Load) Allocate(size int, near pool.Addr) (pool.Addr, error) {
	a, err := l.memory.Allocate(size, near)
	return l.noteNode(a, size, err)
}

// AllocateBlock is Allocate for what is never rewritten in place.
func (l *Load) AllocateBlock(size int, near pool.Addr) (pool.Addr, error) {
	a, err := l.memory.AllocateBlock(size, near)
	return l.noteNode(a, size, err)
}

// noteNode notes what was allocated, unless that failed.
func (l *Load) noteNode(a pool.Addr, size int, err error) (pool.Addr, error) {
	if err != nil {
		return pool.Nil, op.Failure(err, false)
	}
	l.note(a, size)
	return a, nil
}

// PutBlock allocates a block for a value, near a node, and adds it to the batch. The entry that
// gets the reference is in this batch, or in a later one.
func (l *Load) PutBlock(c *item.Codec, value []byte, near pool.Addr) (blocks.Reference, error) {
	a, size, err := blocks.Allocate(c, l.memory, len(value), near)
	if err != nil {
		return blocks.Reference{}, err
	}
	l.note(a, size)
	r := blocks.ReferTo(a, size, value)
	l.Batch.blocks = append(l.Batch.blocks, r)
	l.Batch.values = append(l.Batch.values, value...)
	return r, nil
}

func (l *Load) note(a pool.Addr, size int) {
	i := slices.IndexFunc(l.made, func(m made) bool { return m.size == size })
	if i < 0 {
		i = len(l.made)
		l.made = append(l.made, made{size: size})
	}
	m := &l.made[i]
	if n := len(m.runs); n == 0 || !m.runs[n-1].add(a, size) {
		m.runs = append(m.runs, run{last: a, n: 1})
	}
}

// GiveBack frees what was allocated and is known to nobody, but for nodes and blocks that a session
// which died may still be writing to. by is the operation that has written the batch, if any has.
func (l *Load) GiveBack(by *op.Op) {
	doubtful := map[pool.Addr]bool{}
	note := func(o *op.Op, b *Batch) {
		if o.PS.Err() == nil {
			return
		}
		for _, a := range b.appendAll(nil) {
			doubtful[a] = true
		}
	}
	note(by, l.Batch)
	for _, w := range l.writers {
		note(w.s.Op, w.b)
	}
	for _, m := range l.made {
		for i := range m.runs {
			m.runs[i].eachNode(func(a pool.Addr) {
				if !doubtful[a] {
					l.pool.Free(a, m.size)
				}
			})
		}
	}
	l.pool.GiveChunksBack()
}

// mostValues is how many bytes of long values a batch has, but for those of its last leaf.
const mostValues = 256 << 10

// MayHandOver hands the batch over if it is full.
func (l *Load) MayHandOver() error {
	if len(l.Batch.nodes) < l.Batch.most && len(l.Batch.values) < mostValues {
		return nil
	}
	return l.HandOver()
}

// HandOver gives the batch to the writer whose turn it is, once that is idle, and acquires its
// empty one. Writers have a batch each and the load one more, so memory is bounded whatever the
// source does.
func (l *Load) HandOver() error {
	w := l.writers[l.turn]
	l.turn = (l.turn + 1) % len(l.writers)
	if err := w.settle(); err != nil {
		return err
	}
	l.Batch, w.b = w.b, l.Batch
	l.Batch.reset()
	w.busy = true
	w.work.Set()
	return nil
}

// WriteBlocks WRITEs the blocks of the batch that is being filled, as a part of an operation of s:
// for a batch that is not handed over.
func (l *Load) WriteBlocks(s *blocks.Session) error {
	b := l.Batch
	if err := s.WriteAll(b.blocks, b.values); err != nil {
		return err
	}
	l.memory.Written(b.appendAll(nil))
	return nil
}

// Wait waits for all writers. It returns the first error.
func (l *Load) Wait() (err error) {
	for _, w := range l.writers {
		if e := w.settle(); err == nil {
			err = e
		}
	}
	return err
}

// Close ends the writers and their sessions.
func (l *Load) Close() error {
	var errs []error
	for _, w := range l.writers {
		_ = w.settle() // Wait has returned its error
		w.over = true
		w.work.Set()
		w.group.Wait(env.Forever)
		errs = append(errs, w.s.Close())
	}
	return errors.Join(errs...)
}

// writer is a session that writes batches, on a goroutine of its own. b and err are its own from
// work to idle, else the load's.
type writer struct {
	s          Session
	memory     pool.Reserved
	written    []pool.Addr // of the batch
	b          *Batch
	err        error
	busy, over bool // the load's: a batch is with the writer; nothing comes any more
	work, idle env.Event
	group      *env.WaitGroup
}

// run writes until there is nothing more to come. The source of pairs may take its time, so the
// wait has no limit.
func (w *writer) run() {
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
func (w *writer) write() error {
	o, b := w.s.Op, w.b
	o.Begin()
	defer o.End()
	if err := w.s.Blocks.WriteAll(b.blocks, b.values); err != nil {
		return err
	}
	room := w.room()
	for i := range b.nodes {
		n := &b.nodes[i]
		buf := room.next()
		if buf == nil {
			if err := o.PS.Post(); err != nil {
				return op.Failure(err, false)
			}
			room = w.room()
			buf = room.next()
		}
		size := b.build(n, buf)
		room.noteImage(size)
		o.PS.Write(pool.Sole, n.addr, buf[:size])
	}
	if err := o.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	w.written = b.appendAll(w.written[:0])
	w.memory.Written(w.written)
	return nil
}

// room is what is left of a session's buffers.
type room struct {
	s    *Session
	n    int // images
	used int // bytes
}

func (w *writer) room() room { return room{s: &w.s} }

// next is a buffer for a node; nil if there is none left.
func (r *room) next() []byte {
	if len(r.s.Ring) > 0 {
		if r.n == len(r.s.Ring) {
			return nil
		}
		return r.s.Ring[r.n]
	}
	if r.n == verbs.MaxList || r.used+r.s.Largest > len(r.s.Room) {
		return nil
	}
	return r.s.Room[r.used:]
}

// noteImage notes that the buffer has an image of n bytes.
func (r *room) noteImage(n int) {
	r.n++
	r.used += (n + 7) &^ 7
}

// settle waits until the writer is idle and returns the error of what it has written.
func (w *writer) settle() error {
	if w.busy {
		w.idle.Wait(env.Forever) // each of its requests has a limit
		w.busy = false
	}
	return w.err
}
