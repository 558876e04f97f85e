package btree

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Way is where a descent stopped: at a node that is not in the cache.
type Way struct {
	Addr  pool.Addr
	Level uint8 // 0 = it did not stop, and the path leads to the leaf
}

// DescendNear is Descend, but ends at a node of level 1 or 2 that is not in the cache where the
// leaf cache says so (Offload).
func (s *Session) DescendNear(key []byte) (Path, Way, error) {
	s.mayOffload, s.offloadAt = true, Way{}
	p, err := s.descend(key, fence.Holding, 0)
	s.mayOffload = false
	switch {
	case err == errStopped:
		return p, s.offloadAt, nil
	case err == nil:
		s.CountHit(&p)
	}
	return p, Way{}, err
}

// errStopped is returned where the leaf cache said so.
var errStopped = errors.New("the descent was stopped")

// Keeps reports whether a copy of the node at w would be kept, were it read. It is counted as a
// miss if not: else it will be when it is read.
func (s *Session) Keeps(w Way) bool {
	return s.t.cache.Keeps(w.Addr, w.Level, s.Lay.NodeBytes+innerBytes)
}

// At is a path to a leaf that a memory server has found.
func At(a pool.Addr) Path { return Path{addr: a, cached: true} }

// DescendFrom descends from w, by READs. Where the way is lost it begins at the root.
func (s *Session) DescendFrom(w Way, key []byte) (Path, error) {
	p := Path{addr: w.Addr, cached: true}
	for l := w.Level; l > 0; l-- {
		n, _, err := s.inner(&p, l)
		if err == nil && n.beyond(key, fence.Holding) {
			err = errDead
		}
		if err == errDead {
			return s.Descend(key)
		}
		if err != nil {
			return p, err
		}
		p = Path{parent: n, child: n.pick(s.Lay, key, fence.Holding)}
		p.addr = n.children[p.child]
	}
	return p, nil
}
