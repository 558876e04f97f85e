package slottedtree

import "github.com/dmindex/dmindex/pkg/index/internal/combine"

// Entries that are made already, which a design that keeps leaves writes back.

// PutMade is Upsert of an entry that is made already, as a part of an operation. If it has a
// reference, the block is written. A block that it takes out of the leaf is retired. It waits for
// no memory.
func (s *Session) PutMade(key, entry []byte) error {
	s.made = entry
	err := s.writeOnce(key, nil, combine.Upsert, "write")
	s.made = nil
	s.Blocks.Forget()
	return err
}
