package engine

import (
	"bytes"
	"math"
	"math/big"
)

// ParseInteger reads an integer as Redis does: decimal, of 64 bits, and in the one form in which it
// would be written: without spaces, plus, or zeros in front.
func ParseInteger(b []byte) (n int64, ok bool) {
	digits := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 19 || digits[0] == '0' && len(b) > 1 {
		return 0, false
	}
	u := uint64(0)
	for _, d := range digits { // 19 at most: they do not overflow
		if d < '0' || d > '9' {
			return 0, false
		}
		u = 10*u + uint64(d-'0')
	}
	switch {
	case negative && u <= 1<<63:
		return -int64(u), true
	case !negative && u <= math.MaxInt64:
		return int64(u), true
	}
	return 0, false
}

// addIntegers is false where the sum takes more than 64 bits.
func addIntegers(a, b int64) (sum int64, ok bool) {
	sum = a + b
	return sum, (sum > a) == (b > 0)
}

// Redis adds floating-point numbers as its C compiler's long double, which is the extended format
// of x87: 64 bits of mantissa, 15 of exponent. The sum is written with 17 digits behind the point,
// without zeros at the end.
const (
	floatBits  = 64
	floatExact = 512 // bits by which a number is read before it is rounded
	floatMax   = 16384
	floatMin   = -16444
	// bytes of a number as it is read, and as it is written
	floatLongest = 5 << 10
	floatDigits  = 17
)

// addFloats appends the sum of two numbers to dst.
func addFloats(dst, a, b []byte) ([]byte, error) {
	x, ok := parseFloat(a)
	if !ok {
		return dst, errNotFloat
	}
	y, ok := parseFloat(b)
	if !ok {
		return dst, errNotFloat
	}
	if x.IsInf() || y.IsInf() {
		return dst, errInfinite
	}
	sum := new(big.Float).SetPrec(floatBits).Add(x, y)
	if sum.MantExp(nil) > floatMax {
		return dst, errInfinite
	}
	from := len(dst)
	dst = sum.Append(dst, 'f', floatDigits)
	for dst[len(dst)-1] == '0' { // there is a point before
		dst = dst[:len(dst)-1]
	}
	if dst[len(dst)-1] == '.' {
		dst = dst[:len(dst)-1]
	}
	if string(dst[from:]) == "-0" {
		dst = append(dst[:from], '0')
	}
	return dst, nil
}

// parseFloat reads a number as strtold of C does, but without spaces in front: decimal, or
// hexadecimal behind 0x, or an infinity. A number that is too large, or too near zero, is none.
func parseFloat(b []byte) (*big.Float, bool) {
	if len(b) == 0 || len(b) >= floatLongest {
		return nil, false
	}
	digits := b
	if digits[0] == '+' || digits[0] == '-' {
		digits = digits[1:]
	}
	if name := string(bytes.ToLower(digits)); name == "inf" || name == "infinity" {
		return new(big.Float).SetInf(b[0] == '-'), true
	}
	base, exponent := 10, "eE"
	if len(digits) > 1 && digits[0] == '0' && digits[1]|' ' == 'x' {
		base, exponent, digits = 16, "pP", digits[2:]
	}
	if !isFloat(digits, base, exponent) {
		return nil, false
	}
	if base == 16 {
		base = 0 // by its prefix
	}
	exact, _, err := big.ParseFloat(string(b), base, floatExact, big.ToNearestEven)
	if err != nil || exact.IsInf() {
		return nil, false
	}
	rounded := exact.SetPrec(floatBits)
	exp := rounded.MantExp(nil)
	if exp > floatMax || rounded.Sign() != 0 && exp < floatMin {
		return nil, false
	}
	return rounded, true
}

// IsFloat reports whether Redis reads b as a number, and whether that is finite.
func IsFloat(b []byte) (finite, ok bool) {
	x, ok := parseFloat(b)
	return ok && !x.IsInf(), ok
}

// isFloat reports whether digits are those of a number: some, perhaps with a point, and perhaps an
// exponent.
func isFloat(digits []byte, base int, exponent string) bool {
	some, point := false, false
	for i, d := range digits {
		switch {
		case d >= '0' && d <= '9', base == 16 && (d|' ' >= 'a' && d|' ' <= 'f'):
			some = true
		case d == '.' && !point:
			point = true
		case some && (d == exponent[0] || d == exponent[1]):
			rest := digits[i+1:]
			if len(rest) > 0 && (rest[0] == '+' || rest[0] == '-') {
				rest = rest[1:]
			}
			return len(rest) > 0 && len(bytes.Trim(rest, "0123456789")) == 0
		default:
			return false
		}
	}
	return some
}
