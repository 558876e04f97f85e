package keyrange

import "bytes"

// PrefixEnd returns the end of the span of all keys that begin with prefix: the first key behind
// them. It is nil where no key is, so for the empty prefix too: the span has no end then.
func PrefixEnd(prefix []byte) []byte {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] != 0xff {
			end := bytes.Clone(prefix[:n])
			end[n-1]++
			return end
		}
	}
	return nil
}
