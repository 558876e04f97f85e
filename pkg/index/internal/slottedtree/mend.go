package slottedtree

import (
	"bytes"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Mend makes slots of the leaf that holds key verify whose entries others of the same key were
// partly written over by a client that died (slotted.Leaf.Mixed): their keys, which known has to
// know, have values of zeros then. The caller gives them the values that they shall have. It is a
// part of an operation. ErrFormat: a slot does not verify, and is no such one.
//
// Requests: lock + READ of the leaf; if there was one, WRITE of all entries, then of all slots;
// release. No one else changes the leaf. So who dies in between leaves such slots, or none.
func (s *Session) Mend(key []byte, known func(key []byte) bool) error {
	return s.mend(key, false, known)
}

// MendAround is Mend, unless the leaf begins with key.
func (s *Session) MendAround(key []byte, known func(key []byte) bool) error {
	return s.mend(key, true, known)
}

func (s *Session) mend(key []byte, around bool, known func(key []byte) bool) error {
	var l slotted.Leaf
	if err := s.lockLeaf(&l, key); err != nil {
		return fmt.Errorf("mend a leaf: %w", err)
	}
	if around && bytes.Equal(l.Low, key) {
		return s.Unlock(nil)
	}
	n, ok := l.Unmix(known)
	if !ok {
		return s.Unlock(fmt.Errorf("leaf %v does not verify under its lock: %w", l.Addr, index.ErrFormat))
	}
	if n > 0 {
		dir, heap := l.SlotAt(0), l.SlotAt(l.Count)
		s.PS.Write(pool.Shared, l.Addr+pool.Addr(heap), l.Bytes[heap:])
		s.PS.Write(pool.Shared, l.Addr+pool.Addr(dir), l.Bytes[dir:heap])
	}
	return s.Unlock(nil)
}
