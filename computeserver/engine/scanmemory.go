package engine

import "github.com/dmindex/dmindex/pkg/env/invariants"

// Scans take their memory from the ones before: pairs of a piece are copied, since they are shown
// when the session was returned, and most scans have one piece. Visit keeps nothing of it.

// scanKept is how many bytes of pairs, and scanKeptPairs how many pairs, a scan leaves to the next
// one at most; spareScans is how many do.
const (
	scanKept      = 64 << 10
	scanKeptPairs = ScanPiecePairs
	spareScans    = 16
)

func (c *Engine) newScan() *scan {
	for i := range c.spare {
		if s := c.spare[i].Swap(nil); s != nil {
			return s
		}
	}
	return &scan{c: c}
}

// free leaves the memory of a scan that has ended to the next one. What another server was sent may
// still be read when its call has ended.
func (s *scan) free() {
	if s.asked {
		return
	}
	s.read.clear()
	if invariants.Enabled {
		for i := range s.read.data[:cap(s.read.data)] {
			s.read.data[:cap(s.read.data)][i] = 0xdb
		}
	}
	if cap(s.read.data) > scanKept || cap(s.read.marks) > scanKeptPairs {
		s.read = pairs{}
	}
	start, end := s.rest.Start[:0], s.rest.End[:0]
	*s = scan{c: s.c, near: s.near[:0], read: s.read, passed: s.passed[:0], again: s.again[:0]}
	s.rest.Start, s.rest.End = start, end
	for i := range s.c.spare {
		if s.c.spare[i].CompareAndSwap(nil, s) {
			return
		}
	}
}
