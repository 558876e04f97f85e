package resp

import (
	"bytes"
	"errors"
	"math"
	"strconv"

	"github.com/tidwall/redcon"

	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/sortedset"
)

// How scores of sorted sets, and ranges of them, are read and written.

var (
	errNotFloat  = errors.New("ERR value is not a valid float")
	errScores    = errors.New("ERR min or max is not a float")
	errMembers   = errors.New("ERR min or max not valid string range item")
	errNegative  = errors.New("ERR value is out of range, must be positive")
	errRankLimit = errors.New("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
	errLexScores = errors.New("ERR syntax error, WITHSCORES not supported in combination with BYLEX")
)

// scoreOf reads a score. It is false where the number is none, or too large, or too near zero.
func scoreOf(b []byte) (float64, bool) {
	score, ok := double(b)
	return score, ok && (!math.IsInf(score, 0) || bytes.ContainsAny(b, "iI")) && (score != 0 || !bytes.ContainsAny(mantissa(b), "123456789"))
}

// exact is up to where each integer is a float64.
const exact = 1 << 53

// double reads a number as strtod of C does; one that is too large is infinite.
func double(b []byte) (float64, bool) {
	if n, ok := engine.ParseInteger(b); ok && -exact <= n && n <= exact { // as scores mostly are
		return float64(n), true
	}
	if _, ok := engine.IsFloat(b); !ok {
		return 0, false
	}
	text := string(b)
	if bytes.ContainsAny(b, "xX") && !bytes.ContainsAny(b, "pP") {
		text += "p0"
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil || errors.Is(err, strconv.ErrRange)
}

// mantissa is a decimal number without its exponent.
func mantissa(b []byte) []byte {
	if i := bytes.IndexAny(b, "eE"); i >= 0 {
		return b[:i]
	}
	return b
}

// limitOf reads one end of a range of scores.
func limitOf(b []byte) (l sortedset.Limit, ok bool) {
	if len(b) > 0 && b[0] == '(' {
		l.Open, b = true, b[1:]
	}
	if len(b) == 0 {
		return l, true
	}
	l.Score, ok = double(b)
	return l, ok
}

// limitsOf reads a range of scores.
func limitsOf(low, high []byte) (of [2]sortedset.Limit, err error) {
	var ok, also bool
	of[0], ok = limitOf(low)
	of[1], also = limitOf(high)
	if !ok || !also {
		return of, errScores
	}
	return of, nil
}

// endsOf reads a range of members of at most longest bytes; none if no member is in it.
func endsOf(low, high []byte, longest int) (of sortedset.Ends, none bool, err error) {
	// end is the least member at or above an end: behind it, for (a from and for [a to.
	end := func(b []byte, behind byte) ([]byte, bool) {
		if len(b) == 0 || b[0] != '(' && b[0] != '[' {
			return nil, false
		}
		member := b[1:]
		if len(member) > longest { // the members above it are those above what fits
			return append(bytes.Clone(member[:longest]), 0), true
		}
		if b[0] == behind {
			return append(bytes.Clone(member), 0), true
		}
		return bytes.Clone(member), true
	}
	ok, also := true, true
	switch string(low) {
	case "-":
	case "+":
		none = true
	default:
		of.From, ok = end(low, '(')
	}
	switch string(high) {
	case "+":
	case "-":
		none = true
	default:
		if of.To, also = end(high, '['); of.To == nil {
			of.To = []byte{}
		}
	}
	if !ok || !also {
		return of, none, errMembers
	}
	return of, none, nil
}

// appendScore appends a score as Redis writes it: an integer, or the shortest number that is read
// as the same.
func (c *conn) appendScore(b []byte, score float64) []byte {
	if c.resp3 {
		return append(formatScore(append(b, ','), score), '\r', '\n')
	}
	var text [32]byte
	return redcon.AppendBulk(b, formatScore(text[:0], score))
}

func formatScore(dst []byte, score float64) []byte {
	const exact = 1 << 52
	switch {
	case math.IsInf(score, 1):
		return append(dst, "inf"...)
	case math.IsInf(score, -1):
		return append(dst, "-inf"...)
	case score == 0 && math.Signbit(score):
		return append(dst, "-0"...)
	case math.Abs(score) <= exact && score == math.Trunc(score):
		return strconv.AppendInt(dst, int64(score), 10)
	}
	var text [32]byte
	shortest := strconv.AppendFloat(text[:0], score, 'e', -1, 64)
	at := bytes.IndexByte(shortest, 'e')
	exponent, _ := strconv.Atoi(string(shortest[at+1:])) // as it was just written
	digits := at
	if bytes.IndexByte(shortest, '.') >= 0 {
		digits--
	}
	if score < 0 {
		digits--
	}
	last := exponent - digits + 1 // the exponent of the last digit
	if last >= 0 && exponent < digits+7 || last < 0 && (last > -7 || max(exponent, -exponent) < 4) {
		return strconv.AppendFloat(dst, score, 'f', -1, 64)
	}
	sign := byte('+')
	if exponent < 0 {
		sign, exponent = '-', -exponent
	}
	return strconv.AppendInt(append(append(dst, shortest[:at+1]...), sign), int64(exponent), 10)
}
