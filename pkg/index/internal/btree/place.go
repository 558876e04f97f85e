package btree

import (
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Where nodes lie. Nodes of Sherman's tree are dealt out to the memory servers in turns. In a
// design with a [LeafCache] the nodes of a subtree, one of level 2 with its children and their
// leaves, lie on one memory server, so that it can look for a key among them by itself (DEX,
// section 3, with M = 3 levels); and subtrees are dealt out in turns.
//
//   - A leaf that comes from a split lies with the one that was split. So the leaves that one leaf
//     becomes lie together, and next to each other.
//   - While the tree has fewer than three levels there is nothing to look for, and leaves are dealt
//     out. They are what later becomes subtrees on all servers.
//   - Leaves at the right end, which a load in ascending order makes, change the server each time
//     some four subtrees are full.
//   - An inner node of level 1 or 2 lies where most of its children lie.
//   - A bulk load changes the server with each node of level 2; below the first few of these with
//     each of level 1, since an index may have no more than those.
//
// It is a matter of speed alone: any node may lie anywhere, as it does where a server is full, and
// who looks for a key on one server says how far it came.

// SubtreeLevels is how many levels a subtree has.
const SubtreeLevels = 3

// placeLeaf returns where the leaf shall lie that the leaf at a is split for; Nil = anywhere. last:
// it is the last leaf of all, and will hold the largest key.
func (s *Session) placeLeaf(a pool.Addr, last bool) pool.Addr {
	t := s.t
	if t.leafCache == nil || t.root.Load().level < SubtreeLevels-1 || last && t.ascents.Add(1)%(4*leavesOfSubtree(&t.Lay)) == 0 {
		return pool.Nil
	}
	return a
}

// leavesOfSubtree is about how many there are.
func leavesOfSubtree(l *fence.Layout) uint64 {
	separator := 8
	if !l.Uint64 {
		separator = min(l.MaxKey, 16) + 2
	}
	children := uint64(max(2, l.NodeBytes*Fill/100/(childBytes+separator)))
	return children * children
}

// placeInner returns where an inner node of a level with these children shall lie; Nil = anywhere.
func (t *Tree) placeInner(level uint8, children []pool.Addr) pool.Addr {
	if t.leafCache == nil || level >= SubtreeLevels {
		return pool.Nil
	}
	most, best := 0, pool.Nil
	// there are few servers: the first child is with the most nearly always
	for _, c := range children {
		n := 0
		for _, o := range children {
			if o.Server() == c.Server() {
				n++
			}
		}
		if n > most {
			most, best = n, c
		}
		if most > len(children)/2 {
			break
		}
	}
	return best
}

// place is where the next node that is made on a level shall lie, or one with these children. Where
// leaves have owners, subtrees lie together. All other inner nodes take turns among the servers,
// each level by itself: in one order with the leaves below them, they would all lie on one server
// where their number of children happens to fit the number of servers.
func (ld *Builder) place(level int, children []pool.Addr) pool.Addr {
	switch together := ld.t.leafCache != nil && level < SubtreeLevels; {
	case together && len(children) > 0:
		return ld.t.placeInner(uint8(level), children)
	case together:
		return ld.home
	case level == 0:
		return pool.Nil // the pool's turn
	}
	for len(ld.turns) <= level {
		ld.turns = append(ld.turns, len(ld.turns))
	}
	ld.turns[level]++
	return pool.NewAddr(ld.servers[ld.turns[level]%len(ld.servers)], 0)
}

// scattered is below how many nodes of level 2, for each server, a bulk load changes the server
// with each node of level 1.
const scattered = 2

// leaveHome is called when a node of level 1 ends: if the one of level 2 will be full with it, what
// comes next lies on another server.
func (ld *Builder) leaveHome(level int) {
	if level != SubtreeLevels-2 {
		return
	}
	if len(ld.levels) <= level {
		ld.home = pool.Nil
		return
	}
	r := ld.levels[level]
	n, limit := len(r.Children), ld.t.Lay.NodeBytes*Fill/100
	size := fence.RoundUp(fence.HeaderBytes+2*len(r.Low)) + r.bytes
	last := n > 0 && size <= limit && size+r.bytes/n > limit
	if last {
		ld.subtrees++
	}
	if last || ld.subtrees < scattered*len(ld.servers) {
		ld.home = pool.Nil
	}
}
