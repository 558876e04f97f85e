package ibv

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Masked atomics are no verbs of libibverbs. NICs of the mlx5 family execute them as work queue
// entries of their own kind, which mlx5dv_wr_raw_wqe posts between ordinary ones. The entry,
// big-endian, in segments of 16 bytes (mlx5 programmer's reference, send work queue entries; struct
// mlx5_wqe_ctrl_seg, mlx5_wqe_raddr_seg and mlx5_wqe_data_seg of mlx5dv.h):
//
//	 0  1 operation modifier: extended atomic, and the size of its operand
//	 1  2 index in the queue (the library fills it in)
//	 3  1 operation
//	 4  3 queue pair
//	 7  1 segments of the entry
//	 8  1 signature (the library fills it in)
//	 9  2 zero
//	11  1 fence (bits 5 to 7), completion (bits 2 and 3)
//	12  4 zero
//	16  8 remote address
//	24  4 rkey
//	28  4 zero
//	32    operands. compare-and-swap, 32 bytes: swap, compare, swap mask, compare mask.
//	      fetch-and-add, 16 bytes: add, boundary (a set bit is the highest of its field)
//	 +  4 length of the local buffer
//	 +  4 lkey
//	 +  8 local address
const (
	opMaskedCompareSwap = 0x14
	opMaskedFetchAdd    = 0x15

	// extended atomic; log2 of the operand's size is counted from 4 bytes
	modifierExtended8 = 0x8 | 1

	ctrlFence      = 4 << 5 // wait for all READs and atomics before
	ctrlCompletion = 2 << 2 // always make a completion

	maskedSwapSegments = 6
	maskedAddSegments  = 5
)

// maskedEntry writes the work queue entry of r, a masked atomic, into w.wqe; all else of w is set.
func maskedEntry(w *workRequest, r *verbs.Request, qpn uint32) {
	b := w.wqe[:]
	clear(b)
	op, segments := uint32(opMaskedCompareSwap), uint32(maskedSwapSegments)
	if r.Op == verbs.MaskedFetchAdd {
		op, segments = opMaskedFetchAdd, maskedAddSegments
	}
	binary.BigEndian.PutUint32(b[0:], modifierExtended8<<24|op)
	binary.BigEndian.PutUint32(b[4:], qpn<<8|segments)
	if w.flags&flagFence != 0 {
		b[11] |= ctrlFence
	}
	if w.flags&flagSignaled != 0 {
		b[11] |= ctrlCompletion
	}
	binary.BigEndian.PutUint64(b[16:], w.remote)
	binary.BigEndian.PutUint32(b[24:], w.rkey)
	at := 32
	put := func(v uint64) {
		binary.BigEndian.PutUint64(b[at:], v)
		at += 8
	}
	if r.Op == verbs.MaskedFetchAdd {
		put(r.Add)
		put(r.Boundary)
	} else {
		put(r.Swap)
		put(r.Compare)
		put(r.SwapMask)
		put(r.CompareMask)
	}
	binary.BigEndian.PutUint32(b[at:], w.length)
	binary.BigEndian.PutUint32(b[at+4:], w.lkey)
	binary.BigEndian.PutUint64(b[at+8:], w.local)
}
