package dex

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A leaf may be READ before it has a frame: with the flush of the one that makes room for it, or by
// a lookup that did not keep it, when a change of the same leaf comes next (to read a key, and then
// to write it). Its image is in the session's staging buffer, and becomes the frame's if it is what
// the leaf is now:
//
//	this session                                anybody of this client who changes the leaf
//	1  looks at the eviction clock              a  has the lock of the leaf's frame
//	2  READs the leaf, verified as a whole      b  changes it, there or in the memory servers
//	3  has a frame for it, new and locked       c  has written back; the leaf leaves the cache:
//	4  finds no departure of the leaf after 1      the clock has its time, then its place is
//	5  makes what it READ the frame's image        taken away
//	                                            d  unlocks
//
// At 3 there was no other frame, so each change is over, with all of c, or begins after 5 with that
// frame. If c was before 1, b was written back before 2, so the READ has it. Else 4 finds it, and
// the leaf is READ again. So the image is what it would be had the leaf had a frame from 2 on that
// nobody has changed.
//
// That holds however long it is from 2 to 3, also from one operation to the next, when epochs move
// in between:
//
//   - Splits, merges and divisions hold the frames of the leaves that they change, and let them
//     depart. So if the memory at that address were another node's by now, 4 would find it.
//   - Others change the leaf only if they have some of its keys. It is remembered only if this
//     client had all of them, and nobody has any before this client has given it: then its range is
//     not there at 5; or it was taken again, and all leaves have departed; or the range ended
//     within the leaf, which was divided there then.
//   - A bulk load, which takes the only leaf away, has a frame for it, and lets it depart.
//   - A batch (batch.go) remembers what it READ whatever that is: a key of this client led there. A
//     leaf that holds the key is within the ranges, which divide leaves at their ends. Of another
//     one nothing is used for that key. If it holds a key that this client takes later, all leaves
//     have departed by then.
//   - What the buffer has is forgotten by who asks for the buffer (btree.Session.Staging). The
//     image is verified again, as that leaf's, before it is used.

// ahead is what is known of the leaf that is fetched.
type ahead struct {
	addr  pool.Addr
	since uint64 // what the eviction clock showed before it was READ
	done  bool   // it was READ: it is in the staging buffer
}

// fetch reads the leaf where p leads, if it is not in the cache. here: l is the leaf that holds
// key, verified; unless it is kept now, it is in the session's staging buffer. Else p may lead
// elsewhere; go on. must: it shall be kept. What a lookup READ and did not keep is not READ again
// by a change that comes next.
func (s *session) fetch(p *btree.Path, l *slotted.Leaf, key []byte, hops *int, must bool) (kept, here bool, err error) {
	if err := s.x.balance.shift(s); err != nil {
		return false, false, err
	}
	a := p.Addr()
	since, had := s.b.Remembers(a)
	// What a batch READ a lookup uses, too: unless the leaf has left the cache since, nobody had
	// changed it before the batch began whose change is not in the memory servers.
	had = had && (must || s.prefetched && !s.x.cache.evictions.after(a, since))
	if !had {
		since = s.x.cache.evictions.clock.Load()
	}
	b := s.b.Staging()
	s.ahead = ahead{addr: a, since: since, done: had}
	f, fresh, err := s.x.cache.reserve(a, must, s.yield)
	if err != nil || f != nil && !fresh {
		return false, false, err
	}
	if f == nil && must {
		return false, false, s.b.Retry()
	}
	old := f != nil && s.x.cache.evictions.after(a, since)
	if !had || old {
		s.x.fetched.Add(1)
	}
	if !s.ahead.done || old {
		ps := s.b.PS
		ps.Read(a, b)
		began := s.clock(a)
		if err := ps.Post(); err != nil {
			if f != nil {
				s.x.cache.drop(f)
			}
			return false, false, op.Failure(err, false)
		}
		s.measured(a, began)
	}
	if f != nil {
		if l.Is(s.x.lay, a, b, key) && s.x.ranges.Load().whole(l.Low, l.High, l.Rightmost) {
			f.fill(b)
			f.unlock()
			return true, true, nil
		}
		s.x.cache.drop(f)
	}
	here, err = s.b.Judge(p, l, key, b, hops)
	if here && must {
		return false, false, fmt.Errorf("leaf %v of %s goes beyond the ranges that this client took: %w", a, keyrange.Format(l.Low, l.High), index.ErrFormat)
	}
	if here && s.x.ranges.Load().whole(l.Low, l.High, l.Rightmost) {
		s.b.Remember(a, since)
	}
	return false, here, err
}
