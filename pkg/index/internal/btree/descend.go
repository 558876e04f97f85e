package btree

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Path is where a descent ended.
type Path struct {
	parent *inner    // the copy that led there; nil if the root itself was looked for
	child  int       // the number of addr in it
	cached bool      // parent was in the cache, so it may be old
	addr   pool.Addr // of the node
}

// Addr is where the path leads.
func (p *Path) Addr() pool.Addr { return p.addr }

// Next is the i-th leaf to the right of where the path leads that has the same parent, and the
// lowest key of its range, as the copy of the parent has them. ok is false if it has none.
func (p *Path) Next(i int) (a pool.Addr, low []byte, ok bool) {
	if p.parent == nil || p.child+i >= len(p.parent.children) {
		return pool.Nil, nil, false
	}
	return p.parent.children[p.child+i], p.parent.separator(p.child + i - 1), true
}

// Sibling is what comes next on the level of where the path leads, as the copy of the parent has
// it: Nil behind the last node of all. ok is false if that copy does not say.
func (p *Path) Sibling() (a pool.Addr, ok bool) {
	switch {
	case p.parent == nil || p.parent.children[p.child] != p.addr:
		return pool.Nil, false
	case p.child+1 < len(p.parent.children):
		return p.parent.children[p.child+1], true
	}
	return pool.Nil, p.parent.rightmost
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
func (s *Session) descend(key []byte, at fence.Side, level uint8) (Path, error) {
	root, err := s.root()
	if err != nil {
		return Path{}, err
	}
	p := Path{addr: root.addr}
	var from *inner // the copy that p.addr is from
	hops := 0
	for l := root.level; l > level; {
		n, cached, err := s.inner(&p, l)
		if err == errDead {
			s.evict(from)
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
				p, l = Path{addr: root.addr}, root.level
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
				s.evict(n) // it may have been merged with its sibling since
				continue
			}
			hops++
			most := s.mostHops()
			now, err := s.evictStale(&p, root, hops)
			if err != nil {
				return p, err
			}
			if !now.equal(root) || hops > most {
				root, hops, from = now, 0, nil
				p, l = Path{addr: root.addr}, root.level
				if l < level {
					return p, errDead
				}
				continue
			}
			p.addr = n.sibling
			continue
		}
		p = Path{parent: n, cached: cached, child: n.pick(s.Lay, key, at)}
		p.addr = n.children[p.child]
		l--
		hops = 0
	}
	return p, nil
}

// inner is the inner node where p leads: from the cache, or read. errStopped: see DescendNear.
func (s *Session) inner(p *Path, level uint8) (n *inner, cached bool, err error) {
	if p.parent != nil {
		if n := p.parent.cachedChild(p.child, p.addr, level, s.Floor); n != nil {
			s.PS.Follows(n.Stamp)
			if level == 1 {
				n.prefetch()
			}
			return n, true, nil
		}
	}
	if n := s.t.cached(p.addr, s.Floor); n != nil && n.Level() == level {
		s.PS.Follows(n.Stamp)
		if p.parent != nil {
			s.t.swizzle(p.parent, p.child, n)
		}
		return n, true, nil
	}
	if s.mayOffload && level < SubtreeLevels {
		if w := (Way{p.addr, level}); s.t.leafCache.Offload(s, w) {
			s.offloadAt = w
			s.Count.Misses++
			return nil, false, errStopped
		}
	}
	s.Count.Misses++
	n, err = s.readInner(p.addr, level)
	if err == nil && s.t.config.Paths != nil && p.parent != nil {
		s.t.swizzle(p.parent, p.child, n) // else the parent might be evicted before it
	}
	return n, false, err
}

// cached is the cache's copy of the node at a, if it has one that is not from before floor.
func (t *Tree) cached(a pool.Addr, floor uint64) *inner {
	return innerOf(t.cache.Get(a, floor))
}

// evict removes a copy that proved old from the cache. n may be nil.
func (s *Session) evict(n *inner) {
	if n != nil {
		s.t.cache.Drop(&n.Head)
	}
}

// admit puts a copy that is as new as the operation under way into the cache.
func (s *Session) admit(n *inner) { s.admitPart(n, nil) }

// admitPart is admit of a copy of a node that was split from the one that whole is a copy of; nil =
// it is a copy of the same node as the one that the cache has, if it has one.
func (s *Session) admitPart(n, whole *inner) {
	if n.Stamp = s.PS.Stamp(); s.t.leafCache != nil && !s.t.config.NoHints {
		n.addHints()
		if n.Level() == 1 && s.t.config.Paths == nil { // else a hint stands for a leaf in the cache
			if whole == nil {
				whole = s.t.cached(n.Addr, 0)
			}
			n.takeHints(whole)
		}
	}
	s.t.cache.Put(&n.Head)
}

// readInner reads the inner node at a and keeps it in the cache. errDead: it is dead.
func (s *Session) readInner(a pool.Addr, level uint8) (*inner, error) {
	for {
		if err := s.Read(a, s.Node); err != nil {
			return nil, err
		}
		if n := decodeInner(s.Lay, a, s.Node); n != nil {
			if n.Level() != level {
				return nil, fmt.Errorf("%v is on level %d of the tree: %w", n, level, index.ErrFormat)
			}
			s.admit(n)
			return n, nil
		}
		if unit.IsDead(a, s.Node) {
			return nil, errDead
		}
		if err := s.Reread(a); err != nil {
			return nil, err
		}
	}
}

// beyond reports whether what is looked for lies to the right of n: see fence.Header.Beyond.
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
