package script

import (
	"maps"
	"math"
	"slices"
)

// library is functions by name.
type library map[string]func(m *machine, args []value) []value

// table makes the library a table that scripts cannot change.
func (l library) table(more map[string]value) *table {
	t := &table{at: map[value]int{}, fixed: true}
	add := func(name string, v value) {
		t.at[name] = len(t.pairs)
		t.pairs = append(t.pairs, pair{name, v})
	}
	for _, name := range slices.Sorted(maps.Keys(l)) { // pairs has the same order in each process
		add(name, &builtin{name, l[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		add(name, more[name])
	}
	return t
}

// The arguments of a library's function. What is wrong with one is an error that names it.

func (m *machine) isTable(args []value, i int, function string) *table {
	t, ok := valueAt(args, i).(*table)
	if !ok {
		m.argument(i+1, function, "table expected, got %s", m.typeOf(args, i))
	}
	return t
}

func (m *machine) isNumber(args []value, i int, function string) float64 {
	n, ok := m.number(valueAt(args, i))
	if !ok {
		m.argument(i+1, function, "number expected, got %s", m.typeOf(args, i))
	}
	return n
}

func (m *machine) isInteger(args []value, i int, function string) int {
	return int(toInteger(m.isNumber(args, i, function)))
}

// orInteger is isInteger of an argument that need not be there.
func (m *machine) orInteger(args []value, i int, function string, otherwise int) int {
	if valueAt(args, i) == nil {
		return otherwise
	}
	return m.isInteger(args, i, function)
}

func (m *machine) isText(args []value, i int, function string) string {
	s, ok := toText(valueAt(args, i))
	if !ok {
		m.argument(i+1, function, "string expected, got %s", m.typeOf(args, i))
	}
	return s
}

func (m *machine) typeOf(args []value, i int) string {
	if i >= len(args) {
		return "no value"
	}
	return typeName(args[i])
}

// baseLibrary is what has no table.
var baseLibrary = library{
	"assert": func(m *machine, args []value) []value {
		if len(args) == 0 {
			m.argument(1, "assert", "value expected")
		}
		if isTrue(args[0]) {
			return args
		}
		message := "assertion failed!"
		if valueAt(args, 1) != nil {
			message = m.isText(args, 1, "assert")
		}
		m.throw("%s", message)
		return nil
	},
	"error": func(m *machine, args []value) []value {
		v := valueAt(args, 0)
		text, ok := v.(string)
		if level := m.orInteger(args, 1, "error", 1); ok && level > 0 {
			v = m.position(level) + text
			m.text(len(v.(string)))
		}
		m.throwValue(v)
		return nil
	},
	"pcall": func(m *machine, args []value) []value {
		if len(args) == 0 {
			m.argument(1, "pcall", "value expected")
		}
		return m.try(args[0], args[1:], func(v value) value { // as Redis: its text, if it has one
			if t, ok := v.(*table); ok {
				if text, ok := toText(t.get("err")); ok {
					return text
				}
			}
			return v
		})
	},
	"xpcall": func(m *machine, args []value) []value {
		handler := valueAt(args, 1)
		return m.try(valueAt(args, 0), nil, func(v value) value { return valueAt(m.apply(handler, []value{v}, ""), 0) })
	},
	"next": func(m *machine, args []value) []value {
		t := m.isTable(args, 0, "next")
		m.step(1)
		k, v, ok := m.next(t, valueAt(args, 1))
		if !ok {
			m.throw("invalid key to 'next'")
		}
		if k == nil {
			return []value{nil}
		}
		return []value{k, v}
	},
	"ipairs": func(m *machine, args []value) []value {
		return []value{nextItem, m.isTable(args, 0, "ipairs"), 0.0}
	},
	"rawequal": func(m *machine, args []value) []value { return []value{m.equal(valueAt(args, 0), valueAt(args, 1))} },
	"rawget": func(m *machine, args []value) []value {
		m.key(valueAt(args, 1))
		return []value{m.isTable(args, 0, "rawget").get(valueAt(args, 1))}
	},
	"rawset": func(m *machine, args []value) []value {
		t := m.isTable(args, 0, "rawset")
		m.mayChange(t)
		m.setIndex(t, valueAt(args, 1), valueAt(args, 2), "")
		return []value{t}
	},
	"select": func(m *machine, args []value) []value {
		if s, ok := valueAt(args, 0).(string); ok && s == "#" {
			return []value{float64(len(args) - 1)}
		}
		n := m.isInteger(args, 0, "select")
		if n < 0 {
			n += len(args)
		}
		if n <= 0 {
			m.argument(1, "select", "index out of range")
		}
		return args[min(n, len(args)):]
	},
	"tonumber": func(m *machine, args []value) []value {
		if len(args) == 0 {
			m.argument(1, "tonumber", "value expected")
		}
		base := m.orInteger(args, 1, "tonumber", 10)
		if base == 10 {
			if n, ok := m.number(args[0]); ok {
				return []value{n}
			}
			return []value{nil}
		}
		if base < 2 || base > 36 {
			m.argument(2, "tonumber", "base out of range")
		}
		m.key(args[0])
		return []value{parseInBase(m.isText(args, 0, "tonumber"), base)}
	},
	"tostring": func(m *machine, args []value) []value {
		if len(args) == 0 {
			m.argument(1, "tostring", "value expected")
		}
		s := toString(args[0])
		m.text(len(s))
		return []value{s}
	},
	"type": func(m *machine, args []value) []value {
		if len(args) == 0 {
			m.argument(1, "type", "value expected")
		}
		return []value{typeName(args[0])}
	},
	"unpack": func(m *machine, args []value) []value {
		t := m.isTable(args, 0, "unpack")
		from, to := m.orInteger(args, 1, "unpack", 1), m.orInteger(args, 2, "unpack", len(t.list))
		if from > to {
			return nil
		}
		if n := to - from; n < 0 || n >= maxUnpacked {
			m.throw("too many results to unpack")
		}
		m.step(to - from + 1)
		m.alloc(16 * (to - from + 1))
		out := make([]value, 0, to-from+1)
		for i := from; i <= to; i++ {
			out = append(out, t.get(float64(i)))
		}
		return out
	},
}

// addPairs adds the function that gives another one of the library away.
func addPairs() {
	next := &builtin{"next", baseLibrary["next"]}
	baseLibrary["pairs"] = func(m *machine, args []value) []value {
		return []value{next, m.isTable(args, 0, "pairs"), nil}
	}
}

var nextItem = &builtin{"next", func(m *machine, args []value) []value {
	i := m.isNumber(args, 1, "next") + 1
	if v := m.isTable(args, 0, "next").get(i); v != nil {
		return []value{i, v}
	}
	return []value{nil}
}}

// try calls a value and catches its error, which handle may replace.
func (m *machine) try(f value, args []value, handle func(value) value) (out []value) {
	failed := m.protected(func() { out = append([]value{true}, m.apply(f, args, "")...) })
	if failed == nil {
		return out
	}
	again := m.protected(func() { out = []value{false, handle(failed.value)} })
	if again != nil {
		return []value{false, again.value}
	}
	return out
}

// parseInBase reads an integer; nil if it is none.
func parseInBase(s string, base int) value {
	start, end := 0, len(s)
	for start < end && isSpace(s[start]) {
		start++
	}
	for end > start && isSpace(s[end-1]) {
		end--
	}
	s = s[start:end]
	negative := len(s) > 0 && s[0] == '-'
	if negative {
		s = s[1:]
	}
	if base == 16 && len(s) > 2 && s[0] == '0' && s[1]|' ' == 'x' {
		s = s[2:]
	}
	n := 0.0
	for _, b := range []byte(s) {
		d, ok := digit(b, base)
		if !ok {
			return nil
		}
		n = n*float64(base) + float64(d)
	}
	if len(s) == 0 || math.IsInf(n, 0) {
		return nil
	}
	if negative {
		n = -n
	}
	return n
}

func isSpace(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }
