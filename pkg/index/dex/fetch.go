package dex

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A leaf may be READ before it has a frame: with the flush of the frame that makes room for it; or
// by a lookup that did not keep it, if a change of the same leaf follows (a program reads a key,
// and then writes it). Its image is in the session's staging buffer. It becomes the frame's if it
// is still the leaf's present state:
//
//	this session                                another session of this client
//	1  reads the eviction clock                 a  locks the leaf's frame
//	2  READs the leaf                           b  changes it, there or in the memory servers
//	3  reserves a new frame for it, locked      c  has written back; records the eviction,
//	4  finds no eviction of the leaf after 1       then removes the frame from the table
//	5  verifies what it READ as a whole, and    d  unlocks
//	   makes it the frame's image
//
// At 3 there was no other frame. So each change is over, with all of c, or begins after 5 with the
// new frame. If c came before 1, b was written back before 2, so the READ has it. Otherwise 4 finds
// it, and the leaf is READ again. So the image is that of a frame that the leaf would have had
// since 2 without a change.
//
// That holds however long it is from 2 to 3, also from one operation to the next, while epochs
// move:
//
//   - Splits, merges and divisions hold the frames of the leaves that they change, and record their
//     eviction. So if the memory at that address were another node's by now, 4 would find it.
//   - Other clients change the leaf only if they own some of its keys. The leaf is remembered only
//     if this client owned all of them, and no other client gets any before this client has given
//     it. Then its range is not there at 5; or it was taken again, which records an eviction of all
//     leaves; or the range ended within the leaf, which was divided there.
//   - A bulk load, which replaces the only leaf, has a frame for it, and records its eviction.
//   - A batch (batch.go) remembers whatever leaf it READ: a key of this client led there. A leaf
//     that holds the key lies within the ranges, which divide leaves at their ends. Of another
//     leaf nothing is used for that key. If it holds a key that this client takes later, an
//     eviction of all leaves was recorded then.
//   - Every other use of the buffer makes the session forget its content (btree.Session.Staging).
//     The image is verified again, as that leaf's, before it is used.

// prefetch describes the leaf that is fetched.
type prefetch struct {
	addr  pool.Addr
	since uint64 // the eviction clock before the READ
	done  bool   // it was READ: it is in the staging buffer
	// the record whose batch is posted beside the READ; 0 = none (beside.go)
	record uint64
}

// fetch READs the leaf where p leads, if it is not in the cache. here: l is the leaf that holds
// key, and EntryOf(key) is right; unless it is kept now, it is in the session's staging buffer.
// Otherwise p may lead elsewhere, and the caller goes on. must: the leaf has to be kept. A leaf
// that a lookup READ and did not keep is not READ again by a change that follows.
func (s *session) fetch(p *btree.Path, l *slotted.Leaf, key []byte, hops *int, must bool) (kept, here bool, err error) {
	if err := s.x.budget.Rebalance(s.back); err != nil {
		return false, false, err
	}
	a := p.Addr()
	since, had := s.b.Remembers(a)
	// A lookup also uses what its batch READ. Unless the leaf was evicted since, all changes from
	// before the batch are in the memory servers.
	had = had && (must || s.prefetched && !s.x.cache.Clock.After(a, since))
	if !had {
		since = s.x.cache.Clock.Now()
	}
	b := s.b.Staging()
	s.prefetch = prefetch{addr: a, since: since, done: had}
	f, fresh, err := s.x.cache.Reserve(a, must, s.yield)
	if err != nil || f != nil && !fresh {
		return false, false, err
	}
	if f == nil && must {
		return false, false, s.b.Retry()
	}
	old := f != nil && s.x.cache.Clock.After(a, since)
	switch {
	case had && !old:
	case must:
		s.x.fetched.Add(1) // an entry would not do
	default:
		s.x.fetches(key)
	}
	s.prefetch.done = s.prefetch.done && !old
	if err := s.readLeaf(f); err != nil {
		return false, false, err
	}
	if f != nil {
		kept, err = s.admit(f, b, l.Is(s.x.lay, a, b, key) && s.owns(l))
		if kept {
			f.Unlock()
		}
		if kept || err != nil {
			return kept, kept, err
		}
		here, err = s.b.Judge(p, l, key, b, hops)
	} else {
		here, err = s.b.JudgeFor(p, l, key, b, hops)
	}
	if here && must {
		return false, false, fmt.Errorf("leaf %v of %s goes beyond the ranges that this client took: %w", a, keyrange.Format(l.Low, l.High), index.ErrFormat)
	}
	if here && s.owns(l) {
		s.b.Remember(a, since)
	}
	return false, here, err
}

// readLeaf READs the leaf of prefetch, beside the batch of its record, unless that was done with a
// write-back. After an error f is dropped, its new frame; nil = it has none.
func (s *session) readLeaf(f *frame.Frame) error {
	q, ps := &s.prefetch, s.b.PS
	if q.done {
		return nil
	}
	ps.Read(q.addr, s.b.Staging())
	began := s.clock(q.addr)
	if err := postBeside(ps, s.log, q); err != nil {
		if f != nil {
			s.x.cache.Drop(f)
		}
		return op.Failure(err, false)
	}
	s.measured(q.addr, began)
	return nil
}
