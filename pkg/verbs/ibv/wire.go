package ibv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The exchange behind the handshake on the bootstrap connection. All integers are little-endian.
//
// First the server sends, for each region of its answer and in the same order:
//
//	0 8 address of the first byte
//	8 4 rkey
//	12 4 bit 0: the server executes calls. (The handshake does not say so: clients of before there
//	     were calls over ibv would make them otherwise.)
//
// Then frames of 48 bytes travel in both directions:
//
//	 0 1 kind                    16  1 path MTU (1 = 256 bytes, ... 5 = 4096)
//	 1 1 code                    17  1 READs and atomics that may be under way to this side
//	 2 2 slot                    18  2 LID (InfiniBand; 0 on RoCE)
//	 4 4 sequence                20 12 zero
//	 8 4 queue pair number       32 16 GID
//	12 4 first packet sequence
//
// pair (client): make a queue pair for the client's, which the frame describes. The server answers
// with a pair frame of the same slot and sequence that describes its own, ready to receive, or with
// a code that says why there is none. drop (client): destroy the queue pair of the slot; there is
// no answer. A slot is used again only behind its drop. calls (client): let the queue pair of the
// slot take calls; the server answers with a calls frame of the same slot and sequence, whose code
// reports whether it does. bye (client): destroy all and answer bye once nothing of them can take
// effect any more.
const (
	framePair  = 1
	frameDrop  = 2
	frameBye   = 3
	frameCalls = 4

	frameSize  = 48
	regionSize = 16
)

// The codes of a pair frame that answers.
const (
	codeOK       = 0
	codeTooMany  = 1 // the connection has all the queue pairs that it may have
	codeResource = 2 // the server's NIC gave none
	codePath     = 3 // the two sides cannot reach each other: InfiniBand here, RoCE there
)

// errFrame is returned for a frame that makes no sense.
var errFrame = errors.New("malformed bootstrap frame")

// endpoint is one side of a pair, as the other side must know it.
type endpoint struct {
	qpn   uint32
	psn   uint32
	mtu   uint8
	reads uint8
	lid   uint16
	gid   [16]byte
}

// frame is a message of the bootstrap connection.
type frame struct {
	kind, code uint8
	slot       uint16
	seq        uint32
	endpoint
}

// append encodes f.
func (f *frame) append(dst []byte) []byte {
	dst = append(dst, f.kind, f.code)
	dst = binary.LittleEndian.AppendUint16(dst, f.slot)
	dst = binary.LittleEndian.AppendUint32(dst, f.seq)
	dst = binary.LittleEndian.AppendUint32(dst, f.qpn)
	dst = binary.LittleEndian.AppendUint32(dst, f.psn)
	dst = append(dst, f.mtu, f.reads)
	dst = binary.LittleEndian.AppendUint16(dst, f.lid)
	dst = append(dst, make([]byte, 12)...)
	return append(dst, f.gid[:]...)
}

// readFrame reads one frame. An error wraps errFrame or what r returned.
func readFrame(r io.Reader) (f frame, err error) {
	var b [frameSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return f, err
	}
	f.kind, f.code = b[0], b[1]
	f.slot = binary.LittleEndian.Uint16(b[2:])
	f.seq = binary.LittleEndian.Uint32(b[4:])
	f.qpn = binary.LittleEndian.Uint32(b[8:])
	f.psn = binary.LittleEndian.Uint32(b[12:])
	f.mtu, f.reads = b[16], b[17]
	f.lid = binary.LittleEndian.Uint16(b[18:])
	copy(f.gid[:], b[32:])
	switch {
	case f.kind < framePair || f.kind > frameCalls || f.slot >= MaxQPs || f.code > codePath,
		f.kind == framePair && f.code == codeOK && !f.endpoint.valid():
		return f, fmt.Errorf("kind %d, code %d, slot %d, queue pair %#x, MTU %d: %w", f.kind, f.code, f.slot, f.qpn, f.mtu, errFrame)
	}
	return f, nil
}

// valid reports whether an endpoint can be connected to, as far as its figures tell.
func (e *endpoint) valid() bool {
	return e.qpn > 0 && e.qpn < 1<<24 && e.psn < 1<<24 && e.mtu >= 1 && e.mtu <= 5 && e.reads >= 1
}

// mtuBytes is how many bytes a path MTU means.
func mtuBytes(mtu uint8) int { return 128 << mtu }

// path is what two endpoints that are to be connected agree on, or codePath.
func path(mine, theirs *endpoint) (mtu uint8, code uint8) {
	if (mine.lid == 0) != (theirs.lid == 0) {
		return 0, codePath
	}
	return min(mine.mtu, theirs.mtu), codeOK
}

// codeErr is what a code means to the client.
func codeErr(code uint8) error {
	switch code {
	case codeTooMany:
		return fmt.Errorf("the memory server gives this connection no more queue pairs: %w", verbs.ErrTooMany)
	case codeResource:
		return fmt.Errorf("the memory server's NIC gave no queue pair: %w", verbs.ErrTooMany)
	case codePath:
		return fmt.Errorf("one side's port is InfiniBand and the other's RoCE: %w", verbs.ErrDisconnected)
	}
	return nil
}

// appendRegion encodes where a region lies.
func appendRegion(dst []byte, r remoteRegion) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, r.base)
	dst = binary.LittleEndian.AppendUint32(dst, r.key)
	calls := uint32(0)
	if r.calls {
		calls = 1
	}
	return binary.LittleEndian.AppendUint32(dst, calls)
}

// readRegions reads where the regions of an answer lie.
func readRegions(r io.Reader, list []verbs.Region) (regions [verbs.RegionLocks + 1]remoteRegion, err error) {
	var b [regionSize]byte
	for _, g := range list {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return regions, err
		}
		regions[g.ID] = remoteRegion{
			base: binary.LittleEndian.Uint64(b[0:]), size: g.Size, key: binary.LittleEndian.Uint32(b[8:]), calls: b[12]&1 != 0,
		}
	}
	return regions, nil
}
