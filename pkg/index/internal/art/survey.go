package art

import "github.com/dmindex/dmindex/pkg/pool"

// Survey visits the lowest key that may lie in each leaf, with the leaf's bytes, in the order of
// keys. That begins at the bytes that the leaf's place in the tree stands for, with zeros behind,
// up to so many bytes as bottom has. An index without leaves has the range of its root.
func (c *Walker) Survey(bottom []byte, visit func(low []byte, bytes int) error) error {
	err := c.s.readRoot()
	if err == nil {
		err = c.survey(nil, pool.Nil, c.s.t.RootSlot(), 0, func(path []byte, bytes int) error { return visit(c.low(bottom, path), bytes) })
	}
	if err == nil && c.key == nil {
		err = visit(c.low(bottom, nil), AllocatedFor(Direct.Bytes()))
	}
	return err
}

// survey visits what is below the node where w leads, which is a slot of the node at a with outline
// p; nil = it is the root.
func (c *Walker) survey(p *Outline, a pool.Addr, w Slot, level int, visit func(path []byte, bytes int) error) error {
	if level == len(c.frames) {
		c.frames = append(c.frames, new(Frame))
	}
	f := c.frames[level]
	if err := c.s.readFrame(f, w); err != nil {
		return err
	}
	if p != nil && !f.Under(p) {
		return IsAstray(a, p, w, &f.Outline)
	}
	n := len(c.Path)
	if depth := int(f.Depth); depth <= n && f.End() >= n {
		c.Path = append(c.Path, f.Header.Prefix[n-depth:f.Length]...)
	}
	at := len(c.Path)
	for b := f.From(BeforeAll, false); b != BehindAll; b = f.From(b+1, false) {
		c.Path = c.Path[:at]
		if b != EndBranch {
			c.Path = append(c.Path, byte(b))
		}
		var err error
		if v := f.Word(b); c.s.t.lay.Damaged(v, b == EndBranch) {
			err = IsDamaged(w.Addr(), v)
		} else if v.Inner() {
			err = c.survey(&f.Outline, w.Addr(), v, level+1, visit)
		} else {
			err = visit(c.Path, AllocatedFor(c.s.t.lay.LeafBytesOf(v)))
		}
		if err != nil {
			return err
		}
	}
	c.Path = c.Path[:n]
	return nil
}

// low is the lowest key that begins with path.
func (c *Walker) low(bottom, path []byte) []byte {
	c.key = append(c.key[:0], path...)
	for len(c.key) < len(bottom) {
		c.key = append(c.key, 0)
	}
	if c.key == nil {
		c.key = []byte{}
	}
	return c.key
}
