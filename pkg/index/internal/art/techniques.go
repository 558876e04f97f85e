package art

// Techniques are those of inner nodes. They are a client's own matter: each changes what is
// posted when, or what is made, none what a word or node means to others.
type Techniques struct {
	// LockFreeInternal (SMART, section 4.1.2): inner nodes are changed by swaps alone. Off: under
	// the lock of the node whose slot is swapped
	LockFreeInternal bool
	// PathCompression (4.1.1): heads have the bytes that all keys below share. Off: a node for each
	// byte
	PathCompression bool
	// NodeTypes (4.1.1): nodes have as many slots as they need. Off: all have 256
	NodeTypes bool

	loneLeaves bool // what the layout says
}

// typeFor is the type of a new node that needs so many slots.
func (t *Techniques) typeFor(slots int) NodeType {
	if !t.NodeTypes {
		return Direct
	}
	return typeFor(slots)
}

// longestPrefix is how long the prefix of a new node may be.
func (t *Techniques) longestPrefix() int {
	if !t.PathCompression {
		return 0
	}
	return MostPrefix
}

// yields reports whether c gives its place to a leaf, its only child.
func (t *Techniques) yields(c *Copy) bool { return !t.loneLeaves && c.single().Leaf() }

// typeOf is the type that a copy of c has, with one child more if add. 0: it takes no node.
func (t *Techniques) typeOf(c *Copy, add bool) NodeType {
	need := c.Children()
	if !add && (need == 0 || t.yields(c)) {
		return 0
	}
	if add {
		need++
	}
	return t.typeFor(c.Base() + need + need/8)
}

// sparse reports whether a node should be replaced by a smaller one, or by its only child.
func (c *Copy) sparse(with *Techniques) bool {
	k := c.Children()
	return k == 0 || with.yields(c) || (k > 1 || with.loneLeaves) && with.typeFor(c.Base()+k+k/2+1)+1 < c.Kind
}
