package ibv

import (
	"unsafe"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The bits of workRequest.flags.
const (
	flagFence = 1 << iota
	flagInline
	flagSignaled
	flagRaw // wqe holds the request, for a NIC that takes it as it is
)

// rawSize is room for the longest raw work queue entry.
const rawSize = 96

// workRequest is a request as the C half takes it (struct dm_request of verbs.h, which checks size
// and offsets at compile time). The array of a queue pair lies in C memory: nothing of Go's heap is
// shown to C.
type workRequest struct {
	local   uint64 // address
	remote  uint64 // address
	compare uint64 // also what FetchAdd adds
	swap    uint64
	length  uint32
	lkey    uint32
	rkey    uint32
	op      uint8 // verbs.Op
	flags   uint8
	_       [2]byte
	wqe     [rawSize]byte
}

// remoteRegion is a region as the server registered it.
type remoteRegion struct {
	base  uint64 // address of its first byte
	size  uint64
	key   uint32
	calls bool // its server executes calls
}

// encoder turns lists into the array of a queue pair.
type encoder struct {
	regions [verbs.RegionLocks + 1]remoteRegion
	lkey    uint32
	inline  int    // WRITEs up to this length carry their bytes with them; 0 = none
	qpn     uint32 // for raw entries
}

// encode fills dst with list, whose requests are well-formed and in range. The last request alone
// is signaled: with RC its completion is that of all before it.
func (e *encoder) encode(dst []workRequest, list []verbs.Request) {
	for i := range list {
		r, w := &list[i], &dst[i]
		g := &e.regions[r.Region]
		w.local = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.Local))))
		w.remote = g.base + r.Remote
		w.length = uint32(len(r.Local))
		w.lkey, w.rkey = e.lkey, g.key
		w.op, w.flags = uint8(r.Op), 0
		switch r.Op {
		case verbs.Write:
			if len(r.Local) <= e.inline {
				w.flags = flagInline
			}
		case verbs.CompareSwap:
			w.compare, w.swap = r.Compare, r.Swap
		case verbs.FetchAdd:
			w.compare = r.Add
		}
		if r.Fence {
			w.flags |= flagFence
		}
		if i == len(list)-1 {
			w.flags |= flagSignaled
		}
		if r.Op >= verbs.MaskedCompareSwap {
			w.flags |= flagRaw
			maskedEntry(w, r, e.qpn)
		}
	}
}
