package dex

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// A flusher writes several leaves back in one round trip: for Give, and for the writer that makes
// room in the log. It holds the locks of their frames from add to post, and never waits for another
// frame's lock meanwhile. It waits for the log once, for the last record of all these leaves; a
// session that posts a batch of the log waits for no frame before that batch is over (redo), so
// this wait ends. The leaves' requests are independent of each other: each leaf has those of a
// flush, to one server and in their order (package frame).
type flusher struct {
	s  *session
	ps *pool.Session // has the buffers

	buffers  [][]byte
	locked   [flushLeaves]*frame.Frame // of the leaves that the next post writes back
	n        int                       // of them
	requests int                       // that these need
	written  int                       // leaves, so far
}

// flushLeaves bounds the leaves that are written back at once. A list has room for so many leaves
// in which only values changed, with two requests each.
const flushLeaves = verbs.MaxList / 2

// flushBytes bounds the buffers of a flusher, if leaves are large.
const flushBytes = 256 << 10

// start makes the buffers. After an error nothing is left.
func (g *flusher) start(s *session) (err error) {
	bytes := s.x.lay.NodeBytes
	n := min(flushLeaves, max(2, flushBytes/bytes))
	g.s = s
	if g.ps, err = s.x.pool.NewSession(n * (bytes + 64)); err != nil {
		return op.Failure(err, false)
	}
	for range n {
		b, err := g.ps.Buffer(bytes)
		if err != nil {
			return op.Failure(errors.Join(err, g.ps.Close()), false)
		}
		g.buffers = append(g.buffers, b)
	}
	return nil
}

// add has f written back with the next post. The caller holds the lock of f, which is the flusher's
// from then on. A frame that is clean is released at once.
func (g *flusher) add(f *frame.Frame) error {
	var v frame.View
	if f.RecLSN() == 0 || !f.Open(&v) {
		f.Unlock()
		return nil
	}
	n := f.Requests(&v)
	if g.n == len(g.buffers) || g.n > 0 && g.requests+n > verbs.MaxList {
		if err := g.post(); err != nil {
			f.Unlock()
			return err
		}
	}
	g.locked[g.n] = f
	g.n++
	g.requests += n
	return nil
}

// post writes the leaves back once their records are durable, and releases the locks. After an
// error of the log nothing was posted, and the leaves are as dirty as before.
func (g *flusher) post() error {
	if g.n == 0 {
		return nil
	}
	defer g.release()
	upTo := uint64(0)
	for _, f := range g.locked[:g.n] {
		upTo = max(upTo, f.PageLSN())
	}
	if err := g.s.log.Wait(upTo, g.s.limit); err != nil {
		return op.Failure(err, false)
	}
	queued := 0
	for i, f := range g.locked[:g.n] {
		if err := f.Queue(g.ps, g.buffers[i], &queued); err != nil {
			return g.s.x.condemn(err)
		}
	}
	if err := g.ps.Post(); err != nil {
		return g.s.x.condemn(err)
	}
	for _, f := range g.locked[:g.n] {
		f.Clean()
	}
	g.written += g.n
	return nil
}

// release releases the locks.
func (g *flusher) release() {
	for _, f := range g.locked[:g.n] {
		f.Unlock()
	}
	g.n, g.requests = 0, 0
}
