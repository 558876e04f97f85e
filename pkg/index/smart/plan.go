package smart

import (
	"slices"

	"github.com/dmindex/dmindex/pkg/index/internal/art"
)

// The READs of one round of a scan: in the order of its walk, the slots of the nodes that it comes
// to and the leaves below them, as copies of nodes say, and nodes that it has READ ahead. So with
// all inner nodes cached a scan READs their slots and the leaves in one round trip: the slots prove
// that the copies lack nothing. Of a node of type direct these are the slots from the place where
// the walk comes to it to where enough pairs lie before, as far as is known. Behind a node that has
// no copy it is not known what comes next. Then only such nodes are READ besides, as far as pairs
// seem to be wanted of them: the walk goes down by level.

const (
	mostAhead = 2 * mostReads // nodes READ ahead, but for those that copies led to in vain
	mostLooks = 4 * mostReads // copies that one plan looks at
)

// plans is a plan under way.
type plans struct {
	wanted int  // pairs
	blind  bool // a node without a copy comes before
	looks  int
	nodes  []plannedNode // that are READ, whole or in part
}

// plannedNode is a node, or slots of it, that a round READs.
type plannedNode struct {
	node  art.Slot   // where it lies, with its type
	known *art.Frame // the slots from first on are READ; nil = all of the node is
	first int
	read  int // its number in the round
}

// readAhead READs what the walk is about to need.
func (s *Session) readAhead() error {
	sc, p := s.scan, &s.scan.plan
	s.ring.reset()
	if len(sc.ahead) > mostAhead+mostReads {
		sc.free = append(sc.free, sc.ahead...) // some of it was in vain
		sc.ahead = sc.ahead[:0]
	}
	*p = plans{wanted: sc.left, nodes: p.nodes[:0]}
	more, root := true, s.t.RootSlot()
	if len(sc.stack) == 0 {
		if sc.bounded {
			p.wanted++ // the first leaf may lie before the cursor
		}
		more = s.planNode(nil, root, sc.bounded)
	}
	for l := len(sc.stack) - 1; l >= 0 && more; l-- {
		f := sc.stack[l]
		more = s.planBelow(f, f.Next)
	}
	if err := s.fetchAll(mostGap); err != nil {
		return err
	}
	frozen := false
	for i := range p.nodes {
		n := &p.nodes[i]
		if b := s.ring.bytes(n.read); n.known == nil {
			s.takeNode(n.node, b)
		} else if s.takeSlots(n, b) && n.node.Addr() == root.Addr() {
			frozen = true
		}
	}
	if !frozen {
		return nil
	}
	// A slot of the root that is frozen says what the tree has only if the root's way is 0.
	if moved, err := s.RootMovedFrom(root.Addr()); !moved || err != nil {
		return err
	}
	return s.astray(root.Addr())
}

// takeNode notes the node where w leads, all of which was READ.
func (s *Session) takeNode(w art.Slot, b []byte) {
	f := s.scan.frame()
	f.Take(&s.lay.Layout, w, b)
	if len(b) == art.RootBytes && art.WayOf(b) != 0 {
		s.t.FollowWay(w.Addr(), art.WayOf(b))
		f.Dead = true
	}
	s.scan.ahead = append(s.scan.ahead, f)
	if !f.Dead {
		s.Keep(w, b)
	}
}

// takeSlots notes slots that were READ. It reports whether one of them is frozen.
func (s *Session) takeSlots(n *plannedNode, b []byte) bool {
	f := n.known
	f.Learn(n.first, b)
	if c := s.CopyAt(n.node); c != nil && s.MayRenew(c) && c.Size() == len(f.Words) {
		s.RenewFrom(c, n.first, b)
	}
	return slices.ContainsFunc(f.Words[n.first:n.first+len(b)/art.SlotBytes], art.Slot.Frozen)
}

// planNode plans for the node where w leads, and what is below it. parent has w; nil = it is the
// root. It reports false when enough is planned, and where w leads astray: what is behind is not
// reached, as the walk ends there.
func (s *Session) planNode(parent *art.Frame, w art.Slot, tight bool) bool {
	sc, p := s.scan, &s.scan.plan
	for _, f := range sc.ahead {
		if f.At == w&art.AddrMask {
			if f.Dead || parent != nil && !f.Under(&parent.Outline) {
				return false
			}
			return !sc.enter(f, tight) || s.planBelow(f, f.Next)
		}
	}
	c := s.CopyAt(w)
	if p.looks++; p.looks > mostLooks {
		return false
	}
	if c == nil {
		if p.blind && len(sc.ahead)+len(p.nodes) >= mostAhead {
			return false
		}
		p.blind = true
		p.wanted -= art.NodeType(w.Code()).Slots() / 2
		s.Count.Misses++
		return s.planRead(w) && p.wanted > 0
	}
	if parent != nil && !c.Under(&parent.Outline) {
		s.planRead(w) // which the walk takes, and ends
		return false
	}
	f := sc.frame()
	f.CopyFrom(w, c)
	if !p.blind {
		s.Count.Hits++
		sc.ahead = append(sc.ahead, f)
	} else {
		defer sc.release(f)
	}
	return !sc.enter(f, tight) || s.planBelow(f, f.Next)
}

// planRead plans the READ of the node where w leads.
func (s *Session) planRead(w art.Slot) bool {
	p := &s.scan.plan
	size := art.NodeType(w.Code()).Bytes()
	if w.Addr() == s.t.RootAddr() {
		size = art.RootBytes
	}
	i := s.fetch(w, 0, size)
	if i < 0 {
		return false
	}
	p.nodes = append(p.nodes, plannedNode{node: w, read: i})
	return true
}

// planSlots plans the READ of the slots of f from one branch to another, to, as a part of the k-th
// READ of nodes, which is the one of the slots before them; -1 = there is none. Of a node that is
// searched it is all slots: to is the last branch then. It returns k; -1 if the round is full.
func (s *Session) planSlots(f *art.Frame, k, first, last int) (to, in int) {
	sc, p := s.scan, &s.scan.plan
	lo, hi := f.Base+min(first, last), f.Base+max(first, last)+1
	if f.Kind != art.Direct {
		lo, hi, last = 0, len(f.Words), art.Highest
		if sc.reverse {
			last = f.Lowest()
		}
	}
	bytes := art.SlotBytes * (hi - lo)
	if k >= 0 {
		if !s.ring.grow(p.nodes[k].read, bytes, sc.reverse) {
			return 0, -1
		}
		p.nodes[k].first = min(p.nodes[k].first, lo)
		return last, k
	}
	i := s.fetch(f.At, art.SlotAt(lo), bytes)
	if i < 0 {
		return 0, -1
	}
	p.nodes = append(p.nodes, plannedNode{node: art.InnerSlot(0, f.Kind, f.At), known: f, first: lo, read: i})
	return last, len(p.nodes) - 1
}

// planBelow plans for what is below f from a place on.
func (s *Session) planBelow(f *art.Frame, place int) bool {
	sc, p := s.scan, &s.scan.plan
	if f.Passed(place, sc.reverse) {
		return true
	}
	known, k := f.KnownTo(place, sc.reverse), -1 // or planned, as the k-th of nodes
	for {
		b := f.From(place, sc.reverse)
		if !p.blind && !f.Within(b, known, sc.reverse) {
			last := f.Reach(place, p.wanted, sc.reverse)
			if known, k = s.planSlots(f, k, sc.step(known), last); k < 0 {
				return false
			}
		}
		if b == art.BehindAll || b == art.BeforeAll {
			return true
		}
		w := f.Word(b)
		switch {
		case s.lay.Damaged(w, b == art.EndBranch): // the walk says so, if it comes there
			return false
		case w.Inner():
			if !s.planNode(f, w, sc.leads(f, b)) {
				return false
			}
		case !p.blind && s.fetchLeaf(w) < 0:
			return false
		default:
			p.wanted--
		}
		if p.wanted <= 0 {
			return false
		}
		place = sc.step(b)
	}
}
