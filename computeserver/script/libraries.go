package script

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"
)

var tableLibrary = library{
	"concat": func(m *machine, args []value) []value {
		t, between := m.isTable(args, 0, "concat"), ""
		if valueAt(args, 1) != nil {
			between = m.isText(args, 1, "concat")
		}
		from, to := m.orInteger(args, 2, "concat", 1), m.orInteger(args, 3, "concat", len(t.list))
		var parts []string
		size := 0
		for i := from; i <= to; i++ {
			m.step(1)
			m.alloc(16)
			text, ok := toText(t.get(float64(i)))
			if !ok {
				m.throw("invalid value (%s) at index %d in table for 'concat'", typeName(t.get(float64(i))), i)
			}
			size += len(text) + len(between)
			parts = append(parts, text)
			if size > m.memory {
				panic(tooMuchSpace)
			}
		}
		m.text(size)
		return []value{strings.Join(parts, between)}
	},
	"insert": func(m *machine, args []value) []value {
		t := m.isTable(args, 0, "insert")
		m.mayChange(t)
		switch len(args) {
		case 2:
			m.setIndex(t, float64(len(t.list)+1), args[1], "")
		case 3:
			i := m.isInteger(args, 1, "insert")
			if i < 1 || i > len(t.list) {
				m.setIndex(t, float64(i), args[2], "")
				break
			}
			n := len(t.list)
			m.step((n - i) / 8)
			m.append(t, t.list[len(t.list)-1])
			copy(t.list[i:n], t.list[i-1:])
			t.list[i-1] = args[2]
		default:
			m.throw("wrong number of arguments to 'insert'")
		}
		return nil
	},
	"remove": func(m *machine, args []value) []value {
		t := m.isTable(args, 0, "remove")
		m.mayChange(t)
		n := len(t.list)
		i := m.orInteger(args, 1, "remove", n)
		if i < 1 || i > n {
			return nil
		}
		v := t.list[i-1]
		m.step((n - i) / 8)
		copy(t.list[i-1:], t.list[i:])
		t.list[n-1] = nil
		t.list = t.list[:n-1]
		m.step(1)
		t.trim()
		return []value{v}
	},
	"sort": func(m *machine, args []value) []value {
		t, less := m.isTable(args, 0, "sort"), valueAt(args, 1)
		m.mayChange(t)
		m.alloc(16 * len(t.list))
		sorted := slices.Clone(t.list) // less may change the table
		sort.Sort(&sorter{m, sorted, less})
		m.step(len(t.list) / 4)
		copy(t.list, sorted)
		t.trim()
		return nil
	},
	"getn": func(m *machine, args []value) []value {
		return []value{float64(len(m.isTable(args, 0, "getn").list))}
	},
	"maxn": func(m *machine, args []value) []value {
		t := m.isTable(args, 0, "maxn")
		most := float64(len(t.list))
		m.step(len(t.pairs))
		for _, p := range t.pairs {
			if n, ok := p.key.(float64); ok && p.value != nil {
				most = max(most, n)
			}
		}
		return []value{most}
	},
}

func (m *machine) mayChange(t *table) {
	if t.fixed {
		m.throwValue("Attempt to modify a readonly table")
	}
}

// sorter sorts a list. A comparison that is not consistent gives some order.
type sorter struct {
	m    *machine
	list []value
	less value // nil = <
}

func (s *sorter) Len() int      { return len(s.list) }
func (s *sorter) Swap(i, j int) { s.list[i], s.list[j] = s.list[j], s.list[i] }
func (s *sorter) Less(i, j int) bool {
	if s.less != nil {
		return isTrue(valueAt(s.m.apply(s.less, []value{s.list[i], s.list[j]}, ""), 0))
	}
	return s.m.less(s.list[i], s.list[j], false)
}

// numeric is a library's function of numbers.
func numeric(name string, n int, f func(a, b float64) float64) func(*machine, []value) []value {
	return func(m *machine, args []value) []value {
		a, b := m.isNumber(args, 0, name), 0.0
		if n > 1 {
			b = m.isNumber(args, 1, name)
		}
		return []value{f(a, b)}
	}
}

// choose is a library's function that chooses one of its arguments.
func choose(name string, better func(a, b float64) bool) func(*machine, []value) []value {
	return func(m *machine, args []value) []value {
		best := m.isNumber(args, 0, name)
		for i := range args {
			if n := m.isNumber(args, i, name); better(n, best) {
				best = n
			}
		}
		return []value{best}
	}
}

var mathLibrary = library{}

// addMath fills mathLibrary.
func addMath() {
	ofOne := map[string]func(float64) float64{
		"abs": math.Abs, "ceil": math.Ceil, "floor": math.Floor, "sqrt": math.Sqrt, "exp": math.Exp, "log": math.Log, "log10": math.Log10,
		"sin": math.Sin, "cos": math.Cos, "tan": math.Tan, "asin": math.Asin, "acos": math.Acos, "atan": math.Atan,
		"deg": func(a float64) float64 { return a / (math.Pi / 180) }, "rad": func(a float64) float64 { return a * (math.Pi / 180) },
	}
	for _, name := range slices.Sorted(maps.Keys(ofOne)) {
		f := ofOne[name]
		mathLibrary[name] = numeric(name, 1, func(a, _ float64) float64 { return f(a) })
	}
	ofTwo := map[string]func(a, b float64) float64{
		"pow": math.Pow, "atan2": math.Atan2,
		"ldexp": func(a, b float64) float64 { return math.Ldexp(a, int(max(min(b, 5000), -5000))) },
	}
	for _, name := range slices.Sorted(maps.Keys(ofTwo)) {
		mathLibrary[name] = numeric(name, 2, ofTwo[name])
	}
	for _, name := range []string{"fmod", "mod"} {
		mathLibrary[name] = func(m *machine, args []value) []value {
			return []value{m.mod(m.isNumber(args, 0, name), m.isNumber(args, 1, name))}
		}
	}
	mathLibrary["max"] = choose("max", func(a, b float64) bool { return a > b })
	mathLibrary["min"] = choose("min", func(a, b float64) bool { return a < b })
	mathLibrary["modf"] = func(m *machine, args []value) []value {
		whole, part := math.Modf(m.isNumber(args, 0, "modf"))
		return []value{whole, part}
	}
	mathLibrary["frexp"] = func(m *machine, args []value) []value {
		part, exp := math.Frexp(m.isNumber(args, 0, "frexp"))
		return []value{part, float64(exp)}
	}
	mathLibrary["randomseed"] = func(m *machine, args []value) []value {
		m.random.seed(uint32(m.isInteger(args, 0, "randomseed")))
		return nil
	}
	mathLibrary["random"] = randomNumber
}

// mod is math.Mod, which takes longer the more a is than b.
func (m *machine) mod(a, b float64) float64 {
	_, x := math.Frexp(a)
	_, y := math.Frexp(b)
	m.step(max(x-y, 0) / 8)
	return math.Mod(a, b)
}

// random is the generator of Redis: that of rand48, with 48 bits.
type random uint64

func (r *random) seed(n uint32) { *r = random(n)<<16 | 0x330E }

func (r *random) next() float64 {
	*r = (*r*0x5DEECE66D + 0xB) & (1<<48 - 1)
	return float64(int32(*r>>17)%math.MaxInt32) / math.MaxInt32
}

func randomNumber(m *machine, args []value) []value {
	r := m.random.next()
	low, high := 1, 0
	switch len(args) {
	case 0:
		return []value{r}
	case 1:
		high = m.isInteger(args, 0, "random")
	case 2:
		low, high = m.isInteger(args, 0, "random"), m.isInteger(args, 1, "random")
	default:
		m.throw("wrong number of arguments")
	}
	if low > high {
		m.argument(len(args), "random", "interval is empty")
	}
	return []value{math.Floor(r*float64(high-low+1)) + float64(low)}
}

// bitLibrary is bit, of integers of 32 bits.
var bitLibrary = library{
	"tobit": func(m *machine, args []value) []value { return []value{float64(m.bits(args, 0, "tobit"))} },
	"bnot":  func(m *machine, args []value) []value { return []value{float64(^m.bits(args, 0, "bnot"))} },
	"bswap": func(m *machine, args []value) []value {
		return []value{float64(int32(bits.ReverseBytes32(uint32(m.bits(args, 0, "bswap")))))}
	},
	"tohex": func(m *machine, args []value) []value {
		n, digits := uint32(m.bits(args, 0, "tohex")), m.orInteger(args, 1, "tohex", 8)
		verb := "%08x"
		if digits < 0 {
			verb, digits = "%08X", -digits
		}
		s := fmt.Sprintf(verb, n)
		return []value{s[8-min(max(digits, 0), 8):]}
	},
}

// addBits adds the functions of several integers.
func addBits() {
	ofAny := map[string]func(a, b int32) int32{
		"band": func(a, b int32) int32 { return a & b }, "bor": func(a, b int32) int32 { return a | b }, "bxor": func(a, b int32) int32 { return a ^ b },
	}
	for _, name := range slices.Sorted(maps.Keys(ofAny)) {
		f := ofAny[name]
		bitLibrary[name] = func(m *machine, args []value) []value {
			n := m.bits(args, 0, name)
			for i := 1; i < len(args); i++ {
				n = f(n, m.bits(args, i, name))
			}
			return []value{float64(n)}
		}
	}
	shifts := map[string]func(a int32, n int) int32{
		"lshift": func(a int32, n int) int32 { return a << n }, "rshift": func(a int32, n int) int32 { return int32(uint32(a) >> n) },
		"arshift": func(a int32, n int) int32 { return a >> n },
		"rol":     func(a int32, n int) int32 { return int32(bits.RotateLeft32(uint32(a), n)) },
		"ror":     func(a int32, n int) int32 { return int32(bits.RotateLeft32(uint32(a), -n)) },
	}
	for _, name := range slices.Sorted(maps.Keys(shifts)) {
		f := shifts[name]
		bitLibrary[name] = func(m *machine, args []value) []value {
			return []value{float64(f(m.bits(args, 0, name), int(m.bits(args, 1, name)&31)))}
		}
	}
}

// bits is an argument modulo 2^32.
func (m *machine) bits(args []value, i int, function string) int32 {
	n := m.mod(math.RoundToEven(m.isNumber(args, i, function)), 1<<32)
	return int32(uint32(int64(n)))
}
