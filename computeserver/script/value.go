package script

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// value is a value of Lua: nil, bool, float64, string, *table, *function or *builtin.
type value = any

// function is a function of a script.
type function struct {
	of     *body
	values []*cell // of the variables of outer functions
}

// builtin is a function of a library.
type builtin struct {
	name string
	run  func(m *machine, args []value) []value
}

// cell is a variable that an inner function uses.
type cell struct{ v value }

func typeName(v value) string {
	switch v.(type) {
	case nil:
		return "nil"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case *table:
		return "table"
	}
	return "function"
}

// isTrue is what a condition makes of a value.
func isTrue(v value) bool {
	b, is := v.(bool)
	return v != nil && (!is || b)
}

// formatNumber writes a number as Lua does.
func formatNumber(n float64) string {
	if n == math.Trunc(n) && math.Abs(n) < 1e14 {
		if n == 0 && math.Signbit(n) {
			return "-0"
		}
		return strconv.FormatInt(int64(n), 10)
	}
	return formatGeneral(n, 14)
}

// formatGeneral is %.Ng of C.
func formatGeneral(n float64, digits int) string {
	switch {
	case math.IsInf(n, 0), math.IsNaN(n):
		return formatNoNumber(n)
	}
	return strconv.FormatFloat(n, 'g', digits, 64)
}

func formatNoNumber(n float64) string {
	text := "inf"
	if math.IsNaN(n) {
		text = "nan"
	}
	if math.Signbit(n) {
		text = "-" + text
	}
	return text
}

// parseNumber reads a number as Lua does: decimal, or hexadecimal behind 0x, with spaces around it.
func parseNumber(s string) (float64, bool) {
	s = strings.Trim(s, " \t\n\v\f\r")
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 {
		return 0, false
	}
	if len(digits) > 2 && digits[0] == '0' && digits[1]|' ' == 'x' {
		n := 0.0
		for _, d := range []byte(digits[2:]) {
			x, ok := digit(d, 16)
			if !ok {
				return 0, false
			}
			n = 16*n + float64(x)
		}
		if s[0] == '-' {
			n = -n
		}
		return n, true
	}
	if digits == "" || strings.Trim(digits, "0123456789.eE+-") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(n, 0) {
		return 0, false
	}
	return n, true
}

// digit is the value of a digit or letter, if it is below base.
func digit(b byte, base int) (int, bool) {
	n := base
	switch {
	case b >= '0' && b <= '9':
		n = int(b - '0')
	case b|' ' >= 'a' && b|' ' <= 'z':
		n = int(b|' ') - 'a' + 10
	}
	return n, n < base
}

// number is the number that a value is, or that a string has.
func (m *machine) number(v value) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case string:
		m.key(v)
		return parseNumber(v)
	}
	return 0, false
}

// toText is the string that a value is, or the digits of a number.
func toText(v value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case float64:
		return formatNumber(v), true
	}
	return "", false
}

// toString is tostring.
func toString(v value) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case bool:
		return strconv.FormatBool(v)
	case *builtin:
		return "function: builtin: " + v.name
	}
	if s, ok := toText(v); ok {
		return s
	}
	// no address of this process
	return fmt.Sprintf("%s: 0x0", typeName(v))
}

// toInteger is the number as an integer, cut off as C does it; the lowest one where it does not
// fit.
func toInteger(n float64) int64 {
	if n >= -(1<<63) && n < 1<<63 {
		return int64(n)
	}
	return math.MinInt64
}
