package art

import "github.com/dmindex/dmindex/pkg/pool"

// SeeBelow tells node of each inner node below branch b of the root, and leaf of each leaf's slot,
// as this operation READs them. It is a piece of a sweep's walk. A node that is replaced meanwhile
// has what it had when it was frozen, so whatever is in the tree during all of the walk is seen.
// One that is marked dead before it is READ says nothing: the piece begins anew. leaf reports
// whether its leaf is out: then what has taken its place may be in slots of the node that were READ
// before, and the node is READ again.
func (c *Walker) SeeBelow(b int, node func(pool.Addr), leaf func(Slot) (out bool, err error)) error {
	for {
		if err := c.s.readRoot(); err != nil {
			return err
		}
		again, err := c.see(nil, pool.Nil, c.s.t.RootSlot(), 0, b, b, node, leaf)
		if err != nil || !again {
			return err
		}
		if err := c.s.Retry(); err != nil {
			return err
		}
	}
}

// see is SeeBelow for branches from first to last of the node where w leads, which is a slot of the
// node at a with head p; nil = it is the root. again: it is marked dead.
func (c *Walker) see(p *Header, a pool.Addr, w Slot, level, first, last int, node func(pool.Addr), leaf func(Slot) (out bool, err error)) (again bool, err error) {
	if level == len(c.frames) {
		c.frames = append(c.frames, new(Frame))
	}
	f := c.frames[level]
	if err := c.s.Read(w.Addr(), c.s.Node[:NodeType(w.Code()).Bytes()]); err != nil {
		return false, err
	}
	if f.Take(&c.s.t.lay, w, c.s.Node); f.Dead {
		return true, nil
	}
	if p != nil && !f.Under(p) {
		return false, IsAstray(a, p, w, &f.Header)
	}
	for b := f.From(first, false); b <= last && b != BehindAll; b = f.From(b+1, false) {
		v := f.Word(b)
		switch {
		case c.s.t.lay.Damaged(v, b == EndBranch):
			err = IsDamaged(w.Addr(), v)
		case v.Leaf():
			var out bool
			if out, err = leaf(v); out && err == nil {
				if err = c.s.Retry(); err == nil {
					return c.see(p, a, w, level, first, last, node, leaf)
				}
			}
		default:
			node(v.Addr())
			again, err = c.see(&f.Header, w.Addr(), v, level+1, EndBranch, Highest, node, leaf)
		}
		if again || err != nil {
			return again, err
		}
	}
	return false, nil
}
