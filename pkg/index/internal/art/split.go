package art

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Fork (SMART, section 4.1.2, leaf split): the slot leads to a leaf with another place, other. A
// new node takes its place, which has both leaves; or a chain of nodes, where the places share more
// bytes than one prefix has room for. The requests:
//
//  1. WRITE of the new leaf, and of the new nodes: nobody knows them;
//  2. CAS of the slot, from the leaf to the first node: the change takes effect. Whoever has the
//     old word finds the other leaf where it was.
func (s *Session) Fork(n Newcomer, other []byte) (done bool, err error) {
	return s.forkWith(n, other, s.Path[s.Level].Word)
}

// ForkOver is Fork where the leaf that the slot leads to is out: the new node has to, with the same
// place, instead of it, so the swap of 2 does what ReplaceLeaf does besides. The leaf is retired.
// done with an error: all but that is done.
func (s *Session) ForkOver(n Newcomer, other []byte, to Slot) (done bool, err error) {
	before := s.Path[s.Level].Word
	if done, err = s.forkWith(n, other, to); done && err == nil {
		err = s.RetireChild(before)
	}
	return done, err
}

// forkWith is Fork, with a leaf at the place other in the new node.
func (s *Session) forkWith(n Newcomer, other []byte, to Slot) (done bool, err error) {
	st, key := &s.Path[s.Level], n.Place()
	from := st.Node.End() + 1 // the slot stands for the byte before
	common := item.CommonPrefix(key, other)
	if common < from {
		return false, fmt.Errorf("leaf %v lies in a node for keys that begin with %x, as its own key does not: %w", st.Word.Addr(), key[:from], index.ErrFormat)
	}
	near := s.Place(st)
	leaf, err := n.Allot(near)
	first := len(s.made)
	if near == pool.Nil {
		near = leaf.Addr()
	}
	if err == nil {
		err = s.planNodes(s.chain(from, common), near)
	}
	if err == nil {
		err = s.lockNode(st)
	}
	if err == nil {
		err = n.Queue(near)
	}
	if err != nil {
		s.Discard()
		return false, err
	}
	children := [2]Slot{s.t.lay.hang(leaf, key, common), s.t.lay.hang(to, other, common)}
	w, err := s.makeFork(first, key, from, common, children, Branch(other, common))
	if err != nil {
		return false, err
	}
	return s.publish(st, w.WithKey(st.Word.Key()))
}

// chain is how many nodes makeFork makes.
func (s *Session) chain(from, common int) int {
	return 1 + (common-from)/(s.t.with.longestPrefix()+1)
}

// planNodes allocates n nodes of the smallest type that there is memory for. They come behind the
// leaf in s.made.
func (s *Session) planNodes(n int, near pool.Addr) error {
	for range n {
		if _, err := s.allocateNode(s.t.with.typeFor(0), near); err != nil {
			return err
		}
	}
	return nil
}

// makeFork makes the node that has two children: one for key, and one at another branch for keys
// that are the same up to common. Above it stand as many nodes with one child as it takes, so that
// the prefixes and slots have all bytes from from on. The memory of all of them is that in s.made,
// from first on. It returns the word of the uppermost one.
func (s *Session) makeFork(first int, key []byte, from, common int, children [2]Slot, other int) (Slot, error) {
	var h Header
	most := s.t.with.longestPrefix()
	// the fork has what the chain leaves
	depth := from + (common-from)/(most+1)*(most+1)
	h.setPrefix(depth, key[depth:common])
	nodes, used := s.made[first:], 0
	w, err := s.makeNode(&nodes, &used, &h, children, [2]int{Branch(key, common), other})
	for err == nil && depth > from {
		depth -= most + 1
		h.setPrefix(depth, key[depth:depth+most])
		w, err = s.makeNode(&nodes, &used, &h, [2]Slot{w}, [2]int{int(key[depth+most])})
	}
	return w, err
}

// makeNode queues the WRITE of the first one of nodes, which it takes, with one or two children.
// used is how much of s.nodes has images whose WRITEs are queued.
func (s *Session) makeNode(nodes *[]made, used *int, h *Header, children [2]Slot, branches [2]int) (Slot, error) {
	a, size := (*nodes)[0].at, (*nodes)[0].size
	*nodes = (*nodes)[1:]
	h.Kind = typeIn(size)
	if *used+size > min(len(s.nodes), max(size, chainNodes*AddrUnit)) {
		if err := s.PS.Post(); err != nil {
			s.Forget()
			return 0, op.Failure(err, false)
		}
		*used = 0
	}
	b := h.Build(s.t.lay.Sums, s.nodes[*used:], a, unit.NewVersion(s.Env))
	*used += size
	next := s.t.lay.Base()
	for i, c := range children {
		if c != 0 {
			putChild(b, h.Kind, s.t.lay.Base(), &next, branches[i], c)
		}
	}
	s.PS.Write(pool.Sole, a, b)
	p, _ := Pack(a)
	return InnerSlot(0, h.Kind, p), nil
}

// headerSplit (SMART, section 4.1.2): the slot leads to a node whose prefix the key does not have.
// A new node takes its place, which has that node and the new leaf, and the part of the prefix
// before. The node below stays as it is: its prefix says of all its keys what it said before. So
// nothing has to be put right below, neither before the insert is answered nor afterwards, and
// whoever comes to the node by an old copy finds the same keys in it. The requests are those of
// Fork.
func (s *Session) headerSplit(n Newcomer) (done bool, err error) {
	st := &s.Path[s.Level]
	if st.Word.Frozen() {
		return false, s.Replace(s.Level)
	}
	below, key := s.Path[s.Level+1].Node, n.Place()
	at := below.Mismatch(key) // behind the slot's byte (follow)
	from := st.Node.End() + 1
	near := st.Node.Addr
	leaf, err := n.Allot(near)
	first := len(s.made)
	if err == nil {
		err = s.planNodes(s.chain(from, at), near)
	}
	if err == nil {
		err = s.lockNode(st)
	}
	if err == nil {
		err = n.Queue(near)
	}
	if err != nil {
		s.Discard()
		return false, err
	}
	w, err := s.makeFork(first, key, from, at, [2]Slot{s.t.lay.hang(leaf, key, at), st.Word}, int(below.Prefix()[at-int(below.Depth)]))
	if err != nil {
		return false, err
	}
	return s.publish(st, w.WithKey(st.Word.Key()))
}
