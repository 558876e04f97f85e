package art

import (
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// How a bulk load takes effect: the empty root is replaced by that of what was loaded. root.go has
// the requests.

// emptyRoot READs the root, to s.Fresh. ErrNotEmpty: the index has a pair, or was loaded before.
func (ld *Builder) emptyRoot() error {
	s := ld.s
	if err := s.readRoot(); err != nil {
		return err
	}
	if s.Fresh.Addr != s.t.First {
		return fmt.Errorf("it was loaded, or had a load beside an insert: %w", index.ErrNotEmpty)
	}
	return ld.empties(s.Fresh)
}

// empties returns ErrNotEmpty if c, the root, has a child that is not a leaf which is gone. Whoever
// took such a one out died.
func (ld *Builder) empties(c *Copy) error {
	for i := range c.Size() {
		w := c.Word(i)
		if !w.Child() {
			continue
		}
		if w.Leaf() {
			if gone, err := ld.gone(w); err != nil {
				return err
			} else if gone {
				continue
			}
		}
		return fmt.Errorf("it has pairs: %w", index.ErrNotEmpty)
	}
	return nil
}

// publish replaces the root, if it is empty yet, by the one at top. published: it is, or may be.
func (ld *Builder) publish(top pool.Addr) (published bool, err error) {
	s := ld.s
	s.Begin() // anew: the source took its time
	defer s.End()
	// A client that is fenced on a server, and does not know it yet, may set a way on another one.
	// This operation has begun before each of these READs. So where one succeeds, whoever adopts
	// what the load made there, and sweeps it, waits for the end of this operation.
	for some := range slices.Chunk(ld.on, mostWords) {
		for i, a := range some {
			s.PS.Read(a, s.Answers[SlotBytes*i:][:SlotBytes])
		}
		if err := s.PS.Post(); err != nil {
			return false, op.Failure(err, false)
		}
	}
	if err := ld.emptyRoot(); err != nil {
		return false, err
	}
	c := s.Fresh.Clone()
	if err := s.Freeze(c, s.Fresh); err != nil {
		return false, err
	}
	if err := ld.empties(s.Fresh); err != nil {
		return false, err // whoever changes something next replaces the root
	}
	won, err := s.setWay(c.Addr, top)
	if err == nil && !won {
		err = fmt.Errorf("somebody inserted: %w", index.ErrNotEmpty)
	}
	return won || s.PS.Err() != nil, err
}
