package art

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
)

// Unlink takes the leaf of slot w, which is gone, out of the tree, unless somebody else does.
func (s *Session) Unlink(key []byte, w Slot) error {
	for {
		there, err := s.Leads(key, w)
		if err != nil || !there {
			return err
		}
		st := &s.Path[s.Level]
		before := st.Word
		if before.Frozen() {
			if err := s.Replace(s.Level); err != nil {
				return err
			}
			continue
		}
		won, err := s.publish(st, TombOf(before, s.Env.Uint64()))
		if err != nil {
			return err
		}
		if won {
			return s.AfterUnlink(before)
		}
	}
}

// Leads descends to key and reports whether the slot there leads to the leaf of w. If not, that is
// proved: the leaf is out of the tree.
func (s *Session) Leads(key []byte, w Slot) (bool, error) {
	for {
		out, err := s.Seek(key)
		if err != nil {
			return false, err
		}
		if out == Leafed && s.Path[s.Level].Word.Addr() == w.Addr() {
			return true, nil
		}
		if proved, _, err := s.Confirm(key, out); proved || err != nil {
			return false, err
		}
	}
}

// AfterUnlink retires the leaf of slot w, which this session took out of the node where its descent
// ended, and replaces that if few children are left.
//
// A copy may have children that other clients took out lately. Who goes by copies alone leaves
// nodes without children behind, for as long as nobody deletes below them. So the node is READ in
// the round trip of the dead mark, mostly (isDue).
func (s *Session) AfterUnlink(w Slot) error {
	n := s.Path[s.Level].Node
	looks := s.isDue(n)
	if looks {
		s.PS.Read(n.Addr, s.Node[:n.Kind.Bytes()])
	}
	if err := s.RetireChild(w); err != nil {
		return err
	}
	if looks {
		s.Path[s.Level].Node = s.Renew(n, s.Node)
	}
	if err := s.shrink(s.Level); err != nil && (s.PS.Err() != nil || !errors.Is(err, index.ErrPoolFull)) {
		return err
	}
	return nil // without memory the node stays as it is
}

// isDue reports whether a node of which a child was taken out is to be READ: a small one each time,
// a larger one now and then. A larger one has many children, as far as its copy says, so that many
// deletes have to come, of which one READs it before all of them are gone.
func (s *Session) isDue(n *Copy) bool {
	return n.Kind.Bytes() <= alwaysRead || s.Env.Uint64()%lookEvery == 0
}

const (
	alwaysRead = 256 // bytes of a node that is READ each time
	lookEvery  = 32
)

// shrink replaces the node of Path[l] if it has few children, and then looks at those above it.
func (s *Session) shrink(l int) error {
	for first := l; l > 0; l-- {
		n := s.Path[l].Node
		if l < first && s.isDue(n) {
			if err := s.Read(n.Addr, s.Node[:n.Kind.Bytes()]); err != nil {
				return err
			}
			n = s.Renew(n, s.Node)
			s.Path[l].Node = n
		}
		if !n.sparse(&s.t.with) {
			only := n.single()
			if !only.Inner() {
				return nil
			}
			if ok, err := s.mergeable(l, only); err != nil || !ok {
				return err
			}
		}
		if _, err := s.replaceWith(l, nil, true); err != nil {
			return err
		}
	}
	return nil
}
