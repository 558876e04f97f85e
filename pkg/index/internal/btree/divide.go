package btree

import (
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Halves is a leaf that is divided.
type Halves interface {
	// Left and Right make in b the next version of the locked leaf, and the first version of the
	// new one, at to, which begins at separator. They return how much of b it takes.
	Left(b []byte, separator []byte, to pool.Addr) int
	Right(b []byte, separator []byte, to pool.Addr) int
}

// SplitLeaf divides the locked leaf with header h at a separator, and gives the lock up. newLast:
// the largest key of the leaf is new. ErrPoolFull: there is no memory for a sibling, nothing was
// posted and the lock is still held. The requests are those of DivideLeaf, with one new leaf.
func (s *Session) SplitLeaf(h *fence.Header, separator []byte, newLast bool, halves Halves) error {
	d := &s.halved
	d.s, d.halves, d.separator = s, halves, append(d.separator[:0], separator...)
	err := s.DivideLeaf(h, newLast, d)
	d.halves = nil
	if err != nil {
		return err
	}
	return s.ConnectParts()
}

// halved is a leaf with Halves as Parts.
type halved struct {
	s         *Session
	halves    Halves
	separator []byte
}

// Count implements Parts.
func (d *halved) Count() int { return 2 }

// Low implements Parts.
func (d *halved) Low(int) []byte { return d.separator }

// Buffer implements Parts.
func (d *halved) Buffer(i int) []byte {
	if i == 0 {
		return d.s.Image
	}
	return d.s.Spare
}

// Build implements Parts.
func (d *halved) Build(i int, a, next pool.Addr) int {
	if i == 0 {
		return d.halves.Left(d.s.Image, d.separator, next)
	}
	return d.halves.Right(d.s.Spare, d.separator, a)
}

// Parts is a leaf that becomes several: itself, which is part 0, and new ones to the right of it.
type Parts interface {
	// Count is how many parts there are. With one, the leaf is only rewritten.
	Count() int

	// Low is where part i begins, which is a new one.
	Low(i int) []byte

	// Buffer is a buffer of the session, for the image of part i alone.
	Buffer(i int) []byte

	// Build makes that image, and returns how much of the buffer it takes: the next version of the
	// locked leaf, or the first version of a new one at a. next is its right sibling; Nil = that
	// which the locked leaf has.
	Build(i int, a, next pool.Addr) int
}

// sibling is a new node that holds the keys from some one on, and is to become known to its parent.
type sibling struct {
	from []byte
	at   pool.Addr
	held bool // the caller keeps everybody from merging it
}

// DivideLeaf makes the locked leaf with header h several, and gives the lock up. newLast: its
// largest keys are new. ErrPoolFull: there is no memory for all parts, nothing was posted and the
// lock is still held. ConnectParts follows, in the same operation.
//
// The requests (section 4.5, "Command Combination"):
//
//  1. WRITE of each new leaf, whole, to a new node: nobody knows its address yet. Each names the
//     next one as its sibling, and the last one that of the locked leaf. In the list of the others
//     if it lies on the same server, else posted and awaited before them.
//  2. rewrite of the locked leaf under its next version (pool.Session.Rewrite, four WRITEs): header
//     with the new high fence and the first new leaf as its sibling, and content. Readers that see
//     parts of it see something that does not verify, or only the old version's words; who sees the
//     new header finds the sibling complete, and from there the others.
//  3. release of the lock.
//
// So there is one moment at which all of it takes effect, as if there was one new leaf. A client
// that is cut off before it leaves nodes that nobody knows; one that is cut off within it leaves a
// lock to repair, which makes the rewrite whole or finds that it has not begun, and all new leaves
// precede it.
//
// Then, without any lock held, the separators go into the parents (ConnectParts), several into one
// parent by one rewrite of it. Until a separator is there its leaf is found by the sibling pointer
// of the one before; so a failure to put it there is no failure of the operation. With n new
// leaves that are not connected a reader follows up to n pointers, and begins anew in between
// (maxHops).
func (s *Session) DivideLeaf(h *fence.Header, newLast bool, parts Parts) error {
	a := s.locked
	if err := s.PS.ReserveRewrite(a, s.Lay.NodeBytes); err != nil {
		return op.Failure(err, false)
	}
	if err := s.allocateParts(a, newLast && h.Rightmost, parts); err != nil {
		return op.Failure(err, false)
	}
	next := pool.Nil
	for i := len(s.parts) - 1; i >= 0; i-- {
		at := s.parts[i].at
		s.PS.Write(pool.Sole, at, parts.Buffer(i + 1)[:parts.Build(i+1, at, next)])
		next = at
	}
	if err := s.Await(); err != nil {
		return err
	}
	s.PS.Rewrite(a, parts.Buffer(0)[:parts.Build(0, a, next)])
	return s.Publish()
}

// allocateParts allocates the new leaves for the one at a; after an error none.
func (s *Session) allocateParts(a pool.Addr, last bool, parts Parts) error {
	s.parts = s.parts[:0]
	for i := 1; i < parts.Count(); i++ {
		to, err := s.PS.Allocate(s.Lay.NodeBytes, s.placeLeaf(a, last))
		if err != nil {
			for _, p := range s.parts {
				s.Pool.Free(p.at, s.Lay.NodeBytes)
			}
			s.parts = s.parts[:0]
			return err
		}
		if len(s.parts) < cap(s.parts) {
			s.parts = s.parts[:len(s.parts)+1] // with the room for its key
		} else {
			s.parts = append(s.parts, sibling{})
		}
		p := &s.parts[len(s.parts)-1]
		p.from, p.at, p.held = append(p.from[:0], parts.Low(i)...), to, false
		a = to
	}
	return nil
}

// Part is the address of part i of what was divided, a new leaf.
func (s *Session) Part(i int) pool.Addr { return s.parts[i-1].at }

// HoldPart says that nobody has merged part i, a new leaf, and that nobody will before ConnectParts
// has returned. So it is not READ to see whether it lives.
func (s *Session) HoldPart(i int) { s.parts[i-1].held = true }

// ConnectParts makes the new leaves known to their parents. What the operation wanted is done by
// then: only errors that the session does not survive are returned. No lock may be held.
func (s *Session) ConnectParts() error { return s.connect(s.parts) }
