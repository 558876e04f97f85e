package resp

// A glob is a pattern of SCAN MATCH, as Redis has them, over bytes whatever they mean: * stands for
// any bytes, ? for one, [abc], [a-z] and [^a] for one of a set, and \ takes the byte behind it as
// it is. A set that is not closed reaches to the end of the pattern.
type glob struct {
	items []globItem
	never bool // no key can match
}

// globItem matches one byte, or any number of them.
type globItem struct {
	kind globKind
	b    byte
	set  *[4]uint64 // a bit for each byte
}

type globKind uint8

const (
	globByte globKind = iota
	globSet
	globAny  // one byte
	globMany // any number of bytes; never two in a row
)

// newGlob reads a pattern for strings of at most longest bytes. What it takes of memory is bounded
// by longest, however long the pattern is.
func newGlob(pattern []byte, longest int) *glob {
	g := &glob{}
	for bytes := 0; len(pattern) > 0; {
		item := globItem{kind: globByte, b: pattern[0]}
		rest := pattern[1:]
		switch pattern[0] {
		case '*':
			item.kind = globMany
		case '?':
			item.kind = globAny
		case '[':
			item.kind = globSet
			item.set, rest = readSet(rest)
		case '\\':
			if len(rest) > 0 {
				item.b, rest = rest[0], rest[1:]
			}
		}
		pattern = rest
		switch n := len(g.items); {
		case item.kind != globMany:
			if bytes++; bytes > longest {
				g.never, g.items = true, nil
				return g
			}
		case n > 0 && g.items[n-1].kind == globMany:
			continue
		}
		g.items = append(g.items, item)
	}
	return g
}

// matchesNone reports whether no key can match. A nil glob matches all.
func (g *glob) matchesNone() bool { return g != nil && g.never }

// prefix is what every key begins with that matches.
func (g *glob) prefix() []byte {
	var p []byte
	for i := 0; g != nil && i < len(g.items) && g.items[i].kind == globByte; i++ {
		p = append(p, g.items[i].b)
	}
	return p
}

// work is how many comparisons match takes at most for each byte of a key: behind the first * bytes
// may be compared again and again.
func (g *glob) work() int {
	for i, item := range g.items {
		if item.kind == globMany {
			return len(g.items) - i
		}
	}
	return 1
}

// readSet reads a set from behind its opening bracket. It returns what follows the closing one.
func readSet(p []byte) (set *[4]uint64, rest []byte) {
	set = new([4]uint64)
	not := len(p) > 0 && p[0] == '^'
	if not {
		p = p[1:]
	}
	closed := false
	for len(p) > 0 && !closed {
		switch {
		case p[0] == '\\' && len(p) >= 2:
			set[p[1]>>6] |= 1 << (p[1] & 63)
			p = p[2:]
		case p[0] == ']':
			closed = true
			p = p[1:]
		case len(p) >= 3 && p[1] == '-':
			for b, end := int(min(p[0], p[2])), int(max(p[0], p[2])); b <= end; b++ {
				set[b>>6] |= 1 << (b & 63)
			}
			p = p[3:]
		default:
			set[p[0]>>6] |= 1 << (p[0] & 63)
			p = p[1:]
		}
	}
	if not {
		for i := range set {
			set[i] = ^set[i]
		}
	}
	return set, p
}

// match reports whether all of key matches, and how many comparisons that took: at most the square
// of the key's length and a bit.
//
// Only the last * that was met is ever tried with more bytes. Had an earlier one to take more, then
// what lies between it and the last one would match further behind, and so would do where it
// matched first.
func (g *glob) match(key []byte) (matched bool, steps int) {
	if g.never {
		return false, 1
	}
	i, at := 0, 0       // in items and key
	star, taken := 0, 0 // behind the last *, and where in key what it takes ends
	for seen := false; ; steps++ {
		switch {
		case i < len(g.items) && g.items[i].kind == globMany:
			i++
			if i == len(g.items) {
				return true, steps + 1
			}
			seen, star, taken = true, i, at
		case i == len(g.items) && at == len(key):
			return true, steps + 1
		case i < len(g.items) && at < len(key) && g.items[i].matches(key[at]):
			i++
			at++
		case !seen || taken == len(key):
			return false, steps + 1
		default:
			taken++
			i, at = star, taken
		}
	}
}

// matches reports whether an item for one byte matches b.
func (t *globItem) matches(b byte) bool {
	switch t.kind {
	case globByte:
		return t.b == b
	case globSet:
		return t.set[b>>6]&(1<<(b&63)) != 0
	}
	return true
}
