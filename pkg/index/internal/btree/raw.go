package btree

import (
	"bytes"
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Inner nodes that are read where they are, and not copied: in a memory server.

// VerifyInner reports whether b, which may be any bytes, is the inner node at a. h is the header in
// b.
func VerifyInner(l *fence.Layout, h *fence.Header, a pool.Addr, b []byte) bool {
	if h.Level == 0 || h.Count == 0 {
		return false
	}
	end := unitEnd(l, h, b)
	return end != h.End && l.Verify(b, end, a, h.Version)
}

// ChildIn returns the child that holds key of the inner node in b, which has verified. ok is false
// if its separators make no sense.
func ChildIn(l *fence.Layout, h *fence.Header, b, key []byte) (child pool.Addr, ok bool) {
	i, ok := childIn(l, h, b[:unitEnd(l, h, b)], key)
	if !ok {
		return pool.Nil, false
	}
	return pool.Addr(binary.LittleEndian.Uint64(b[h.End+childBytes*i:])), true
}

// childIn is inner.child without a copy of the node: of b, the unit of an inner node that verified.
// false: its separators make no sense.
func childIn(l *fence.Layout, h *fence.Header, b, key []byte) (int, bool) {
	ends := h.End + childBytes*h.Count
	lo, hi := 0, h.Count-1
	if l.Uint64 {
		k := binary.BigEndian.Uint64(key)
		for lo < hi {
			mid := int(uint(lo+hi) >> 1)
			if binary.BigEndian.Uint64(b[ends+8*mid:]) <= k {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		return lo, true
	}
	skip := 0
	if !h.Rightmost {
		skip = item.CommonPrefix(h.Low, h.High)
	}
	if len(key) < skip {
		return 0, true
	}
	key = key[skip:]
	seps := b[ends+2*(h.Count-1):]
	endOf := func(i int) int {
		if i < 0 {
			return 0
		}
		return int(binary.LittleEndian.Uint16(b[ends+2*i:]))
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		from, to := endOf(mid-1), endOf(mid)
		if from > to || to > len(seps) {
			return 0, false
		}
		if bytes.Compare(seps[from:to], key) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, true
}
