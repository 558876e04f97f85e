// Package h2 looks at what passes through a connection of HTTP/2 below its server.
package h2

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// Frames finds the headers of HTTP/2's frames in one direction of a connection. The zero value
// begins at a header. Not safe for concurrent use.
type Frames struct {
	skip   int // bytes until the next header
	header [9]byte
	have   int // bytes of header
}

// FromClient finds the frames of a client, which sends a preface before them.
func FromClient() Frames { return Frames{skip: len(http2.ClientPreface)} }

// Next consumes b up to the end of the next header, and reports whether there is one.
func (f *Frames) Next(b []byte) (h http2.FrameHeader, rest []byte, ok bool) {
	n := min(f.skip, len(b))
	f.skip -= n
	b = b[n:]
	n = copy(f.header[f.have:], b)
	f.have += n
	if b = b[n:]; f.have < len(f.header) {
		return h, b, false
	}
	f.have = 0
	h.Length = binary.BigEndian.Uint32(f.header[:]) >> 8
	h.Type, h.Flags = http2.FrameType(f.header[3]), http2.Flags(f.header[4])
	h.StreamID = binary.BigEndian.Uint32(f.header[5:]) & (1<<31 - 1)
	f.skip = int(h.Length)
	return h, b, true
}
