// Package keyrange is what everybody needs of spans of keys: their order, what two have in common,
// and how they look to people.
//
// A span is the keys from start (inclusive) to end (exclusive), in the order of bytes.Compare. An
// empty end is the upper end of the key space.
package keyrange

import (
	"bytes"
	"strconv"
)

// Contains reports whether key lies in the span.
func Contains(start, end, key []byte) bool {
	return bytes.Compare(start, key) <= 0 && Before(key, end)
}

// Before reports whether key lies before end, which is the end of a span.
func Before(key, end []byte) bool { return len(end) == 0 || bytes.Compare(key, end) < 0 }

// Intersect returns what two spans have in common. ok is false if that is nothing. The results are
// parts of the arguments.
func Intersect(aStart, aEnd, bStart, bEnd []byte) (start, end []byte, ok bool) {
	start, end = aStart, aEnd
	if bytes.Compare(bStart, start) > 0 {
		start = bStart
	}
	if len(end) == 0 || len(bEnd) > 0 && bytes.Compare(bEnd, end) < 0 {
		end = bEnd
	}
	return start, end, Before(start, end)
}

// maxQuoted bounds the bytes of a key that messages show.
const maxQuoted = 48

// Quote renders a key for people, in messages and logs: as a Go string, a long one as its beginning
// and its length. Messages stay short whatever the keys are, so that errors of a whole batch fit
// one reply. Every message that shows a key shows it by this.
func Quote(key []byte) string {
	if len(key) <= maxQuoted {
		return strconv.Quote(string(key))
	}
	return strconv.Quote(string(key[:maxQuoted])) + "... (" + strconv.Itoa(len(key)) + " bytes)"
}

// Format renders a span for people. The upper end of the key space is written as "end".
func Format(start, end []byte) string {
	if len(end) == 0 {
		return "[" + Quote(start) + ", end)"
	}
	return "[" + Quote(start) + ", " + Quote(end) + ")"
}
