package script

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonNull is null of JSON, which is a light userdata in Redis: a value that is equal to itself
// alone.
var jsonNull = &builtin{name: "null", run: func(m *machine, _ []value) []value {
	m.throw("attempt to call a userdata value")
	return nil
}}

// jsonDepth is how deep tables may lie in tables. A table that is in itself goes deeper.
const jsonDepth = 128

var jsonLibrary = library{
	"encode": func(m *machine, args []value) []value {
		if len(args) != 1 {
			m.argument(1, "encode", "expected 1 argument")
		}
		var out strings.Builder
		m.encode(&out, args[0], 0)
		m.text(out.Len())
		return []value{out.String()}
	},
	"decode": func(m *machine, args []value) []value {
		d := &decoder{m: m, s: m.isText(args, 0, "decode")}
		v := d.value(0)
		if d.skipSpace(); d.i < len(d.s) {
			d.fail("the end")
		}
		return []value{v}
	},
}

// encode appends a value as JSON, as cjson does at its defaults.
func (m *machine) encode(out *strings.Builder, v value, depth int) {
	m.step(1)
	from := out.Len()
	defer func() { m.alloc(out.Len() - from) }()
	switch v := v.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(v))
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			m.throw("Cannot serialise number: must not be NaN or Inf")
		}
		out.WriteString(formatGeneral(v, 14))
	case string:
		m.encodeText(out, v)
	case *table:
		if depth++; depth > jsonDepth {
			m.throw("Cannot serialise, excessive depth (%d)", depth)
		}
		m.encodeTable(out, v, depth)
	default:
		if v == jsonNull {
			out.WriteString("null")
			return
		}
		m.throw("Cannot serialise function: type not supported")
	}
}

// encodeTable writes a table whose keys are 1, 2, ... as an array, and an empty one as an object.
func (m *machine) encodeTable(out *strings.Builder, t *table, depth int) {
	last, keys, array := 0, 0, true
	for k, v, _ := m.next(t, nil); k != nil; k, v, _ = m.next(t, k) {
		_ = v
		keys++
		n, ok := place(k)
		array = array && ok
		last = max(last, n+1)
	}
	if array && keys > 0 {
		if last > 10 && last > 2*keys {
			m.throw("Cannot serialise table: excessively sparse array")
		}
		for i := range last {
			out.WriteByte("[,"[min(i, 1)])
			m.encode(out, t.get(float64(i+1)), depth)
		}
		out.WriteByte(']')
		return
	}
	out.WriteByte('{')
	first := true
	for k, v, _ := m.next(t, nil); k != nil; k, v, _ = m.next(t, k) {
		if !first {
			out.WriteByte(',')
		}
		first = false
		switch k := k.(type) {
		case string:
			m.encodeText(out, k)
		case float64:
			out.WriteString(`"` + formatGeneral(k, 14) + `"`)
		default:
			m.throw("Cannot serialise table: table key must be a number or string")
		}
		out.WriteByte(':')
		m.encode(out, v, depth)
	}
	out.WriteByte('}')
}

func (m *machine) encodeText(out *strings.Builder, s string) {
	m.step(len(s) / 8)
	out.WriteByte('"')
	for i := range len(s) {
		switch b := s[i]; {
		case b == '"' || b == '\\' || b == '/':
			out.WriteByte('\\')
			out.WriteByte(b)
		case strings.IndexByte("\b\t\n\f\r", b) >= 0:
			out.WriteByte('\\')
			out.WriteByte("btn_fr"[b-'\b'])
		case b < ' ' || b == 127:
			const hex = "0123456789abcdef"
			out.WriteString("\\u00")
			out.WriteByte(hex[b>>4])
			out.WriteByte(hex[b&15])
		default:
			out.WriteByte(b)
		}
	}
	out.WriteByte('"')
}

var jsonWords = []struct {
	text  string
	value value
}{{"true", true}, {"false", false}, {"null", jsonNull}}

// decoder reads JSON.
type decoder struct {
	m *machine
	s string
	i int
}

func (d *decoder) fail(want string) {
	d.m.throw("Expected %s but found %s at character %d", want, d.nextName(), d.i+1)
}

// nextName is how errors name what comes next.
func (d *decoder) nextName() string {
	if d.i >= len(d.s) {
		return "T_END"
	}
	switch b := d.s[d.i]; b {
	case '{':
		return "T_OBJ_BEGIN"
	case '}':
		return "T_OBJ_END"
	case '[':
		return "T_ARR_BEGIN"
	case ']':
		return "T_ARR_END"
	case '"':
		return "T_STRING"
	case ':':
		return "T_COLON"
	case ',':
		return "T_COMMA"
	default:
		if b == '-' || b >= '0' && b <= '9' {
			return "T_NUMBER"
		}
	}
	return "invalid token"
}

func (d *decoder) skipSpace() {
	for d.i < len(d.s) && strings.IndexByte(" \t\r\n", d.s[d.i]) >= 0 {
		d.i++
		d.m.step(1)
	}
}

// accept goes on behind a character, if it is the next one.
func (d *decoder) accept(b byte) bool {
	d.skipSpace()
	if d.i < len(d.s) && d.s[d.i] == b {
		d.i++
		return true
	}
	return false
}

func (d *decoder) value(depth int) value {
	d.m.step(1)
	if depth > jsonDepth {
		d.m.throw("Found too many nested data structures (%d)", depth)
	}
	switch {
	case d.accept('{'):
		t := d.m.newTable()
		if d.accept('}') {
			return t
		}
		for {
			if !d.accept('"') {
				d.fail("object key string")
			}
			key := d.text()
			if !d.accept(':') {
				d.fail("colon")
			}
			d.m.setIndex(t, key, d.value(depth+1), "")
			if d.accept('}') {
				return t
			}
			if !d.accept(',') {
				d.fail("comma or object end")
			}
		}
	case d.accept('['):
		t := d.m.newTable()
		if d.accept(']') {
			return t
		}
		for n := 1; ; n++ {
			d.m.set(t, float64(n), d.value(depth+1))
			if d.accept(']') {
				return t
			}
			if !d.accept(',') {
				d.fail("comma or array end")
			}
		}
	case d.accept('"'):
		return d.text()
	}
	for _, word := range jsonWords {
		if strings.HasPrefix(d.s[d.i:], word.text) {
			d.i += len(word.text)
			return word.value
		}
	}
	from := d.i
	for d.i < len(d.s) && strings.IndexByte("+-0123456789.eE", d.s[d.i]) >= 0 {
		d.i++
	}
	d.m.step((d.i - from) / 8)
	n, ok := parseNumber(d.s[from:d.i])
	if !ok {
		d.i = from
		d.fail("value")
	}
	return n
}

// text reads a string behind its quote.
func (d *decoder) text() string {
	var out strings.Builder
	for {
		from := d.i
		for d.i < len(d.s) && d.s[d.i] != '"' && d.s[d.i] != '\\' && d.s[d.i] >= ' ' {
			d.i++
		}
		d.m.text(d.i - from)
		out.WriteString(d.s[from:d.i])
		switch {
		case d.i >= len(d.s), d.s[d.i] < ' ':
			d.fail("string end")
		case d.s[d.i] == '"':
			d.i++
			return out.String()
		}
		d.m.step(1)
		if d.i++; d.i == len(d.s) {
			d.fail("escape code")
		}
		b := d.s[d.i]
		d.i++
		if n := strings.IndexByte(`"\/bfnrt`, b); n >= 0 {
			out.WriteByte("\"\\/\b\f\n\r\t"[n])
			continue
		}
		if b != 'u' {
			d.fail("escape code")
		}
		r := d.readUnit()
		if utf16.IsSurrogate(r) {
			if !strings.HasPrefix(d.s[d.i:], `\u`) {
				d.fail("unicode escape code")
			}
			d.i += 2
			if r = utf16.DecodeRune(r, d.readUnit()); r == utf8.RuneError {
				d.fail("unicode escape code")
			}
		}
		out.WriteRune(r)
	}
}

// readUnit reads four digits behind \u.
func (d *decoder) readUnit() rune {
	if d.i+4 <= len(d.s) {
		if n, err := strconv.ParseUint(d.s[d.i:d.i+4], 16, 16); err == nil {
			d.i += 4
			return rune(n)
		}
	}
	d.fail("unicode escape code")
	return 0
}
