package blocks

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// MostTogether is how many blocks are READ, written or marked in one list at most.
const MostTogether = 32

// Session is what one session does with blocks. One goroutine uses it.
type Session struct {
	op    *op.Op
	codec *item.Codec
	room  []byte // values that are READ, or images that are written
	mark  []byte // of a dead block

	fresh Reference // of the entry that is about to be published
	gone  Reference // of the entry that the change under way takes out
	leave bool      // see LeaveReplaced
	ahead ahead
}

// RoomBytes returns how much of its arena a session takes for blocks: at least the longest one.
func RoomBytes(c *item.Codec) int {
	if !c.Blocks {
		return 0
	}
	return max(16<<10, Size(c, c.MaxValue))
}

// Open makes s ready for the operations of o.
func (s *Session) Open(o *op.Op, c *item.Codec) (err error) {
	s.op, s.codec = o, c
	if c.Blocks {
		if s.room, err = o.PS.Buffer(RoomBytes(c)); err == nil {
			s.mark, err = o.PS.Buffer(HeadBytes)
		}
	}
	return err
}

// Forget drops every address that an operation got.
func (s *Session) Forget() { s.fresh, s.gone = Reference{}, Reference{} }

// PutEntry makes the entry of a pair that is to come into the locked node at near, in dst. A long
// value gets a block, whose WRITE is queued. The entry is published behind it, since PostUnlock
// posts and awaits what is for other servers before the list of the node's. ErrPoolFull: there is
// no memory for the block, and nothing is queued.
func (s *Session) PutEntry(dst, key, value []byte, near pool.Addr) (e []byte, err error) {
	if !s.codec.InBlock(len(value)) {
		return s.codec.PutEntry(dst, key, value), nil
	}
	a, size, err := Allocate(s.codec, s.op.PS, len(value), near)
	if err != nil {
		return nil, err
	}
	s.fresh = ReferTo(a, size, value)
	s.op.PS.Write(pool.Sole, a, s.fresh.Build(s.room, unit.NewVersion(s.op.Env), value))
	return s.fresh.PutEntry(s.codec, dst, key), nil
}

// Discard frees the block of an entry that was not published. Not if the session died: then its
// outcome is unknown.
func (s *Session) Discard() {
	if s.fresh.Addr != pool.Nil && s.op.PS.Err() == nil {
		s.op.Pool.Free(s.fresh.Addr, s.fresh.Size)
	}
	s.fresh = Reference{}
}

// Replace notes that the change under way takes out entry e. Its block, if it has one, is marked by
// Publish.
func (s *Session) Replace(e []byte) {
	if !s.leave {
		s.gone, _ = ReferenceIn(s.codec, e)
	}
}

// LeaveReplaced makes the session leave alone the blocks that its changes take out: another client
// may have retired them before.
func (s *Session) LeaveReplaced() { s.leave = true }

// Publish posts what is queued, with the change of the locked node, and releases the lock. The dead
// mark of a block that the change takes out comes behind the change: last in the list if the block
// is on the node's server (G1), else when the change is confirmed (G3). So whoever sees the mark
// sees that the block is out.
func (s *Session) Publish(locked pool.Addr) error {
	beside := s.gone.Addr.Server() == locked.Server()
	if s.gone.Addr != pool.Nil && beside {
		s.markGone()
	}
	if err := s.op.PS.PostUnlock(); err != nil {
		return op.Failure(err, true)
	}
	s.fresh = Reference{}
	if s.gone.Addr == pool.Nil {
		return nil
	}
	if !beside {
		s.markGone()
		if err := s.op.PS.Post(); err != nil {
			return fmt.Errorf("the change is made, but the block that it replaced is not given back: %w",
				op.Failure(err, true))
		}
	}
	s.op.Pool.RetireUncached(s.gone.Addr, s.gone.Size)
	s.gone = Reference{}
	return nil
}

// markGone queues the WRITE that marks the block dead which the change under way takes out. A
// reader of its value can go on: it becomes another block only when no operation is under way that
// may have its address.
func (s *Session) markGone() {
	s.op.PS.Write(pool.Sole, s.gone.Addr, putDead(s.mark, s.gone.Addr, unit.NewVersion(s.op.Env)))
}

// Value READs a value from its block: one round trip. It stays until the session's next use of
// blocks. nil: it is not what the reference says, so the block was used again, which is only
// possible where this client is fenced, or its memory damaged.
func (s *Session) Value(r *Reference) ([]byte, error) {
	if r.Length > s.codec.MaxValue {
		return nil, nil
	}
	b := s.room[:r.Length]
	if err := s.op.Read(r.Addr+HeadBytes, b); err != nil {
		return nil, err
	}
	return s.intact(r, b), nil
}

// AppendValue is Value, appended to dst. ok is false where Value is nil.
func (s *Session) AppendValue(dst []byte, r Reference) (value []byte, ok bool, err error) {
	v, err := s.Value(&r)
	if err != nil || v == nil {
		return dst, false, err
	}
	return append(dst, v...), true, nil
}

// AppendOf appends the value of entry e of a locked node to dst. The block of an entry that is
// there under the lock is that of the entry: it is given up only by who takes the entry out.
func (s *Session) AppendOf(dst, e []byte) ([]byte, error) {
	r, long := ReferenceIn(s.codec, e)
	if !long {
		return append(dst, s.codec.ValueOf(e)...), nil
	}
	value, ok, err := s.AppendValue(dst, r)
	if err == nil && !ok {
		err = s.Refused()
	}
	return value, err
}

// Refused returns what an operation ends with where a block does not hold what an entry refers to,
// and it is no use to READ the entry again.
func (s *Session) Refused() error {
	if err := s.op.Pool.Alive(); err != nil {
		return op.Failure(err, false)
	}
	return fmt.Errorf("a block does not hold the value that its entry refers to: %w", index.ErrFormat)
}

// intact returns b, READ from the block of r, if it is the value of r; else nil. While this client
// lives, an operation that got r finds it there: the block is used again only when the operation is
// over. So what fails here is the epochs, or the memory. The check only keeps it from being
// answered.
func (s *Session) intact(r *Reference, b []byte) []byte {
	if r.Matches(b) {
		return b
	}
	if invariants.Enabled {
		invariants.Check(s.op.Pool.Alive() != nil, "block %v does not hold the value of %+v", r.Addr, *r)
	}
	return nil
}

// Write writes value to a block of its own, near a node, and puts the reference to it in b, of
// item.ReferenceBytes. When it returns the block is complete (G3), and only the caller knows it. It
// is a part of an operation. ErrPoolFull: there is no memory for it. One round trip.
func (s *Session) Write(b, value []byte, near pool.Addr) error {
	a, size, err := Allocate(s.codec, s.op.PS, len(value), near)
	if err != nil {
		return err
	}
	r := ReferTo(a, size, value)
	s.op.PS.Write(pool.Sole, a, r.Build(s.room, unit.NewVersion(s.op.Env), value))
	if err := s.op.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	r.Encode(b)
	return nil
}

// WriteAll WRITEs the blocks of list, as many in one round trip as there is room for. values are
// theirs, one behind the other. Only the caller knows the blocks.
func (s *Session) WriteAll(list []Reference, values []byte) error {
	at, n, queued := 0, 0, 0
	for i := range list {
		r := &list[i]
		if need := align(HeadBytes + r.Length); at+need > len(s.room) || queued == MostTogether {
			if err := s.op.PS.Post(); err != nil {
				return op.Failure(err, false)
			}
			at, queued = 0, 0
		}
		image := r.Build(s.room[at:], unit.NewVersion(s.op.Env), values[n:n+r.Length])
		s.op.PS.Write(pool.Sole, r.Addr, image)
		n += r.Length
		at += align(len(image))
		queued++
	}
	if queued == 0 {
		return nil
	}
	return op.Failure(s.op.PS.Post(), false)
}

// align is the next multiple of 8 from n on.
func align(n int) int { return (n + 7) &^ 7 }

// Free frees a block at once that only the caller ever knew. Not if the session or its client died:
// then its outcome is unknown.
func (s *Session) Free(r Reference) {
	if s.op.PS.Err() == nil && s.op.Pool.Alive() == nil {
		s.op.Pool.Free(r.Addr, r.Size)
	}
}

// Retire gives back up to MostTogether blocks that no operation which begins now can come to. They
// are marked dead, in one list for each server, and used again when the operations that are under
// way now are over. After an error the session is dead, and which of them are marked is unknown:
// their owners' sweeps find those that are, and the others are lost.
func (s *Session) Retire(list []Reference) error {
	for i := range list {
		m := s.room[i*HeadBytes : (i+1)*HeadBytes]
		s.op.PS.Write(pool.Sole, list[i].Addr, putDead(m, list[i].Addr, unit.NewVersion(s.op.Env)))
	}
	if err := s.op.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	for i := range list {
		s.op.Pool.RetireUncached(list[i].Addr, list[i].Size)
	}
	return nil
}

// Load READs the block of r whole and reports whether it is what r says.
func (s *Session) Load(r *Reference) (ok bool, err error) {
	b := s.room[:HeadBytes+r.Length]
	if err := s.op.Read(r.Addr, b); err != nil {
		return false, err
	}
	return Verify(r.Addr, b) && r.Matches(b[HeadBytes:]), nil
}
