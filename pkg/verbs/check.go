package verbs

import "fmt"

// Check reports whether a list may be posted on a QP with arena a and capabilities c. Providers
// call it first in Start. The error wraps ErrMalformed, ErrNotRegistered or ErrUnsupported and
// names the request.
func Check(list []Request, a *Arena, c *Capabilities) error {
	if len(list) == 0 || len(list) > MaxList {
		return fmt.Errorf("list of %d requests, 1 to %d allowed: %w", len(list), MaxList, ErrMalformed)
	}
	for i := range list {
		err := list[i].check(a, c)
		if err == nil && list[i].Op == Call && len(list) > 1 {
			err = ErrMalformed // it stands alone
		}
		if err != nil {
			return fmt.Errorf("request %d (%v of %d bytes at %d:%#x): %w",
				i, list[i].Op, len(list[i].Local), list[i].Region, list[i].Remote, err)
		}
	}
	return nil
}

// CheckOne reports whether Check allows a list of r alone where there are MaskedAtomics. It is
// short enough to be part of its caller.
func CheckOne(r *Request, a *Arena) bool {
	n, off, size := uintptr(len(r.Local)), a.offset(r.Local), uintptr(len(a.mem))
	if r.Region > RegionLocks || n > size || off > size-n {
		return false
	}
	if r.Op <= Write {
		return n-1 < MaxTransfer
	}
	return r.Op <= MaskedFetchAdd && n == 8 && (r.Remote|uint64(off))%8 == 0
}

func (r *Request) check(a *Arena, c *Capabilities) error {
	switch {
	case r.Op >= NumOps, r.Region > RegionLocks:
		return ErrMalformed
	case r.Op == Call:
		return r.checkCall(a, c)
	case r.Op.Atomic():
		if len(r.Local) != 8 || r.Remote%8 != 0 || a.offset(r.Local)%8 != 0 {
			return ErrMalformed
		}
		if r.Op >= MaskedCompareSwap && !c.MaskedAtomics {
			return ErrUnsupported
		}
	case len(r.Local) == 0 || len(r.Local) > MaxTransfer:
		return ErrMalformed
	}
	if !a.Contains(r.Local) {
		return ErrNotRegistered
	}
	return nil
}

// InRange reports whether the request stays within a region of size bytes.
func (r *Request) InRange(size uint64) bool {
	if r.Op == Call {
		return true
	}
	n := uint64(len(r.Local))
	return n <= size && r.Remote <= size-n
}

// MaskedSwap is the word that a MaskedCompareSwap leaves behind where it found old, and whether it
// matched.
func (r *Request) MaskedSwap(old uint64) (word uint64, swapped bool) {
	if (old^r.Compare)&r.CompareMask != 0 {
		return old, false
	}
	return old&^r.SwapMask | r.Swap&r.SwapMask, true
}

// MaskedSum is the word that a MaskedFetchAdd leaves behind where it found old: the fields that
// Boundary closes are added without carry between them.
func (r *Request) MaskedSum(old uint64) uint64 {
	// Adding without the top bits of the fields cannot carry out of a field; the top bits follow as
	// a sum without carry.
	low := (old &^ r.Boundary) + (r.Add &^ r.Boundary)
	return low ^ (old^r.Add)&r.Boundary
}

// Outcome is the word that an atomic leaves behind where it found old.
func (r *Request) Outcome(old uint64) uint64 {
	switch r.Op {
	case CompareSwap:
		if old == r.Compare {
			return r.Swap
		}
		return old
	case FetchAdd:
		return old + r.Add
	case MaskedCompareSwap:
		w, _ := r.MaskedSwap(old)
		return w
	case MaskedFetchAdd:
		return r.MaskedSum(old)
	}
	panic(fmt.Sprintf("verbs: %v is no atomic", r.Op))
}
