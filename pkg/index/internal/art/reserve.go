package art

import (
	"errors"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A change of several steps takes memory in later ones, when others know of it already, and wait
// for its end. So the memory is reserved before the first step: where there is none the change is
// refused, and nothing is begun. A session's allocations take from its reserve only where there is
// no other memory, and what an attempt gives back goes there. A client that ends what another one
// began has no reserve.
//
// A change that is made during another one has a reserve of its own, and leaves that of the other
// one alone.

// outerReserve is the reserve of a change during which another one is made.
type outerReserve struct {
	n         int // where that of the other one begins
	reserving bool
}

// BeginReserve begins a reserve, which EndReserve ends.
func (s *Session) BeginReserve() outerReserve {
	outer := outerReserve{s.reserveFrom, s.reserving}
	s.reserveFrom, s.reserving = len(s.reserved), true
	return outer
}

// EndReserve gives back what is left of the reserve. If the session died some of it may yet be
// written to: then its client is given up, and others find it.
func (s *Session) EndReserve(outer outerReserve) {
	if s.PS.Err() == nil {
		for _, m := range s.reserved[s.reserveFrom:] {
			s.t.Pool.Free(m.at, m.size)
		}
	}
	s.reserved = s.reserved[:s.reserveFrom]
	s.reserveFrom, s.reserving = outer.n, outer.reserving
}

// Reserve allocates bytes for Allocate to take where there is no other memory, until EndReserve.
func (s *Session) Reserve(bytes int, near pool.Addr) error {
	size := AllocatedFor(bytes)
	a, err := s.PS.AllocateBlock(size, near)
	s.t.NoteMemory(err)
	if err != nil {
		s.t.NoteShort(s.Env, err)
		return op.Failure(err, false)
	}
	s.reserved = append(s.reserved, made{a, size})
	return nil
}

// ReserveLink reserves the inner nodes that Link or Fork of a leaf with a place takes, as far as
// copies say. No other place in the tree has more than common bytes in common with it. It returns
// where the descent to the place ended.
func (s *Session) ReserveLink(place []byte, common int, near pool.Addr) (Outcome, error) {
	out, err := s.Seek(place)
	if err != nil {
		return out, err
	}
	st := s.Last()
	n, t := 0, s.t.with.typeFor(0)
	switch from := st.Node.End() + 1; {
	case out == Leafed || out == Mismatched:
		n = s.chain(from, max(from, common))
	case st.Idx < 0 || st.Word.Frozen():
		n, t = 1, s.t.with.typeOf(st.Node, true)
	}
	for range n {
		err := s.Reserve(t.Bytes(), near)
		for larger := t + 1; larger <= Direct && errors.Is(err, index.ErrPoolFull); larger++ {
			if other := s.Reserve(larger.Bytes(), near); other == nil || !errors.Is(other, index.ErrPoolFull) {
				err = other
			}
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// fromReserve takes memory of a size from the reserve; Nil = there is none.
func (s *Session) fromReserve(size int) pool.Addr {
	for i := s.reserveFrom; i < len(s.reserved) && s.reserving; i++ {
		if m := s.reserved[i]; m.size == size {
			s.reserved = slices.Delete(s.reserved, i, i+1)
			return m.at
		}
	}
	return pool.Nil
}

// free gives back m, which was allocated and is not known.
func (s *Session) free(m made) {
	if s.reserving {
		s.reserved = append(s.reserved, m)
		return
	}
	s.t.Pool.Free(m.at, m.size)
}
