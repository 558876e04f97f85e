package dex

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index/internal/blink"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// A range is given away while its requests wait, so what that takes is what people see of a handover. Nobody is in an operation on its keys (index.Partitioned), so:
//
//  1. the leaves at both ends are divided, and the range leaves those that were taken: nobody begins to change its leaves;
//  2. the leaves of it that are dirty are written back, many in one round trip. They stand in the queue of dirty ones, so nothing else is looked at;
//  3. all of its leaves leave the cache. One that 2 passed over, and is dirty, is written back now;
//  4. its entries leave the cache.
//
// 4 comes after 3: whoever evicts a leaf meanwhile, of his own accord, leaves entries of it, before its frame is another's (outlive). 3 waits for the lock of such a frame, so 4 finds what it left.
//
// 2 has the locks of several frames at once. It never waits for a lock with them: it posts what it has, and gives them back before.

// giveLeaves is how many leaves are written back at once, at most. A list holds the requests of as many leaves that had only values changed, which are two each.
const giveLeaves = verbs.MaxList / 2

// Give implements index.Partitioned.
func (x *dex) Give(start, end []byte) (written int, err error) {
	s, err := x.newSession()
	if err != nil {
		return 0, fmt.Errorf("give a range: %w", err)
	}
	for _, key := range [][]byte{x.fence(start), x.fence(end)} {
		if key != nil && err == nil && x.ranges.Load().at(key) >= 0 {
			err = s.splitAt(key)
		}
	}
	if err == nil {
		x.ranges.Store(x.ranges.Load().without(start, end))
		given := ranges{[]span{{start: start, end: end}}}
		s.b.Begin()
		written, err = s.giveAway(&given)
		s.b.End()
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return written, fmt.Errorf("give a range: %w", err)
	}
	return written, nil
}

// giveAway is steps 2 to 4.
func (s *session) giveAway(given *ranges) (written int, err error) {
	g := giver{s: s, given: given}
	if err := g.start(); err != nil {
		return 0, blink.Failure(err, false)
	}
	err = g.writeBack()
	if err = errors.Join(err, g.ps.Close()); err != nil {
		return g.written, err
	}
	if err := s.x.cache.each(func(f *frame) error { return s.forget(f, given) }); err != nil {
		return g.written, err
	}
	return g.written, s.x.cache.entries.forget(given, s.b.Again)
}

// giver writes back what is dirty of a range, many leaves in one round trip.
type giver struct {
	s     *session
	given *ranges
	ps    *pool.Session // has the buffers

	buffers [giveLeaves][]byte
	locked  [giveLeaves]*frame // whose requests are queued
	n       int                // of them
	queued  int                // requests
	written int                // leaves
}

func (g *giver) start() (err error) {
	bytes := g.s.x.lay.NodeBytes()
	if g.ps, err = g.s.x.pool.NewSession(giveLeaves * (bytes + 64)); err != nil {
		return err
	}
	g.ps.SetLimit(g.s.limit)
	for i := range g.buffers {
		if g.buffers[i], err = g.ps.Buffer(bytes); err != nil {
			return errors.Join(err, g.ps.Close())
		}
	}
	return nil
}

func (g *giver) writeBack() error {
	for _, f := range g.s.x.dirty.all() {
		if err := g.add(f); err != nil {
			g.release()
			return err
		}
	}
	return g.post()
}

// add queues what writes f back, if it is of the range.
func (g *giver) add(f *frame) error {
	for !f.tryLock() {
		if err := g.post(); err != nil {
			return err
		}
		if f.first.Load() == 0 {
			return nil
		}
		if err := g.s.b.Again(); err != nil {
			return err
		}
	}
	var v view
	if f.first.Load() == 0 || !f.open(&v) || !f.within(&v, g.given) {
		f.unlock()
		return nil
	}
	err := g.s.log.Wait(f.lsn.Load(), g.s.limit)
	if err != nil {
		f.unlock()
		return blink.Failure(err, false)
	}
	if n := f.requests(&v); g.n == giveLeaves || g.queued > 0 && g.queued+n > verbs.MaxList {
		err = g.post()
	}
	if err != nil {
		f.unlock()
		return err
	}
	g.locked[g.n] = f
	g.n++
	if err := f.queue(g.ps, g.buffers[g.n-1], &g.queued); err != nil {
		return g.s.x.giveUp(err)
	}
	return nil
}

// post posts what is queued, and gives the locks back.
func (g *giver) post() error {
	if g.n == 0 {
		return nil
	}
	if err := g.ps.Post(); err != nil {
		g.release()
		return g.s.x.giveUp(err)
	}
	for _, f := range g.locked[:g.n] {
		f.clean()
	}
	g.written += g.n
	g.release()
	return nil
}

func (g *giver) release() {
	for _, f := range g.locked[:g.n] {
		f.unlock()
	}
	g.n, g.queued = 0, 0
}
