package dex

import (
	"time"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/offload"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/pool"
)

// remoteHit is the state of a search for a leaf.
type remoteHit struct {
	path  btree.Path
	near  bool           // a memory server has found the leaf
	found offload.Answer // its answer
	since uint64         // the eviction clock before the call
}

// seek finds the leaf for key as far as inner nodes lead. If one of level 1 or 2 is not in the
// cache, is not to be kept, and a call is worth it, the memory server continues. The rest is done
// by READs. Only lookups ask: a change needs the whole leaf, in a frame, and its READ carries its
// record beside it (beside.go), which a call cannot.
func (s *session) seek(q *remoteHit, key []byte) (err error) {
	q.near = false
	var w btree.Way
	if q.path, w, err = s.b.DescendNear(key); err != nil || w.Level == 0 {
		return err
	}
	q.since = s.x.cache.Clock.Now()
	c, level, began := s.costsOf(w.Addr), w.Level, s.x.env.Now()
	if q.found, q.near, err = s.remote.Search(&w, key); err != nil {
		return err
	}
	c.Called(s.x.env.Now()-began, level, q.near || w.Level < level)
	if q.near {
		q.path = btree.At(q.found.Leaf)
		s.x.budget.Missed(key)
		return nil
	}
	q.path, err = s.b.DescendFrom(w, key)
	return err
}

// Offload implements btree.LeafCache. Nodes that will be kept are READ, so hot paths come into the
// cache. A path-aware cache would keep every inner node, so only the costs count, as in the paper.
func (x *dex) Offload(b *btree.Session, w btree.Way) bool {
	s := b.Owner.(*session)
	if !s.b.PS.Calls(w.Addr) {
		return false
	}
	if s.x.with.costAware && !s.costsOf(w.Addr).Worth(w.Level, s.x.env.Uint64()) {
		return false
	}
	return s.x.with.pathAware || !s.b.Keeps(w)
}

// costsOf is what is known of the costs at the memory server of a, which may have joined lately.
func (s *session) costsOf(a pool.Addr) *offload.Costs {
	c := s.costs[a.Server()]
	if c == nil {
		c = new(offload.Costs)
		s.costs[a.Server()] = c
	}
	return c
}

// clock returns when a READ of the leaf at a begins, if that is to be measured; else 0.
func (s *session) clock(a pool.Addr) time.Duration {
	if !s.x.with.offloading || !s.x.with.costAware {
		return 0
	}
	return s.x.env.Now()
}

// measured records how long the READ took.
func (s *session) measured(a pool.Addr, began time.Duration) {
	if began > 0 {
		s.costsOf(a).ReadTook(s.x.env.Now() - began)
	}
}

// holds reports whether a memory server's answer is current: the leaf was not in the cache since
// before the call.
func (q *remoteHit) holds(x *dex) bool {
	return q.near && x.cache.Current(q.found.Leaf, q.since)
}
