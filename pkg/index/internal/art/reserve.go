package art

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A change of several steps takes memory in later ones, when others know of it already, and wait
// for its end. So the memory is reserved before the first step: where there is none the change is
// refused, and nothing is begun. A session's allocations take from its reserve only where there is
// no other memory, and what an attempt gives back goes there. A client that ends what another one
// began has no reserve.

// Reserve allocates bytes for Allocate to take where there is no other memory, until Unreserve.
func (s *Session) Reserve(bytes int, near pool.Addr) error {
	size := AllocatedFor(bytes)
	a, err := s.PS.AllocateBlock(size, near)
	s.t.NoteMemory(err)
	if err != nil {
		s.t.NoteShort(s.Env, err)
		return op.Failure(err, false)
	}
	s.reserved, s.reserving = append(s.reserved, made{a, size}), true
	return nil
}

// ReserveLink reserves the inner nodes that Link or Fork of a leaf with a place takes, as far as
// copies say. No other place in the tree has more than common bytes in common with it.
func (s *Session) ReserveLink(place []byte, common int, near pool.Addr) error {
	out, err := s.Seek(place)
	if err != nil {
		return err
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
			return err
		}
	}
	return nil
}

// Unreserve gives back what is left of the reserve. If the session died some of it may yet be
// written to: then its client is given up, and others find it.
func (s *Session) Unreserve() {
	if s.PS.Err() == nil {
		for _, m := range s.reserved {
			s.t.Pool.Free(m.at, m.size)
		}
	}
	s.reserved, s.reserving = s.reserved[:0], false
}

// fromReserve takes memory of a size from the reserve; Nil = there is none.
func (s *Session) fromReserve(size int) pool.Addr {
	for i, m := range s.reserved {
		if s.reserving && m.size == size {
			s.reserved = append(s.reserved[:i], s.reserved[i+1:]...)
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
