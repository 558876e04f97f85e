//env:real incarnations must be unique, so they come from the operating system

package region

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
)

// newIncarnation is a random number that is not 0, which means "any" to clients.
func newIncarnation() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return max(1, binary.LittleEndian.Uint64(b[:]))
}

// BootID identifies one run of this machine; zero if the system does not tell.
func BootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || len(raw) != len(id) {
		return id
	}
	return [16]byte(raw)
}
