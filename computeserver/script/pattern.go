package script

import "strings"

// matcher looks for a pattern of Lua in a string. Each comparison is a step, so a pattern that goes
// back again and again ends the script.
type matcher struct {
	m        *machine
	s, p     string
	captures []capture
	depth    int
}

type capture struct{ from, len int }

// Lengths of a capture that is open, or is a position.
const (
	captureOpen     = -1
	capturePosition = -2
	maxCaptures     = 32
	maxMatchDepth   = 200
)

// match matches the pattern from p on with the string from i on. It returns the end of the match;
// -1 if there is none.
func (x *matcher) match(i, p int) int {
	if x.depth++; x.depth > maxMatchDepth {
		x.m.throw("pattern too complex")
	}
	defer func() { x.depth-- }()
	for p < len(x.p) {
		x.m.step(1)
		switch x.p[p] {
		case '(':
			if p+1 < len(x.p) && x.p[p+1] == ')' {
				return x.open(i, p+2, capturePosition)
			}
			return x.open(i, p+1, captureOpen)
		case ')':
			return x.close(i, p+1)
		case '$':
			if p+1 == len(x.p) {
				if i == len(x.s) {
					return i
				}
				return -1
			}
		case '%':
			if p+1 < len(x.p) {
				switch next := x.p[p+1]; {
				case next == 'b':
					if i = x.balance(i, p+2); i < 0 {
						return -1
					}
					p += 4
					continue
				case next == 'f':
					end := 0
					if p += 2; p >= len(x.p) || x.p[p] != '[' {
						x.m.throw("missing '[' after '%%f' in pattern")
					}
					end = x.classEnd(p)
					before, now := byte(0), byte(0)
					if i > 0 {
						before = x.s[i-1]
					}
					if i < len(x.s) {
						now = x.s[i]
					}
					if x.inSet(before, p, end-1) || !x.inSet(now, p, end-1) {
						return -1
					}
					p = end
					continue
				case next >= '0' && next <= '9':
					c := x.s[x.captured(int(next-'1')).from:][:x.captures[next-'1'].len]
					x.m.step(len(c) / stepBytes)
					if !strings.HasPrefix(x.s[i:], c) {
						return -1
					}
					i, p = i+len(c), p+2
					continue
				}
			}
		}
		end := x.classEnd(p)
		repeat := byte(0)
		if end < len(x.p) {
			repeat = x.p[end]
		}
		switch repeat {
		case '?':
			if x.single(i, p, end) {
				if to := x.match(i+1, end+1); to >= 0 {
					return to
				}
			}
			p = end + 1
		case '*', '+':
			n := 0
			for x.single(i+n, p, end) {
				n++
			}
			least := 0
			if repeat == '+' {
				least = 1
			}
			for ; n >= least; n-- {
				if to := x.match(i+n, end+1); to >= 0 {
					return to
				}
			}
			return -1
		case '-':
			for {
				if to := x.match(i, end+1); to >= 0 {
					return to
				}
				if !x.single(i, p, end) {
					return -1
				}
				i++
			}
		default:
			if !x.single(i, p, end) {
				return -1
			}
			i, p = i+1, end
		}
	}
	return i
}

func (x *matcher) open(i, p, length int) int {
	if len(x.captures) >= maxCaptures {
		x.m.throw("too many captures")
	}
	n := len(x.captures)
	x.captures = append(x.captures, capture{i, length})
	to := x.match(i, p)
	if to < 0 {
		x.captures = x.captures[:n]
	}
	return to
}

func (x *matcher) close(i, p int) int {
	for n := len(x.captures) - 1; n >= 0; n-- {
		if c := &x.captures[n]; c.len == captureOpen {
			c.len = i - c.from
			to := x.match(i, p)
			if to < 0 {
				x.captures[n].len = captureOpen
			}
			return to
		}
	}
	x.m.throw("invalid pattern capture")
	return -1
}

// captured is a capture that is complete.
func (x *matcher) captured(n int) capture {
	if n < 0 || n >= len(x.captures) || x.captures[n].len < 0 {
		x.m.throw("invalid capture index")
	}
	return x.captures[n]
}

func (x *matcher) balance(i, p int) int {
	if p+1 >= len(x.p) {
		x.m.throw("unbalanced pattern")
	}
	if i >= len(x.s) || x.s[i] != x.p[p] {
		return -1
	}
	for open := 1; ; {
		if i++; i >= len(x.s) {
			return -1
		}
		x.m.step(1)
		switch x.s[i] {
		case x.p[p+1]:
			if open--; open == 0 {
				return i + 1
			}
		case x.p[p]:
			open++
		}
	}
}

// classEnd is the end of the class of characters that begins at p.
func (x *matcher) classEnd(p int) int {
	c := x.p[p]
	p++
	switch c {
	case '%':
		if p >= len(x.p) {
			x.m.throw("malformed pattern (ends with '%%')")
		}
		return p + 1
	case '[':
		if p < len(x.p) && x.p[p] == '^' {
			p++
		}
		for n := 1; n == 1 || x.p[p] != ']'; n++ {
			if n%8 == 0 {
				x.m.step(1)
			}
			if p >= len(x.p) {
				x.m.throw("malformed pattern (missing ']')")
			}
			if x.p[p] == '%' {
				p++
			}
			if p++; p >= len(x.p) {
				x.m.throw("malformed pattern (missing ']')")
			}
		}
		return p + 1
	}
	return p
}

// single reports whether the character at i is of the class from p to end.
func (x *matcher) single(i, p, end int) bool {
	x.m.step(1)
	if i >= len(x.s) {
		return false
	}
	switch x.p[p] {
	case '.':
		return true
	case '%':
		return inClass(x.s[i], x.p[p+1])
	case '[':
		return x.inSet(x.s[i], p, end-1)
	}
	return x.s[i] == x.p[p]
}

// inSet reports whether a character is of the set whose brackets are at p and end.
func (x *matcher) inSet(c byte, p, end int) bool {
	x.m.step((end - p) / 8)
	is := true
	if p++; x.p[p] == '^' {
		is = false
		p++
	}
	for ; p < end; p++ {
		switch {
		case x.p[p] == '%' && p+1 < len(x.p):
			if p++; inClass(c, x.p[p]) {
				return is
			}
		case p+2 < end && x.p[p+1] == '-':
			if x.p[p] <= c && c <= x.p[p+2] {
				return is
			}
			p += 2
		case x.p[p] == c:
			return is
		}
	}
	return !is
}

// inClass reports whether a character is of the class of a letter.
func inClass(c, class byte) bool {
	lower, upper := c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z'
	number := c >= '0' && c <= '9'
	var is bool
	switch class | ' ' {
	case 'a':
		is = lower || upper
	case 'c':
		is = c < ' ' || c == 127
	case 'd':
		is = number
	case 'l':
		is = lower
	case 'p':
		is = c > ' ' && c < 127 && !lower && !upper && !number
	case 's':
		is = isSpace(c)
	case 'u':
		is = upper
	case 'w':
		is = lower || upper || number
	case 'x':
		is = number || c|' ' >= 'a' && c|' ' <= 'f' && (lower || upper)
	case 'z':
		is = c == 0
	default:
		return class == c
	}
	if class >= 'a' && class <= 'z' {
		return is
	}
	if class >= 'A' && class <= 'Z' {
		return !is
	}
	return class == c
}

// found is the values of a match: its captures, or all of it where it has none.
func (x *matcher) found(from, to int, whole bool) []value {
	if len(x.captures) == 0 && whole {
		x.m.text(to - from)
		return []value{x.s[from:to]}
	}
	var out []value
	for _, c := range x.captures {
		switch c.len {
		case capturePosition:
			out = append(out, float64(c.from+1))
		case captureOpen:
			x.m.throw("unfinished capture")
		default:
			x.m.text(c.len)
			out = append(out, x.s[c.from:c.from+c.len])
		}
	}
	return out
}
