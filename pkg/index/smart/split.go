package smart

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// leafSplit (section 4.1.2): the slot leads to a leaf with another key, alive, which is in s.leaf.
// A new node takes its place, which has both leaves; or a chain of nodes, where the keys share more
// bytes than one prefix has room for. The requests:
//
//  1. WRITE of the new leaf, and of the new nodes: nobody knows them;
//  2. CAS of the slot, from the leaf to the first node: the insert takes effect. Whoever has the
//     old word finds the other leaf where it was.
func (s *Session) leafSplit(key, value []byte) (done bool, err error) {
	st := &s.Path[s.Level]
	other := st.Word
	s.other = s.leaf.appendKey(s.other[:0])
	from := st.Node.End() + 1 // the slot stands for the byte before
	common := item.CommonPrefix(key, s.other)
	if common < from {
		return false, fmt.Errorf("leaf %v lies in a node for keys that begin with %x, as its own key does not: %w", other.Addr(), key[:from], index.ErrFormat)
	}
	p, err := s.planLeaf(key, value, s.Place(st))
	near := p.at
	if err == nil {
		err = s.planNodes(s.chain(from, common), near)
	}
	if err == nil {
		err = s.LockNode(st)
	}
	if err == nil {
		err = s.writeLeaf(&p, key, value, near)
	}
	if err != nil {
		s.Discard()
		return false, err
	}
	w, err := s.makeFork(key, from, common, p.word, other, s.other)
	if err != nil {
		return false, err
	}
	return s.publish(st, w.WithKey(st.Word.Key()))
}

// chain is how many nodes makeFork makes.
func (s *Session) chain(from, common int) int {
	return 1 + (common-from)/(s.t.with.LongestPrefix()+1)
}

// planNodes allocates n nodes of the smallest type, which come behind the leaf in made.
func (s *Session) planNodes(n int, near pool.Addr) error {
	for range n {
		if _, _, err := s.Allocate(s.t.with.TypeFor(0).Bytes(), near); err != nil {
			return err
		}
	}
	return nil
}

// makeFork makes the node that has two children, one for key and one for the keys that other is one
// of: they are the same up to common. Above it stand as many nodes with one child as it takes, so
// that the prefixes and slots have all bytes from from on. It returns the word of the first one.
func (s *Session) makeFork(key []byte, from, common int, child, second art.Slot, other []byte) (art.Slot, error) {
	h, most := art.Header{Kind: s.t.with.TypeFor(0)}, s.t.with.LongestPrefix()
	// the fork has what the chain leaves
	depth := from + (common-from)/(most+1)*(most+1)
	h.SetPrefix(depth, key[depth:common])
	n := 0
	w, err := s.makeNode(&n, &h, [2]art.Slot{child, second}, [2]int{art.Branch(key, common), art.Branch(other, common)})
	for err == nil && depth > from {
		depth -= most + 1
		h.SetPrefix(depth, key[depth:depth+most])
		w, err = s.makeNode(&n, &h, [2]art.Slot{w}, [2]int{int(key[depth+most])})
	}
	return w, err
}

// makeNode queues the WRITE of the n-th node that was planned, with one or two children.
func (s *Session) makeNode(n *int, h *art.Header, children [2]art.Slot, branches [2]int) (art.Slot, error) {
	room := art.AllocatedFor(h.Kind.Bytes())
	at := *n % min(art.ChainNodes, len(s.Nodes)/room)
	if *n > 0 && at == 0 {
		if err := s.PS.Post(); err != nil {
			s.Forget()
			return 0, op.Failure(err, false)
		}
	}
	a := s.Made[1+*n].At
	*n++
	b := h.Build(s.lay.Sums, s.Nodes[at*room:], a, unit.NewVersion(s.Env))
	next := s.lay.Base()
	for i, c := range children {
		if c != 0 {
			art.PutChild(b, h.Kind, s.lay.Base(), &next, branches[i], c)
		}
	}
	s.PS.Write(pool.Sole, a, b)
	p, _ := art.Pack(a)
	return art.InnerSlot(0, h.Kind, p), nil
}

// headerSplit (section 4.1.2): the slot leads to a node whose prefix the key does not have. A new
// node takes its place, which has that node and the new leaf, and the part of the prefix before.
// The node below stays as it is: its prefix says of all its keys what it said before. So nothing
// has to be put right below, neither before the insert is answered nor afterwards, and whoever
// comes to the node by an old copy finds the same keys in it. The requests are those of leafSplit.
func (s *Session) headerSplit(key, value []byte) (done bool, err error) {
	st := &s.Path[s.Level]
	if st.Word.Frozen() {
		return false, s.replace(s.Level)
	}
	below := s.Path[s.Level+1].Node
	at := below.Mismatch(key) // behind the slot's byte (follow)
	from := st.Node.End() + 1
	near := st.Node.Addr
	p, err := s.planLeaf(key, value, near)
	if err == nil {
		err = s.planNodes(s.chain(from, at), near)
	}
	if err == nil {
		err = s.LockNode(st)
	}
	if err == nil {
		err = s.writeLeaf(&p, key, value, near)
	}
	if err != nil {
		s.Discard()
		return false, err
	}
	s.other = append(append(s.other[:0], key[:at]...), below.Prefix[at-int(below.Depth)])
	w, err := s.makeFork(key, from, at, p.word, st.Word, s.other)
	if err != nil {
		return false, err
	}
	return s.publish(st, w.WithKey(st.Word.Key()))
}
