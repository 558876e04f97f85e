//env:real numbers and tokens must be unique and secret, so they come from the operating system

package memserver

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// numberByClock is the number of a process that found nothing stored: above those of before, as far
// as the clock goes on. Its last 10 bits are random. So where the clock was set back, or begins
// anew with the machine, the few processes that count up from here reach no number that a view
// names (volumes.Report.First). It is below 2^53, so that all programs read it as it is.
func numberByClock() uint64 {
	var b [2]byte
	rand.Read(b[:]) // never fails
	return uint64(max(time.Now().UnixMilli(), 1))<<10 | uint64(binary.LittleEndian.Uint16(b[:])>>6)
}

func newToken() (t verbs.Token) {
	rand.Read(t[:])
	return t
}
