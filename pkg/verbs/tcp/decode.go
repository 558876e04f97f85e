package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// errFrame is returned for bytes that are no frame of this protocol.
var errFrame = errors.New("malformed frame")

// request is a decoded work request. Local is the payload of a WRITE or the request of a call,
// within the frame, and nil for others; length is the number of bytes that the request reads or
// writes, and of a call what there is room for.
type request struct {
	verbs.Request
	length int
}

// decodeHeader decodes the first 16 bytes of b, which has at least as many. The frame's size is
// within bounds if err is nil.
func decodeHeader(b []byte) (h header, err error) {
	_ = b[headerSize-1]
	h = header{
		size:  binary.LittleEndian.Uint32(b[0:]),
		qp:    binary.LittleEndian.Uint16(b[4:]),
		kind:  b[6],
		count: b[7],
		seq:   binary.LittleEndian.Uint32(b[8:]),
		code:  binary.LittleEndian.Uint32(b[12:]),
	}
	if h.size < headerSize || h.size > maxFrame || h.size%8 != 0 {
		return h, fmt.Errorf("frame of %d bytes, %d to %d in steps of 8 allowed: %w", h.size, headerSize, maxFrame, errFrame)
	}
	return h, nil
}

// decodeList decodes the requests of a list frame into reqs and returns them with the size of the
// answer's frame. Every rule of the wire format and of verbs.Check is checked, except whether the
// requests are within their regions. It allocates nothing unless it fails.
func decodeList(h *header, frame []byte, reqs *[verbs.MaxList]request) (list []request, answer int, err error) {
	if int(h.size) != len(frame) || h.count == 0 || int(h.count) > verbs.MaxList || h.qp >= MaxQPs || h.code != 0 {
		return nil, 0, fmt.Errorf("list frame of %d bytes, %d requests, queue pair %d: %w", h.size, h.count, h.qp, errFrame)
	}
	rest := frame[headerSize:]
	answer = headerSize
	written, read := 0, 0
	list = reqs[:h.count]
	for i := range list {
		r := &list[i]
		n, ok := decodeRequest(rest, r)
		if !ok {
			return nil, 0, fmt.Errorf("request %d of %d at byte %d: %w", i, h.count, len(frame)-len(rest), errFrame)
		}
		rest = rest[n:]
		answer += answerBytes(r.Op, r.length)
		switch r.Op {
		case verbs.Write:
			written += r.length
		case verbs.Call:
			if h.count > 1 {
				return nil, 0, fmt.Errorf("a call among %d requests: %w", h.count, errFrame)
			}
		default:
			read += r.length
		}
	}
	if len(rest) != 0 {
		return nil, 0, fmt.Errorf("%d bytes after the last request: %w", len(rest), errFrame)
	}
	if h.count > 1 && (written > maxPayload || read > maxPayload) {
		return nil, 0, fmt.Errorf("%d bytes to write and %d to read in one frame, %d allowed: %w", written, read, maxPayload, errFrame)
	}
	return list, answer, nil
}

// decodeRequest decodes the request at the start of b and returns how long it is.
func decodeRequest(b []byte, r *request) (n int, ok bool) {
	if len(b) < requestSize {
		return 0, false
	}
	first := binary.LittleEndian.Uint64(b)
	op := verbs.Op(first)
	region := verbs.RegionID(first >> 8)
	flags := first >> 16 & 0xffff
	length := int(first >> 32)
	remote := binary.LittleEndian.Uint64(b[8:])
	if op >= verbs.NumOps || region > verbs.RegionLocks || flags > flagFence || length == 0 || length > verbs.MaxTransfer {
		return 0, false
	}
	if op.Atomic() && (length != 8 || remote%8 != 0) {
		return 0, false
	}
	carried := length
	if op == verbs.Call {
		if carried, ok = argsOf(b, first, remote); !ok {
			return 0, false
		}
	}
	n = requestBytes(op, carried)
	if len(b) < n {
		return 0, false
	}
	r.Op, r.Region, r.Fence, r.Remote, r.length = op, region, flags == flagFence, remote, length
	r.Local, r.Args = nil, 0
	operand := func(i int) uint64 { return binary.LittleEndian.Uint64(b[requestSize+8*i:]) }
	switch op {
	case verbs.Write:
		r.Local = b[requestSize : requestSize+length]
	case verbs.Call:
		r.Local, r.Args = b[requestSize+8:requestSize+8+carried], carried
	case verbs.CompareSwap:
		r.Compare, r.Swap = operand(0), operand(1)
	case verbs.FetchAdd:
		r.Add = operand(0)
	case verbs.MaskedCompareSwap:
		r.Compare, r.Swap, r.CompareMask, r.SwapMask = operand(0), operand(1), operand(2), operand(3)
	case verbs.MaskedFetchAdd:
		r.Add, r.Boundary = operand(0), operand(1)
	}
	return n, true
}

// argsOf is how long the request of a call is that b starts with; false if b breaks a rule of
// calls.
func argsOf(b []byte, first, remote uint64) (int, bool) {
	length := first >> 32
	if len(b) < requestSize+8 || first>>8&0xffffff != 0 || remote != 0 || length < 8 || length > verbs.MaxCall {
		return 0, false
	}
	args := binary.LittleEndian.Uint64(b[requestSize:])
	return int(args), args <= length
}
