package blink

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// What designs that keep leaves use of blocks. They write a block before anything refers to it, and give it back when nothing does any more; entries with references
// go their own ways meanwhile.

// Reference stands in an entry in the place of a value that lies in a block.
type Reference = pointer

// Addr is the address of the block.
func (p *pointer) Addr() pool.Addr { return p.addr }

// Refer decodes a reference, of which b has the bytes.
func Refer(b []byte) (r Reference) {
	r.decode(b)
	return r
}

// WriteBlock writes value to a block of its own, near a node, and puts the reference to it in b, of ReferenceBytes. When it returns the block is complete (G3), and nobody but the
// caller knows it. It is a part of an operation. ErrPoolFull: there is no memory for it. One round trip.
func (s *session) WriteBlock(b, value []byte, near pool.Addr) error {
	a, size, err := s.lay.allocateBlock(s.PS, len(value), near)
	if err != nil {
		return err
	}
	r := pointTo(a, size, value)
	s.PS.Write(a, r.build(s.long, unit.NewVersion(s.Env), value))
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	r.encode(b)
	return nil
}

// FreeBlock gives a block back at once that nobody else ever knew. Not if the session or its client died: then nobody knows who does.
func (s *session) FreeBlock(r Reference) {
	if s.PS.Err() == nil && s.Pool.Alive() == nil {
		s.Pool.Free(r.addr, r.size)
	}
}

// MostRetired is how many blocks RetireBlocks takes at most.
const MostRetired = maxFetched

// RetireBlocks gives blocks back to which nothing refers any more that whoever begins now can come to: they are marked dead, in one list for each server, and used again when the operations that
// are under way now are over. After an error the session is dead, and nobody knows which are marked: they are lost.
func (s *session) RetireBlocks(list []Reference) error {
	for i := range list {
		m := s.long[i*HeaderBytes : (i+1)*HeaderBytes]
		s.PS.Write(list[i].addr, m[:unit.PutDead(m, list[i].addr, blockLevel, unit.NewVersion(s.Env))])
	}
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	for i := range list {
		s.Pool.Retire(list[i].addr, list[i].size)
	}
	return nil
}

// Value appends the value that r refers to, READ from its block: one round trip. It is a part of the operation that came by r, so the block holds it still. ok is false if it does not: this client
// is fenced then, or memory damaged.
func (s *session) Value(r Reference, dst []byte) (value []byte, ok bool, err error) {
	v, err := s.value(&r)
	if err != nil || v == nil {
		return dst, false, err
	}
	return append(dst, v...), true, nil
}

// AwaitMemory is op.AwaitMemory. The operation forgets what it met before.
func (s *session) AwaitMemory() bool {
	if !s.Op.AwaitMemory() {
		return false
	}
	s.forget()
	return true
}

// PutMade is Upsert of an entry that is made already, as a part of an operation. If it has a reference the block is written. A block that it takes out of the leaf is given back. It waits for no memory.
func (s *session) PutMade(key, entry []byte) error {
	s.made = entry
	err := s.writeOnce(key, nil, upsert, "write")
	s.made, s.gone = nil, pointer{}
	return err
}

// LeaveBlocks makes the session leave alone the blocks that its changes take out of leaves: another client may have given them back before.
func (s *session) LeaveBlocks() { s.leaving = true }

// UpsertMade is PutMade as an operation of its own.
func (s *session) UpsertMade(key, entry []byte) error {
	s.Begin()
	defer s.End()
	return s.PutMade(key, entry)
}

// refused is what a scan ends with where a block does not hold what an entry refers to that this design keeps: where the leaf is READ again, it may be old.
func (s *session) refused() error {
	if err := s.Pool.Alive(); err != nil {
		return op.Failure(err, false)
	}
	return fmt.Errorf("a block does not hold the value that its entry refers to: %w", index.ErrFormat)
}
