package blink

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// maxHops is how often an operation follows sibling pointers on one level before it starts again
// from the root, with newer copies.
const maxHops = 4

// path is where a descent ended.
type path struct {
	parent *inner    // the copy that led there; nil if the root itself was looked for
	child  int       // the number of addr in it
	cached bool      // parent was in the cache, so it may be old
	addr   pool.Addr // of the node
}

// root is the root as last read, if that is not too old to be followed; else it is read. No
// operation gets the root in another way.
func (s *session) root() (*rootRef, error) {
	if r := s.t.root.Load(); r.stamp >= s.Floor {
		s.PS.Follows(r.stamp)
		return r, nil
	}
	s.Count.Misses += 2 // its address, and the node
	return s.relearnRoot()
}

// relearnRoot reads which node is the root, and learns it.
func (s *session) relearnRoot() (*rootRef, error) {
	known := s.t.root.Load()
	a, err := s.PS.Root()
	if err != nil {
		return nil, op.Failure(err, false)
	}
	return s.learnRoot(a, known)
}

// learnRoot reads the level of the root, which this operation has found to be a, and keeps both for
// others. known is as for noteRoot. By the time that learnRoot returns, the root may be another
// one.
func (s *session) learnRoot(a pool.Addr, known *rootRef) (*rootRef, error) {
	for {
		if err := s.Read(a, s.node); err != nil {
			return nil, err
		}
		var l slotted.Leaf
		if l.Open(s.lay, a, s.node) {
			return s.t.noteRoot(&rootRef{a, 0, s.PS.Stamp()}, known), nil
		}
		if n := decodeInner(s.lay, a, s.node); n != nil {
			s.keep(n)
			return s.t.noteRoot(&rootRef{a, n.Level, s.PS.Stamp()}, known), nil
		}
		dead := unit.IsDead(a, s.node)
		err := s.Reread(a)
		if err == nil && dead {
			a, err = s.PS.Root()
		}
		if err != nil {
			return nil, fmt.Errorf("read the root: %w", op.Failure(err, false))
		}
	}
}

// noteRoot keeps r as the root. It returns r, which the operation that read it may follow. known is
// a root that was kept, or followed, before r was read or made.
//
// Stamps do not say which of two roots is newer: an operation may begin later and have read the
// root word earlier, before the tree grew. So r takes the place of known, whatever the stamps are.
// Without that an operation could find that the root is another one, be led to the kept one once
// more, and find the same again, without end. Every loop that reads the root word rests on this:
// the next attempt gets what the last one has learned, or what another session has kept meanwhile.
// The second takes a READ of the root word by that session each time.
//
// In the place of any other root, r is kept unless that one was read in an operation that began
// later: that one may be newer, and holds for more operations. A root that is kept and old shows
// itself by its level, its fences, or its death, as an old copy of an inner node does.
//
// The stamp of what is kept may fall. That is safe: the stamp is when the operation began that read
// r, and an operation with a higher floor reads the root itself.
func (t *tree) noteRoot(r, known *rootRef) *rootRef {
	for {
		old := t.root.Load()
		if old != nil && old != known && old.stamp > r.stamp || t.root.CompareAndSwap(old, r) {
			return r
		}
	}
}

// is says whether both are the same node, on the same level.
func (r *rootRef) is(o *rootRef) bool { return r.addr == o.addr && r.level == o.level }

// renewRoot reads which node is the root now, and returns that, or known if it still is.
func (s *session) renewRoot(known *rootRef) (*rootRef, error) {
	a, err := s.PS.Root()
	if err != nil {
		return nil, op.Failure(err, false)
	}
	if a == known.addr {
		return known, nil
	}
	return s.learnRoot(a, known)
}

// descend finds the node of a level for a key, from the root down, through the cache as far as it
// goes. It reads nodes above that level only; level must not be above the root's. errDead: it is by
// now.
//
// Whatever was cached may be old. A node that has split holds less than a copy of its parent says,
// and then its right sibling is followed (B-link); a copy that does not reach far enough is read
// again first, since the node may have got what its sibling had. A node that was merged into its
// left sibling says so: then the copy that led there is dropped, and the descent begins anew. Lower
// fences never change, so nobody is led too far to the right.
func (s *session) descend(key []byte, at fence.Side, level uint8) (path, error) {
	root, err := s.root()
	if err != nil {
		return path{}, err
	}
	p := path{addr: root.addr}
	var from *inner // the copy that p.addr is from
	hops := 0
	for l := root.level; l > level; {
		n, cached, err := s.inner(&p, l)
		if err == errDead {
			s.drop(from)
			err = s.Reread(p.addr)
			switch {
			case err != nil:
			case from == nil:
				root, err = s.relearnRoot()
			default:
				root, err = s.root()
			}
			if err == nil {
				hops, from = 0, nil
				p, l = path{addr: root.addr}, root.level
				if l < level {
					return p, errDead
				}
				continue
			}
		}
		if err != nil {
			return p, err
		}
		from = n
		if n.beyond(key, at) {
			if cached {
				s.drop(n) // it may have been merged with its sibling since
				continue
			}
			hops++
			most := s.mostHops()
			now, err := s.stale(&p, root, hops)
			if err != nil {
				return p, err
			}
			if !now.is(root) || hops > most {
				root, hops, from = now, 0, nil
				p, l = path{addr: root.addr}, root.level
				if l < level {
					return p, errDead
				}
				continue
			}
			p.addr = n.sibling
			continue
		}
		p = path{parent: n, cached: cached, child: n.pick(s.lay, key, at)}
		p.addr = n.children[p.child]
		l--
		hops = 0
	}
	return p, nil
}

// stale deals with a node, found by p, that does not reach far enough right: the copy that led to
// it is dropped; if there was none, the node was the root, which has a new one above it, or soon
// will have. It returns the root as it is known then.
func (s *session) stale(p *path, root *rootRef, hops int) (now *rootRef, err error) {
	if p.parent != nil {
		s.drop(p.parent)
	} else if hops == 1 {
		if now, err = s.renewRoot(root); err != nil {
			return nil, err
		}
	}
	if hops > s.mostHops() {
		s.far++
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
func (s *session) mostHops() int { return maxHops << min(s.far, 16) }

// follow goes on from a leaf whose range ends at or below key: to its right sibling, or after
// several of those down from the root again. The copy that led to the leaf is dropped, so that the
// next descent knows better. If it was no copy but just read, the sibling is not linked: noted, for
// link.
func (s *session) follow(p *path, l *slotted.Leaf, key []byte, hops *int) error {
	*hops++
	most := s.mostHops()
	root, err := s.root()
	if err != nil {
		return err
	}
	now, err := s.stale(p, root, *hops)
	if err != nil {
		return err
	}
	if !p.cached && *hops == 1 && now.is(root) {
		s.unlinked, s.metAt = l.Sibling, s.PS.Stamp()
		s.sep = append(s.sep[:0], l.High...)
	}
	if *hops <= most && (p.parent != nil || now.is(root)) {
		p.addr = l.Sibling
		return nil
	}
	*hops = 0
	*p, err = s.descend(key, fence.Holding, 0)
	return err
}

// errDead is returned where a node is dead: whatever led there is old.
var errDead = errors.New("node was merged into its left sibling")

// lost goes on from a dead leaf: what led there is dropped, and p found anew.
func (s *session) lost(p *path, key []byte) error {
	if p.parent != nil {
		s.drop(p.parent)
	}
	err := s.Reread(p.addr)
	if err == nil {
		*p, err = s.descend(key, fence.Holding, 0)
	}
	return err
}

// inner is the inner node where p leads: from the cache, or read. errStopped: see DescendNear.
func (s *session) inner(p *path, level uint8) (n *inner, cached bool, err error) {
	if p.parent != nil {
		if n := p.parent.kid(p.child, p.addr, level, s.Floor); n != nil {
			s.PS.Follows(n.Stamp)
			if level == 1 {
				n.ask()
			}
			return n, true, nil
		}
	}
	if n := s.t.cached(p.addr, s.Floor); n != nil && n.Level == level {
		s.PS.Follows(n.Stamp)
		if p.parent != nil {
			s.t.link(p.parent, p.child, n)
		}
		return n, true, nil
	}
	if s.near && level < SubtreeLevels {
		if w := (Way{p.addr, level}); s.t.leaves.Offload(s, w) {
			s.way = w
			s.Count.Misses++
			return nil, false, errStopped
		}
	}
	s.Count.Misses++
	n, err = s.readInner(p.addr, level)
	return n, false, err
}

// cached is the cache's copy of the node at a, if it has one that is not from before floor.
func (t *tree) cached(a pool.Addr, floor uint64) *inner {
	return innerOf(t.cache.Get(a, floor))
}

// drop takes a copy that proved old out of the cache. n may be nil.
func (s *session) drop(n *inner) {
	if n != nil {
		s.t.cache.Drop(&n.Head)
	}
}

// keep puts a copy that is as new as the operation under way into the cache.
func (s *session) keep(n *inner) {
	if n.Stamp = s.PS.Stamp(); s.t.leaves != nil {
		n.addHints()
	}
	s.t.cache.Put(&n.Head)
}

// readInner reads the inner node at a and keeps it in the cache. errDead: it is dead.
func (s *session) readInner(a pool.Addr, level uint8) (*inner, error) {
	for {
		if err := s.Read(a, s.node); err != nil {
			return nil, err
		}
		if n := decodeInner(s.lay, a, s.node); n != nil {
			if n.Level != level {
				return nil, fmt.Errorf("%v is on level %d of the tree: %w", n, level, index.ErrFormat)
			}
			s.keep(n)
			return n, nil
		}
		if unit.IsDead(a, s.node) {
			return nil, errDead
		}
		if err := s.Reread(a); err != nil {
			return nil, err
		}
	}
}

// beyond says whether what is looked for lies to the right of n: see header.beyond.
func (n *inner) beyond(key []byte, at fence.Side) bool {
	if n.numbers != nil && at == fence.Holding { // uint64 keys
		// in this order: rightmost is in a colder line
		return binary.BigEndian.Uint64(key) >= n.top && !n.rightmost
	}
	h := fence.Header{Rightmost: n.rightmost, High: n.high}
	return h.Beyond(key, at)
}

// pick is the number of the child in which what is looked for lies.
func (n *inner) pick(l *fence.Layout, key []byte, at fence.Side) int {
	if at == fence.Holding {
		return n.child(l, key)
	}
	if len(key) == 0 {
		return len(n.children) - 1
	}
	return n.childBelow(l, key)
}
