package art

import "bytes"

// Which child of a node lies beside a place in the order of branches: the end slot's first, then
// those of bytes. Searched nodes have their children in no order, but a load, and whoever copies a
// node that was loaded, puts them in ascending order. Most slots have their partial keys side by
// side in a copy: these are looked at from the last one on, and a word only where its key is nearer
// than all before. Behind the first empty slot there is no child. Where there are many keys the
// next smaller one mostly is near: so these bytes are sought first, each with an instruction for
// many keys.
const (
	many  = 32
	tries = 16
)

// below is the child at the greatest branch below b, and its slot; -1 = there is none.
func (c *Copy) below(b int) (i int, w Slot) {
	if b <= EndBranch {
		return -1, 0
	}
	base := c.Base()
	if c.Kind == Direct {
		for i := base + b - 1; i >= base; i-- {
			if w := c.Word(i); w.Child() {
				return i, w
			}
		}
		return c.ending()
	}
	best, at := EndBranch, -1 // nearer is what lies between best and b
	keys := c.partial()
	for i := base + len(keys); i < c.Size(); i++ {
		v := c.Word(i)
		if v.Empty() {
			break
		}
		if k := int(v.Key()); v.Child() && best < k && k < b {
			best, at, w = k, i, v
		}
	}
	if len(keys) >= many {
		for k := b - 1; k > max(best, b-1-tries); k-- {
			if i := bytes.IndexByte(keys, byte(k)); i >= 0 {
				if v := c.Word(base + i); v.Child() {
					return base + i, v
				}
			}
		}
	}
	for i := len(keys) - 1; i >= 0; i-- {
		if k := int(keys[i]); uint(k-best-1) < uint(b-best-1) {
			if v := c.Word(base + i); v.Child() {
				best, at, w = k, base+i, v
			}
		}
	}
	if at >= 0 {
		return at, w
	}
	return c.ending()
}

// ending is the child of the end slot, and its slot; -1 = there is none.
func (c *Copy) ending() (i int, w Slot) {
	if c.Ends {
		if w := c.Word(0); w.Child() {
			return 0, w
		}
	}
	return -1, 0
}

// above is the child at the smallest branch above b, and its slot; -1 = there is none.
func (c *Copy) above(b int) (i int, w Slot) {
	base := c.Base()
	if b < EndBranch {
		if i, w := c.ending(); i >= 0 {
			return i, w
		}
		b = EndBranch
	}
	if c.Kind == Direct {
		for i := base + b + 1; i < c.Size(); i++ {
			if w := c.Word(i); w.Child() {
				return i, w
			}
		}
		return -1, 0
	}
	best, at := BehindAll, -1
	keys := c.partial()
	for i, key := range keys {
		if k := int(key); uint(k-b-1) < uint(best-b-1) {
			if v := c.Word(base + i); v.Child() {
				best, at, w = k, base+i, v
			}
		}
	}
	for i := base + len(keys); i < c.Size(); i++ {
		v := c.Word(i)
		if v.Empty() {
			break
		}
		if k := int(v.Key()); v.Child() && b < k && k < best {
			best, at, w = k, i, v
		}
	}
	return at, w
}
