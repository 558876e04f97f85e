package core

import (
	"crypto/rand"

	"github.com/dmindex/dmindex/pkg/verbs"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newToken() (t verbs.Token) {
	rand.Read(t[:])
	return t
}

// locks is four locks of 16 bits as one word.
func locks(a, b, c, d uint16) uint64 {
	return uint64(a) | uint64(b)<<16 | uint64(c)<<32 | uint64(d)<<48
}
