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
			PutChild(b, t, c.Base(), &next, EndBranch, w)
		default:
			PutChild(b, t, c.Base(), &next, int(w.Key()), w)
		}
	}
	return next
}

// PutChild puts w into the slot of a branch.
func PutChild(b []byte, t NodeType, base int, next *int, br int, w Slot) {
	w = w.Clean().WithKey(branchKey(br))
	switch {
	case br == EndBranch:
		PutSlot(b, 0, w)
	case t == Direct:
		PutSlot(b, base+br, w)
	default:
		PutSlot(b, *next, w)
		*next++
	}
}
