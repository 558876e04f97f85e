package pool

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Class says of a posted change who else can reach what it changes. Every change of the data region
// that an index posts says so. It is a check, of which changes need a lock. A copy of a memory
// server has all changes in one order, whatever their classes.
//
// What holds in every design:
//
//   - A data word never has a value again while an operation that saw it may be under way.
//   - No data word is changed by FetchAdd: of an answer that is lost nobody knows whether it was
//     added.
//   - A Shared change is whole after a repair, in either direction; but for slots of a leaf of DEX
//     that a replay is about to make whole (slottedtree.Session.Mend).
type Class uint8

// The classes.
const (
	// Sole is a change of what one writer can reach: its own log, leaves of a range that it owns,
	// blocks and nodes that nobody knows yet, or that are out.
	Sole Class = iota
	// Shared is a change of what is published to others. The session holds the lock of it, or has
	// entered it (Enter).
	Shared
	// Swap is a compare-and-swap of a data word.
	Swap
)

// Write queues a WRITE of local to a. It takes effect before anything that is queued later for the
// same server. A Shared one without a lock breaks the program's rules: Post then fails without
// posting anything.
func (s *Session) Write(class Class, a Addr, local []byte) {
	if class != Sole && (class != Shared || !s.Holds() && s.present.slot == nil) {
		s.reject(fmt.Errorf("a WRITE of class %d to %v, and a lock is held: %v, a node is entered: %v", class, a, s.Holds(), s.present.slot != nil))
		return
	}
	s.write(a, local)
}

// write is Write as the pool itself uses it, whose records and lists lie in no index.
func (s *Session) write(a Addr, local []byte) {
	s.queue(a, verbs.Request{Op: verbs.Write, Remote: a.Offset(), Local: local})
}

// Fence lets what is queued next for the server of a take effect after every READ and atomic that
// is queued for it (G1): a WRITE behind an atomic needs that.
func (s *Session) Fence(a Addr) {
	if i, ok := s.pool.serverOf(a); ok && s.reaches(i) && !s.fenced[i] {
		s.fenced[i] = true
		s.fences++
	}
}

// CompareSwap queues a compare-and-swap of the data word at a, a multiple of 8, whose class is
// Swap: from compare to swap. After Post old, 8 bytes of a Buffer, is what it had, in the machine's
// byte order. It was changed if that is compare.
func (s *Session) CompareSwap(a Addr, compare, swap uint64, old []byte) {
	s.queue(a, verbs.Request{Op: verbs.CompareSwap, Remote: a.Offset(), Local: old, Compare: compare, Swap: swap})
}

// MaskedCompareSwap is CompareSwap of the bits in swapMask, if those in compareMask are compare's.
// Not every server has it (Masked).
func (s *Session) MaskedCompareSwap(a Addr, compare, swap, compareMask, swapMask uint64, old []byte) {
	s.queue(a, verbs.Request{Op: verbs.MaskedCompareSwap, Remote: a.Offset(), Local: old,
		Compare: compare, Swap: swap, CompareMask: compareMask, SwapMask: swapMask})
}

// FetchAdd queues an addition to the word at a, a multiple of 8. It is for counts that may be wrong
// after a crash, not for data: see Class.
func (s *Session) FetchAdd(a Addr, add uint64, old []byte) {
	s.queue(a, verbs.Request{Op: verbs.FetchAdd, Remote: a.Offset(), Local: old, Add: add})
}

// WholeAlways is how many bytes of one WRITE to the server of a take effect all or not at all, also
// where its client dies, or the memory server's process, whose memory stays. It is a word at least.
func (p *Pool) WholeAlways(a Addr) int {
	if i, ok := p.serverOf(a); ok && p.servers()[i].caps.WholeAlways {
		return max(8, int(p.servers()[i].caps.WholeWrite))
	}
	return 8
}

// Masked reports whether the server of a has masked atomics.
func (p *Pool) Masked(a Addr) bool {
	i, ok := p.serverOf(a)
	return ok && p.servers()[i].caps.MaskedAtomics
}
