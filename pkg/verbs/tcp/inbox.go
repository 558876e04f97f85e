package tcp

import (
	"encoding/binary"
	"io"
)

// inbox collects what a connection sends until a frame is whole. A client's starts small and grows
// once to the longest frame when one does not fit; it never holds more. A server's session gives
// its inbox a buffer for such a frame, and takes it back (see buffers).
type inbox struct {
	buf        []byte
	start, end int // buf[start:end] has arrived and was not taken
}

func newInbox(size int) inbox { return inbox{buf: make([]byte, size)} }

// fill reads once from r. What next returned before is no longer valid.
func (b *inbox) fill(r io.Reader) error {
	b.makeRoom()
	n, err := r.Read(b.buf[b.end:])
	b.end += n
	return err
}

// next takes the next whole frame; nil if it has not all arrived. The frame is valid until fill. An
// error says that the header is out of bounds: nothing after it can be understood.
func (b *inbox) next() (h header, frame []byte, err error) {
	if b.end-b.start < headerSize {
		return h, nil, nil
	}
	if h, err = decodeHeader(b.buf[b.start:]); err != nil || b.end-b.start < int(h.size) {
		return h, nil, err
	}
	frame = b.buf[b.start : b.start+int(h.size)]
	b.start += int(h.size)
	return h, frame, nil
}

// makeRoom gives the unfinished frame room to its end, and the next read a good part of the buffer.
func (b *inbox) makeRoom() {
	if b.start == b.end {
		b.start, b.end = 0, 0
		return
	}
	need := b.need()
	switch {
	case need > len(b.buf):
		b.move(make([]byte, maxFrame))
		return
	case b.start == 0: // there is room up to the frame's end
		return
	case len(b.buf)-b.start < need, len(b.buf)-b.end < len(b.buf)/4:
		copy(b.buf, b.buf[b.start:b.end])
	default:
		return
	}
	b.start, b.end = 0, b.end-b.start
}

// need is how long the unfinished frame is, as far as that is known. next has been called, and has
// checked it.
func (b *inbox) need() int {
	if b.end-b.start < headerSize {
		return headerSize
	}
	return int(binary.LittleEndian.Uint32(b.buf[b.start:]))
}

// move goes on in another buffer, with what was not taken at its start.
func (b *inbox) move(buf []byte) {
	b.start, b.end = 0, copy(buf, b.buf[b.start:b.end])
	b.buf = buf
}
