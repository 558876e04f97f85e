package script

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// format is string.format: the directives of C's printf but for %p, %n and lengths.
func (m *machine) format(args []value) string {
	text := m.isText(args, 0, "format")
	var out strings.Builder
	add := func(s string) {
		m.text(len(s))
		out.WriteString(s)
	}
	next := 1
	for {
		i := strings.IndexByte(text, '%')
		if i < 0 {
			add(text)
			break
		}
		add(text[:i])
		if text = text[i+1:]; text == "" {
			m.throw("invalid option '%%' to 'format'")
		}
		if text[0] == '%' {
			add("%")
			text = text[1:]
			continue
		}
		m.step(1)
		n := 0
		for n < min(len(text), 6) && strings.IndexByte("-+ #0", text[n]) >= 0 {
			n++
		}
		flags := text[:n]
		width, w := m.formatWidth(text[n:])
		n += w
		precision := -1
		if n < len(text) && text[n] == '.' {
			precision, w = m.formatWidth(text[n+1:])
			n += 1 + w
		}
		if len(flags) > 5 || n >= len(text) {
			m.throw("invalid format (repeated flags or too long)")
		}
		if next >= len(args) {
			m.argument(next+1, "format", "no value")
		}
		add(m.directive(args, next, text[n], flags, width, precision))
		next, text = next+1, text[n+1:]
	}
	m.text(out.Len())
	return out.String()
}

// formatWidth reads a number of two digits at most.
func (m *machine) formatWidth(text string) (n, digits int) {
	for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' {
		if digits++; digits > 2 {
			m.throw("invalid format (width or precision too long)")
		}
	}
	n, _ = strconv.Atoi(text[:digits])
	return n, digits
}

func (m *machine) directive(args []value, i int, verb byte, flags string, width, precision int) string {
	var s string
	numeric := true
	switch verb {
	case 'd', 'i':
		s = withDigits(strconv.FormatInt(toInteger(m.isNumber(args, i, "format")), 10), precision)
	case 'u', 'o', 'x', 'X':
		base := map[byte]int{'u': 10, 'o': 8, 'x': 16, 'X': 16}[verb]
		n := m.isNumber(args, i, "format")
		u := uint64(toInteger(n))
		if n >= 1<<63 && n < 1<<64 {
			u = uint64(n)
		}
		s = withDigits(strconv.FormatUint(u, base), precision)
		if strings.Contains(flags, "#") && u != 0 {
			s = map[byte]string{'o': "0", 'x': "0x", 'X': "0x"}[verb] + s
		}
		if verb == 'X' {
			s = strings.ToUpper(s)
		}
	case 'e', 'E', 'f', 'g', 'G':
		n := m.isNumber(args, i, "format")
		if math.IsInf(n, 0) || math.IsNaN(n) {
			s, flags = formatNoNumber(n), strings.ReplaceAll(flags, "0", "")
			break
		}
		if precision < 0 {
			precision = 6
		}
		_, exp := math.Frexp(n) // so many digits are worked out, most of which are not shown
		m.step((precision + max(exp, -exp)) / 8)
		if verb|' ' == 'g' {
			precision = max(precision, 1)
		}
		if s = strconv.FormatFloat(n, verb, precision, 64); strings.Contains(flags, "#") {
			s = fmt.Sprintf("%#.*"+string(rune(verb)), precision, n)
		}
	case 'c':
		s, numeric = string([]byte{byte(m.isInteger(args, i, "format"))}), false
	case 's':
		s, numeric = toString(args[i]), false
		if precision >= 0 {
			s = s[:min(len(s), precision)]
		}
	case 'q':
		return quoted(m.isText(args, i, "format"))
	default:
		m.throw("invalid option '%%%c' to 'format'", verb)
	}
	sign := ""
	if numeric {
		switch {
		case strings.HasPrefix(s, "-"):
			sign, s = "-", s[1:]
		case verb == 'u' || verb == 'o' || verb|' ' == 'x':
		case strings.Contains(flags, "+"):
			sign = "+"
		case strings.Contains(flags, " "):
			sign = " "
		}
	}
	fill := max(width-len(sign)-len(s), 0)
	switch {
	case strings.Contains(flags, "-"):
		return sign + s + strings.Repeat(" ", fill)
	case numeric && strings.Contains(flags, "0") && (precision < 0 || strings.IndexByte("eEfgG", verb) >= 0):
		return sign + strings.Repeat("0", fill) + s
	}
	return strings.Repeat(" ", fill) + sign + s
}

// withDigits puts zeros before an integer until it has so many digits.
func withDigits(s string, least int) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	if least == 0 && s == "0" {
		s = ""
	}
	return sign + strings.Repeat("0", max(least-len(s), 0)) + s
}

// quoted is a string as Lua's %q writes it.
func quoted(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(s) {
		switch b := s[i]; b {
		case '"', '\\', '\n':
			out.WriteByte('\\')
			out.WriteByte(b)
		case '\r':
			out.WriteString("\\r")
		case 0:
			out.WriteString("\\000")
		default:
			out.WriteByte(b)
		}
	}
	out.WriteByte('"')
	return out.String()
}
