package tcp

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The frames that follow the handshake. All integers are little-endian, all lengths multiples of 8,
// and unused bytes zero.
//
//	header, 16 bytes               request, 16 to 48 bytes
//	 0 4 size of the frame          0 1 kind (verbs.Op)
//	 4 2 queue pair                 1 1 region
//	 6 1 kind of frame              2 1 flags: 1 = fence
//	 7 1 requests: n                3 1 zero
//	 8 4 sequence                   4 4 length in bytes (8 for an atomic)
//	12 4 code                       8 8 remote
//	                               16   operands
//
// Operands are 8 bytes each: compare, swap (CompareSwap); add (FetchAdd); compare, swap, compare
// mask, swap mask (MaskedCompareSwap); add, boundary (MaskedFetchAdd); bytes of the request (Call).
// A WRITE is followed by its bytes, a call by its request.
//
// A list frame carries n requests of one list. A list goes in one frame if its bytes, to write or
// to read, are at most MaxTransfer, else in several, in order, each with at least one request. Each
// is answered by a frame of the same queue pair, sequence and n, that carries for each request in
// turn the bytes read, or the 8 bytes of the old value, or nothing. A call's answer carries status
// (4), length (4) and so many bytes; the length in its request is what there is room for, those 8
// included. Region and remote are zero. The sequence of a queue pair grows by one a frame; a late
// answer to a list that was given up is known by it.
//
// A bye frame asks for a bye frame in return, after everything before it was executed and answered.
// An error frame is the last that a server sends: it ends the connection, since a client of this
// code checks its requests before it sends them.
const (
	headerSize  = 16
	requestSize = 16

	frameList  = 1
	frameBye   = 2
	frameError = 3

	flagFence = 1
)

// Bounds of a frame, in bytes. Both directions share them: what one carries in bytes to write the
// other may carry in bytes read, and requests are never shorter than answers.
const (
	// bytes to write, or to read, of one frame
	maxPayload = verbs.MaxTransfer
	// the last for padding
	maxFrame = headerSize + verbs.MaxList*(requestSize+4*8) + maxPayload + verbs.MaxList*8
)

// Codes of an error frame.
const (
	codeMalformed  = 1
	codeOutOfRange = 2
)

// pad is n rounded up to a multiple of 8.
func pad(n int) int { return (n + 7) &^ 7 }

// operands is how many 8-byte operands a request of kind op has.
var operands = [verbs.NumOps]int{
	verbs.CompareSwap: 2, verbs.FetchAdd: 1, verbs.MaskedCompareSwap: 4, verbs.MaskedFetchAdd: 2,
	verbs.Call: 1,
}

// requestBytes is how long a request of kind op with n local bytes is on the wire. Of a call n is
// the length of its request.
func requestBytes(op verbs.Op, n int) int {
	size := requestSize + 8*operands[op]
	if op == verbs.Write || op == verbs.Call {
		size += pad(n)
	}
	return size
}

// answerBytes is how long its answer is, at most if it is a call.
func answerBytes(op verbs.Op, n int) int {
	if op == verbs.Write {
		return 0
	}
	return pad(n)
}

// header is the start of every frame.
type header struct {
	size  uint32
	qp    uint16
	kind  uint8
	count uint8
	seq   uint32
	code  uint32
}

// put encodes h into b, which has room for it.
func (h *header) put(b []byte) {
	_ = b[headerSize-1]
	binary.LittleEndian.PutUint32(b[0:], h.size)
	binary.LittleEndian.PutUint16(b[4:], h.qp)
	b[6] = h.kind
	b[7] = h.count
	binary.LittleEndian.PutUint32(b[8:], h.seq)
	binary.LittleEndian.PutUint32(b[12:], h.code)
}

// append encodes h at the end of dst.
func (h *header) append(dst []byte) []byte {
	dst = append(dst, make([]byte, headerSize)...)
	h.put(dst[len(dst)-headerSize:])
	return dst
}

var zeros [8]byte

// appendRequest encodes r with its payload. The buffer of r is read here and not again.
func appendRequest(dst []byte, r *verbs.Request) []byte {
	if r.Op == verbs.Call {
		return appendCall(dst, r)
	}
	var flags uint64
	if r.Fence {
		flags = flagFence
	}
	dst = binary.LittleEndian.AppendUint64(dst,
		uint64(r.Op)|uint64(r.Region)<<8|flags<<16|uint64(len(r.Local))<<32)
	dst = binary.LittleEndian.AppendUint64(dst, r.Remote)
	switch r.Op {
	case verbs.Write:
		dst = append(dst, r.Local...)
		dst = append(dst, zeros[:pad(len(r.Local))-len(r.Local)]...)
	case verbs.CompareSwap, verbs.MaskedCompareSwap:
		dst = binary.LittleEndian.AppendUint64(dst, r.Compare)
		dst = binary.LittleEndian.AppendUint64(dst, r.Swap)
		if r.Op == verbs.MaskedCompareSwap {
			dst = binary.LittleEndian.AppendUint64(dst, r.CompareMask)
			dst = binary.LittleEndian.AppendUint64(dst, r.SwapMask)
		}
	case verbs.FetchAdd, verbs.MaskedFetchAdd:
		dst = binary.LittleEndian.AppendUint64(dst, r.Add)
		if r.Op == verbs.MaskedFetchAdd {
			dst = binary.LittleEndian.AppendUint64(dst, r.Boundary)
		}
	}
	return dst
}

func appendCall(dst []byte, r *verbs.Request) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Op)|uint64(len(r.Local))<<32)
	dst = append(dst, zeros[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Args))
	dst = append(dst, r.Local[:r.Args]...)
	return append(dst, zeros[:pad(r.Args)-r.Args]...)
}

// partOf is how many requests at the start of list go into one frame, and how long that is on the
// wire.
func partOf(list []verbs.Request) (n, size int) {
	size = headerSize
	written, read := 0, 0
	for n = range list {
		op, local := list[n].Op, len(list[n].Local)
		switch op {
		case verbs.Write:
			written += local
		case verbs.Call: // alone
			local = list[n].Args
		default:
			read += local
		}
		if n > 0 && (written > maxPayload || read > maxPayload) {
			return n, size
		}
		size += requestBytes(op, local)
	}
	return len(list), size
}
