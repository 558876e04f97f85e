package slottedtree

import (
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/rounds"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// round is the part of a batch of which the leaves are READ together. It implements rounds.Nodes.
type round struct {
	rounds.Lookups
	s      *Session
	leaf   [rounds.Most]int8        // of each key
	addrs  [btree.MaxRing]pool.Addr // of what the ring has
	leaves int
	opened slotted.Leaf
	open   int // the leaf that is opened; -1 = none
}

// LookupBatch implements index.Session. What is true of a lookup is true of each key, since its
// leaf is READ once, and as a whole. A key whose leaf is torn, or is another one by now, is looked
// up alone.
func (s *Session) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	if s.batch == nil {
		s.batch = &round{s: s}
	}
	return s.batch.Run(s, s.batch, &s.Blocks, keys, visit)
}

// Read implements rounds.Nodes: the leaves of as many keys as the ring has room for.
func (r *round) Read(keys [][]byte) (n int, err error) {
	s := r.s
	r.leaves, r.open = 0, -1
	for n < min(len(keys), rounds.Most) {
		if err := s.Lay.CheckKey(keys[n]); err != nil {
			return 0, err
		}
		p, err := s.Seek(keys[n], fence.Holding, 0)
		if err != nil {
			return 0, err
		}
		at := 0
		for at < r.leaves && r.addrs[at] != p.Addr() {
			at++
		}
		if at == len(s.Ring) {
			break
		}
		if at == r.leaves {
			r.addrs[at] = p.Addr()
			r.leaves++
		}
		s.CountHit(&p)
		r.leaf[n] = int8(at)
		n++
	}
	for i := range r.leaves {
		s.PS.Read(r.addrs[i], s.Ring[i])
	}
	if err := s.PS.Post(); err != nil {
		return 0, op.Failure(err, false)
	}
	s.Pause()
	return n, nil
}

// Search implements rounds.Nodes.
func (r *round) Search(i int, key []byte) ([]byte, rounds.Outcome) {
	s, l := r.s, &r.opened
	if at := int(r.leaf[i]); at != r.open {
		r.open = -1
		if l.Open(s.Lay, r.addrs[at], s.Ring[at]) {
			r.open = at
		}
	}
	if r.open < 0 || l.Below(key) || l.Above(key) {
		return nil, rounds.Undecided
	}
	switch _, e, o := l.Find(key, s.Lay.Fingerprint(key)); {
	case o == slotted.Absent:
		return nil, rounds.Absent
	case o != slotted.Present:
		return nil, rounds.Undecided
	case s.Lay.HasReference(e):
		return e, rounds.InBlock
	default:
		return s.Lay.ValueOf(e), rounds.Found
	}
}

// Value implements rounds.Nodes.
func (r *round) Value(_, b []byte) ([]byte, bool) { return b, true }

// Find implements rounds.Nodes.
func (r *round) Find(key, dst []byte) ([]byte, error) { return r.s.Find(key, dst) }
