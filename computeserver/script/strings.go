package script

import (
	"bytes"
	"math"
	"strings"
)

// span is the part of a string of n bytes from i to j, which count from 1, or from the end if they
// are negative.
func span(n, i, j int) (from, to int) {
	if i < 0 {
		i = max(i+n+1, 1)
	} else if i == 0 {
		i = 1
	}
	if j < 0 {
		j += n + 1
	}
	if j = min(j, n); i > j {
		return 0, 0
	}
	return i - 1, j
}

var stringLibrary = library{
	"len": func(m *machine, args []value) []value { return []value{float64(len(m.isText(args, 0, "len")))} },
	"sub": func(m *machine, args []value) []value {
		s := m.isText(args, 0, "sub")
		from, to := span(len(s), m.isInteger(args, 1, "sub"), m.orInteger(args, 2, "sub", -1))
		return []value{s[from:to]}
	},
	"upper": func(m *machine, args []value) []value { return m.mapped(args, "upper", 'a', 'z') },
	"lower": func(m *machine, args []value) []value { return m.mapped(args, "lower", 'A', 'Z') },
	"reverse": func(m *machine, args []value) []value {
		s := m.isText(args, 0, "reverse")
		m.text(len(s))
		out := []byte(s)
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
		return []value{string(out)}
	},
	"rep": func(m *machine, args []value) []value {
		s, n := m.isText(args, 0, "rep"), max(m.isInteger(args, 1, "rep"), 0)
		if len(s) > 0 && n > math.MaxInt32/len(s) {
			panic(tooMuchSpace)
		}
		m.text(n * len(s))
		return []value{strings.Repeat(s, n*min(len(s), 1))}
	},
	"byte": func(m *machine, args []value) []value {
		s := m.isText(args, 0, "byte")
		i := m.orInteger(args, 1, "byte", 1)
		from, to := span(len(s), i, m.orInteger(args, 2, "byte", i))
		if to-from > maxUnpacked {
			m.throw("string slice too long")
		}
		m.step(to - from)
		m.alloc(16 * (to - from))
		var out []value
		for _, b := range []byte(s[from:to]) {
			out = append(out, float64(b))
		}
		return out
	},
	"char": func(m *machine, args []value) []value {
		m.step(len(args))
		out := make([]byte, len(args))
		for i := range args {
			n := m.isInteger(args, i, "char")
			if n < 0 || n > 255 {
				m.argument(i+1, "char", "invalid value")
			}
			out[i] = byte(n)
		}
		m.text(len(out))
		return []value{string(out)}
	},
	"find":  func(m *machine, args []value) []value { return m.find(args, "find") },
	"match": func(m *machine, args []value) []value { return m.find(args, "match") },
	"gmatch": func(m *machine, args []value) []value {
		s, p, from := m.isText(args, 0, "gmatch"), m.isText(args, 1, "gmatch"), 0
		m.alloc(128)
		return []value{&builtin{"gmatch", func(m *machine, _ []value) []value {
			for ; from <= len(s); from++ {
				x := &matcher{m: m, s: s, p: p}
				if to := x.match(from, 0); to >= 0 {
					at := from
					if from = to; to == at {
						from++
					}
					return x.found(at, to, true)
				}
			}
			return []value{nil}
		}}}
	},
	"format": func(m *machine, args []value) []value { return []value{m.format(args)} },
	"gsub":   func(m *machine, args []value) []value { return m.replace(args) },
}

// mapped is the argument with letters of a range in the other case.
func (m *machine) mapped(args []value, function string, from, to byte) []value {
	s := m.isText(args, 0, function)
	m.text(len(s))
	out := []byte(s)
	for i, b := range out {
		if b >= from && b <= to {
			out[i] = b ^ ' '
		}
	}
	return []value{string(out)}
}

// find is find and match.
func (m *machine) find(args []value, function string) []value {
	s, p, i := m.isText(args, 0, function), m.isText(args, 1, function), m.orInteger(args, 2, function, 1)
	if i < 0 {
		i = max(i+len(s)+1, 1)
	} else if i == 0 {
		i = 1
	}
	i = min(i-1, len(s))
	m.key(p)
	if function == "find" && (isTrue(valueAt(args, 3)) || !strings.ContainsAny(p, "^$*+?.([%-")) {
		m.step((len(s) - i + len(p)) / stepBytes)
		at := strings.Index(s[i:], p)
		if at < 0 {
			return []value{nil}
		}
		return []value{float64(i + at + 1), float64(i + at + len(p))}
	}
	anchor := strings.HasPrefix(p, "^")
	for ; i <= len(s); i++ {
		x := &matcher{m: m, s: s, p: strings.TrimPrefix(p, "^")}
		if !anchor {
			x.p = p
		}
		if to := x.match(i, 0); to >= 0 {
			if function == "match" {
				return x.found(i, to, true)
			}
			return append([]value{float64(i + 1), float64(to)}, x.found(i, to, false)...)
		}
		if anchor {
			break
		}
	}
	return []value{nil}
}

// replace is gsub.
func (m *machine) replace(args []value) []value {
	s, p := m.isText(args, 0, "gsub"), m.isText(args, 1, "gsub")
	by := valueAt(args, 2)
	switch by.(type) {
	case float64, string, *table, *function, *builtin:
	default:
		m.argument(3, "gsub", "string/function/table expected")
	}
	most := m.orInteger(args, 3, "gsub", len(s)+1)
	anchor := strings.HasPrefix(p, "^")
	if anchor {
		p = p[1:]
	}
	var out bytes.Buffer
	add := func(text string) {
		m.text(len(text))
		out.WriteString(text)
	}
	n, i := 0, 0
	for n < most {
		x := &matcher{m: m, s: s, p: p}
		to := x.match(i, 0)
		if to >= 0 {
			n++
			add(m.replacement(x, by, i, to))
		}
		switch {
		case to > i:
			i = to
		case i < len(s):
			add(s[i : i+1])
			i++
		default:
			i = len(s) + 1
		}
		if anchor || i > len(s) {
			break
		}
	}
	if i < len(s) {
		add(s[i:])
	}
	m.text(out.Len())
	return []value{out.String(), float64(n)}
}

// replacement is what a match becomes.
func (m *machine) replacement(x *matcher, by value, from, to int) string {
	var v value
	switch by := by.(type) {
	case *table:
		v = m.index(by, x.found(from, to, true)[0], "")
	case *function, *builtin:
		v = valueAt(m.apply(by, x.found(from, to, true), ""), 0)
	default:
		text, _ := toText(by)
		return m.expand(x, text, from, to)
	}
	if !isTrue(v) {
		return x.s[from:to]
	}
	text, ok := toText(v)
	if !ok {
		m.throw("invalid replacement value (a %s)", typeName(v))
	}
	return text
}

// expand puts the captures into a text that names them.
func (m *machine) expand(x *matcher, text string, from, to int) string {
	if !strings.Contains(text, "%") {
		m.step(len(text) / stepBytes)
		return text
	}
	captures := x.found(from, to, true)
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		m.step(1)
		if text[i] != '%' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		i++
		d := text[i]
		var part string
		switch {
		case d < '0' || d > '9':
			part = text[i : i+1]
		case d == '0':
			part = x.s[from:to]
		case int(d-'1') >= len(captures):
			m.throw("invalid capture index")
		default:
			part, _ = toText(captures[d-'1'])
		}
		m.text(len(part))
		out.WriteString(part)
	}
	return out.String()
}
