package mapped

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Space is the regions of one memory server as this process maps them. Safe for concurrent use; the
// mapping must outlive it.
type Space struct {
	regions [verbs.RegionLocks + 1]region
}

type region struct {
	base unsafe.Pointer
	size uint64
}

// NewSpace makes a space of mem. Each region occurs once and starts at a multiple of 8.
func NewSpace(mem []verbs.Memory) (*Space, error) {
	s := new(Space)
	for _, m := range mem {
		if m.ID > verbs.RegionLocks || len(m.Bytes) == 0 || s.regions[m.ID].base != nil {
			return nil, fmt.Errorf("region %d of %d bytes: unknown, empty or given twice", m.ID, len(m.Bytes))
		}
		base := unsafe.Pointer(unsafe.SliceData(m.Bytes))
		if uintptr(base)%8 != 0 {
			return nil, fmt.Errorf("region %d: mapped at %p, which is no multiple of 8", m.ID, base)
		}
		s.regions[m.ID] = region{base, uint64(len(m.Bytes))}
	}
	return s, nil
}

// Regions lists what the space consists of.
func (s *Space) Regions() (list []verbs.Region) {
	for id, r := range s.regions {
		if r.base != nil {
			list = append(list, verbs.Region{ID: verbs.RegionID(id), Size: r.size})
		}
	}
	return list
}

// InRange reports whether r, whose Region is a known one, stays within its region.
func (s *Space) InRange(r *verbs.Request) bool { return r.InRange(s.regions[r.Region].size) }

// Contains reports whether length bytes at remote are within a region, which is a known one.
func (s *Space) Contains(region verbs.RegionID, remote uint64, length int) bool {
	n, size := uint64(length), s.regions[region].size
	return n <= size && remote <= size-n
}

// Apply executes r, which must be well-formed (verbs.Check) and in range. For an atomic it returns
// the old value and leaves r.Local alone.
//
// pending reports whether earlier accesses of the same queue pair may not have been performed for
// everybody yet; the new state is returned. G1 follows. On amd64 loads and stores keep their order
// except that a store may be overtaken by a later load, so only a READ (or an atomic that ends as a
// mere load) after a WRITE needs a barrier; a locked instruction is one. Elsewhere there is one
// between any two requests. Fence asks for nothing more: whatever is earlier is performed in order
// anyway. Before a completion is reported the caller issues [Barrier] if pending (G3).
func (s *Space) Apply(r *verbs.Request, pending bool) (old uint64, nowPending bool) {
	if pending && (weakOrder || r.Op == verbs.Read || r.Op == verbs.MaskedCompareSwap) {
		Barrier()
	}
	at := unsafe.Add(s.regions[r.Region].base, uintptr(r.Remote))
	switch r.Op {
	case verbs.Read:
		Load(r.Local, at)
	case verbs.Write:
		Store(at, r.Local)
		return 0, true
	default:
		old = atomicOp(r, (*uint64)(at))
	}
	return old, weakOrder
}

// Read implements verbs.Near.
func (s *Space) Read(id verbs.RegionID, remote uint64, dst []byte) error {
	if id > verbs.RegionLocks {
		return verbs.ErrOutOfRange
	}
	r := &s.regions[id]
	if n := uint64(len(dst)); n > r.size || remote > r.size-n {
		return verbs.ErrOutOfRange
	}
	if weakOrder {
		Barrier()
	}
	if len(dst) > 0 {
		Load(dst, unsafe.Add(r.base, uintptr(remote)))
	}
	return nil
}

// Expect says that r will be applied soon, behind others: a READ's first lines are asked for, so
// that their misses overlap with those of the others. No request is performed by that, nor moved
// before another one. r must be InRange.
func (s *Space) Expect(r *verbs.Request) {
	if r.Op == verbs.Read {
		prefetch(unsafe.Add(s.regions[r.Region].base, uintptr(r.Remote)))
	}
}

// CompareSwap is Apply of a CompareSwap before which nothing is pending, short enough to be part of
// its caller.
func (s *Space) CompareSwap(r *verbs.Request) (old uint64, pending bool) {
	return compareSwap((*uint64)(unsafe.Add(s.regions[r.Region].base, uintptr(r.Remote))), r.Compare, r.Swap), weakOrder
}

func atomicOp(r *verbs.Request, word *uint64) uint64 {
	switch r.Op {
	case verbs.CompareSwap:
		return compareSwap(word, r.Compare, r.Swap)
	case verbs.FetchAdd:
		return atomic.AddUint64(word, r.Add) - r.Add
	case verbs.MaskedCompareSwap:
		for {
			old := atomic.LoadUint64(word)
			want, ok := r.MaskedSwap(old)
			if !ok || atomic.CompareAndSwapUint64(word, old, want) {
				return old
			}
		}
	case verbs.MaskedFetchAdd:
		for {
			old := atomic.LoadUint64(word)
			if atomic.CompareAndSwapUint64(word, old, r.MaskedSum(old)) {
				return old
			}
		}
	}
	panic(fmt.Sprintf("mapped: %v is no atomic", r.Op))
}

// compareSwap returns the value that decided. Where the swap fails the word is read again for it;
// if that finds the compared value after all, the swap is tried anew.
func compareSwap(word *uint64, compare, swap uint64) uint64 {
	for {
		if atomic.CompareAndSwapUint64(word, compare, swap) {
			return compare
		}
		if old := atomic.LoadUint64(word); old != compare {
			return old
		}
	}
}

// PutNative stores v in the first 8 bytes of b, in the machine's byte order, as an atomic does with
// the old value.
func PutNative(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }
