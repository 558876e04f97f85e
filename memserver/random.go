//env:real incarnations and tokens must be unique and secret, so they come from the operating system

package memserver

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// newIncarnation is a random number that is not 0, which means "any" to clients.
func newIncarnation() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return max(1, binary.LittleEndian.Uint64(b[:]))
}

func newToken() (t verbs.Token) {
	rand.Read(t[:])
	return t
}
