package btree

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// maxHops is how often an operation follows sibling pointers on one level before it starts again
// from the root, with newer copies.
const maxHops = 4

// errDead is returned where a node is dead: whatever led there is old.
var errDead = errors.New("node was merged into its left sibling")

// Seek finds where the node of a level for a key is, as far as copies of inner nodes say. Leaves
// are of level 0. level must not be above the root's.
func (s *Session) Seek(key []byte, at fence.Side, level uint8) (Path, error) {
	return s.descend(key, at, level)
}

// Descend is Seek for the leaf that holds key, and counts whether it needed no READ.
func (s *Session) Descend(key []byte) (Path, error) {
	p, err := s.descend(key, fence.Holding, 0)
	if err == nil {
		s.CountHit(&p)
	}
	return p, err
}

// CountHit counts whether a descent needed no READ.
func (s *Session) CountHit(p *Path) {
	if p.cached || p.parent == nil {
		s.Count.Hits++
	}
}

// Resolve goes on where b, which was READ from where p leads, is not the leaf that holds key,
// whole. h is its header; nil if it has none that verifies. p leads elsewhere then, or to the same
// one once more: READ it again. hops is of one operation, and 0 before. No lock may be held.
func (s *Session) Resolve(p *Path, h *fence.Header, key, b []byte, hops *int) error {
	if h != nil {
		if h.Below(key) {
			return s.Misled(p, key, hops)
		}
		if h.Above(key) {
			return s.follow(p, h, key, hops)
		}
		return s.Reread(p.addr)
	}
	if unit.IsDead(p.addr, b) {
		*hops = 0
		return s.descendFromDead(p, key)
	}
	grew, err := s.outgrown(p.addr, b)
	if err == nil && grew {
		*p, err = s.descend(key, fence.Holding, 0)
		return err
	}
	if err == nil {
		err = s.Reread(p.addr)
	}
	return err
}

// ResolveLocked is Resolve of the node that is locked and in Node, whose lock it gives up. A leaf
// that does not verify under its lock never will: then it returns ErrFormat. A lock word guards a
// leaf only: the root that was one may be an inner node by now, and who changes that has its lock
// of the table. So it may be torn, and is READ again.
func (s *Session) ResolveLocked(p *Path, h *fence.Header, key []byte, hops *int) error {
	// Node stays as it was read while the lock is given up.
	if err := s.Unlock(nil); err != nil {
		return err
	}
	if h != nil || unit.IsDead(p.addr, s.Node) || s.t.worded != nil && s.Node[unit.AtKind] != 0 {
		return s.Resolve(p, h, key, s.Node, hops)
	}
	grew, err := s.outgrown(p.addr, s.Node)
	if err == nil && !grew {
		err = fmt.Errorf("leaf %v does not verify under its lock: %w", p.addr, index.ErrFormat)
	}
	if err == nil {
		*hops = 0
		*p, err = s.descend(key, fence.Holding, 0)
	}
	return err
}

// Misled is called where the leaf where p leads begins above key. Then p leads elsewhere, or to the
// same one once more.
func (s *Session) Misled(p *Path, key []byte, hops *int) error {
	err := s.misled(p.parent, p.addr, key)
	if err == nil {
		*hops = 0
		*p, err = s.descend(key, fence.Holding, 0)
	}
	return err
}

// follow goes on from a leaf whose range ends at or below key: to its right sibling, or after
// several of those down from the root again. The copy that led to the leaf is dropped, so that the
// next descent knows better. If it was no copy but just read, the sibling is not connected: noted,
// for ConnectMet.
func (s *Session) follow(p *Path, h *fence.Header, key []byte, hops *int) error {
	*hops++
	most := s.mostHops()
	root, err := s.root()
	if err != nil {
		return err
	}
	now, err := s.evictStale(p, root, *hops)
	if err != nil {
		return err
	}
	if !p.cached && *hops == 1 && now.equal(root) {
		s.unconnected, s.metAt = h.Sibling, s.PS.Stamp()
		s.sep = append(s.sep[:0], h.High...)
	}
	if *hops <= most && (p.parent != nil || now.equal(root)) {
		p.addr = h.Sibling
		return nil
	}
	*hops = 0
	*p, err = s.descend(key, fence.Holding, 0)
	return err
}

// evictStale deals with a node, found by p, that does not reach far enough right: the copy that led
// to it is dropped; if there was none, the node was the root, which has a new one above it, or soon
// will have. It returns the root as it is known then.
func (s *Session) evictStale(p *Path, root *rootRef, hops int) (now *rootRef, err error) {
	if p.parent != nil {
		s.evict(p.parent)
	} else if hops == 1 {
		if now, err = s.renewRoot(root); err != nil {
			return nil, err
		}
	}
	if hops > s.mostHops() {
		s.restarts++
		if err := s.Reread(p.addr); err != nil {
			return nil, err
		}
	}
	if now == nil {
		return s.root()
	}
	return now, nil
}

// mostHops is maxHops, twice as many each time that starting again did not help: where there is no
// memory for parents, long chains of siblings may be all there is.
func (s *Session) mostHops() int { return maxHops << min(s.restarts, 16) }

// descendFromDead goes on from a dead leaf: what led there is dropped, and p found anew.
func (s *Session) descendFromDead(p *Path, key []byte) error {
	if p.parent != nil {
		s.evict(p.parent)
	}
	err := s.Reread(p.addr)
	if err == nil {
		*p, err = s.descend(key, fence.Holding, 0)
	}
	return err
}

// outgrown reports whether the node at a, of which b was read, was the root and a leaf, and is an
// inner node by now: a bulk load has put a tree in its place. The new root is learned then, and the
// descent has to begin anew. No lock may be held.
func (s *Session) outgrown(a pool.Addr, b []byte) (bool, error) {
	if b[unit.AtKind] == 0 {
		return false, nil
	}
	if decodeInner(s.Lay, a, b) == nil {
		return false, nil
	}
	if err := s.Reread(a); err != nil {
		return true, err
	}
	_, err := s.relearnRoot()
	return true, err
}
