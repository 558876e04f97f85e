package art

// putChildren puts the children of c into the slots of the image b of a node of a type. It returns
// the slot where the next one goes, unless the type is direct.
func putChildren(b []byte, t NodeType, c *Copy) int {
	next := c.Base()
	for i := range c.Size() {
		w := c.Word(i)
		switch {
		case !w.Child():
		case i < c.Base():
			putChild(b, t, c.Base(), &next, EndBranch, w)
		default:
			putChild(b, t, c.Base(), &next, int(w.Key()), w)
		}
	}
	return next
}

// putChild puts w into the slot of a branch.
func putChild(b []byte, t NodeType, base int, next *int, br int, w Slot) {
	w = w.Clean().WithKey(branchKey(br))
	switch {
	case br == EndBranch:
		putSlot(b, 0, w)
	case t == Direct:
		putSlot(b, base+br, w)
	default:
		putSlot(b, *next, w)
		*next++
	}
}
