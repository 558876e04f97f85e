package slottedtree

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
)

// What a design that keeps leaves writes back: entries that are made already.

// PutMade is Upsert of an entry that is made already, as a part of an operation. If it has a
// reference, the block is written. A block that it takes out of the leaf is retired. It waits for
// no memory.
func (s *Session) PutMade(key, entry []byte) error {
	s.made = entry
	err := s.writeOnce(key, nil, upsert, "write")
	s.made = nil
	s.Blocks.Forget()
	return err
}

// refused returns what a scan ends with where a block does not hold what an entry of a kept leaf
// refers to. If the leaf is READ again, it may be old.
func (s *Session) refused() error {
	if err := s.Pool.Alive(); err != nil {
		return op.Failure(err, false)
	}
	return fmt.Errorf("a block does not hold the value that its entry refers to: %w", index.ErrFormat)
}
