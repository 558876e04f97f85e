// Package hello is the handshake of the providers that talk to a memory server over a stream: a
// Unix socket (shm) or TCP.
//
// The client speaks first. All integers are little-endian. Magic and version stand at the start of
// both messages in every version of the protocol, so that two sides of different versions can tell
// each other so.
//
//	hello              answer
//	 0  8 magic         0  8 magic
//	 8  2 version       8  2 version of the server
//	10  2 earlier: n   10  2 code
//	12  4 zero         12  4 regions: n
//	16 32 token        16  8 incarnation
//	48  8 incarnation  24  8 session
//	56 8n sessions     32  4 capability bits
//	                   36  4 queue pairs at most
//	                   40  8 device memory
//	                   48  8 whole write
//	                   56 16n regions: id 8, size 8
//
// Earlier sessions are connections of the same client that broke without a farewell. The server
// ends them and lets them drain before it answers, so that a new connection is usable only when the
// earlier queue pairs are quiet (G3).
package hello

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Version is the protocol version, of both the handshake and the frames that follow it.
const Version = 1

// Limits of the handshake.
const (
	MaxEarlier = 1024 // sessions named in one hello
	maxRegions = 8
)

const (
	magic      = "dmverbs\n"
	prefixSize = 10 // magic and version
	helloSize  = 56
	answerSize = 56
	regionSize = 16
)

// Hello is the client's half.
type Hello struct {
	Token       verbs.Token
	Incarnation uint64   // expected; 0 = any
	Earlier     []uint64 // sessions that broke without a farewell
}

// Append encodes h.
func (h *Hello) Append(dst []byte) []byte {
	dst = appendPrefix(dst, Version)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(h.Earlier)))
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = append(dst, h.Token[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, h.Incarnation)
	for _, s := range h.Earlier {
		dst = binary.LittleEndian.AppendUint64(dst, s)
	}
	return dst
}

// errVersion is what a side says about the other's version.
func errVersion(mine, theirs uint16) error {
	return fmt.Errorf("this side speaks version %d of the protocol, the other version %d: %w", mine, theirs, verbs.ErrVersion)
}

func appendPrefix(dst []byte, version uint16) []byte {
	return binary.LittleEndian.AppendUint16(append(dst, magic...), version)
}

func readPrefix(r io.Reader) error {
	var b [prefixSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	if string(b[:8]) != magic {
		return fmt.Errorf("the other side does not speak this protocol (first bytes %q): %w", b[:8], ErrMalformed)
	}
	if v := binary.LittleEndian.Uint16(b[8:]); v != Version {
		return errVersion(Version, v)
	}
	return nil
}

// ErrMalformed is returned for a message that is none of this protocol.
var ErrMalformed = errors.New("malformed handshake")

// ReadHello reads the client's half. An error wraps verbs.ErrVersion, ErrMalformed or what r
// returned.
func ReadHello(r io.Reader) (*Hello, error) {
	if err := readPrefix(r); err != nil {
		return nil, err
	}
	var b [helloSize - prefixSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint16(b[0:]))
	if n > MaxEarlier {
		return nil, fmt.Errorf("%d earlier sessions, %d allowed: %w", n, MaxEarlier, ErrMalformed)
	}
	h := &Hello{Incarnation: binary.LittleEndian.Uint64(b[38:])}
	copy(h.Token[:], b[6:38])
	list := make([]byte, 8*n)
	if _, err := io.ReadFull(r, list); err != nil {
		return nil, err
	}
	for i := range n {
		h.Earlier = append(h.Earlier, binary.LittleEndian.Uint64(list[8*i:]))
	}
	return h, nil
}
