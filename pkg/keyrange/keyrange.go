// Package keyrange renders keys, and spans of keys, for people.
package keyrange

import "strconv"

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

// Format renders the keys from start (inclusive) to end (exclusive); an empty end is the upper end
// of the key space, and written as "end".
func Format(start, end []byte) string {
	if len(end) == 0 {
		return "[" + Quote(start) + ", end)"
	}
	return "[" + Quote(start) + ", " + Quote(end) + ")"
}
