package dex

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
)

// A read-modify-write holds the lock of the leaf's frame, which every change of this client needs,
// and only this client changes the key:
//
//	1  with the lock: reads the pair, and calls index.Change
//	2  with the same lock: makes the change as any other one, and appends its record
//
// A value that needs a block cannot be written there, because allocation may wait for memory. So it
// continues with
//
//	2' releases the lock, and writes the block, which no other client knows
//	3' with the lock again: if the pair is as at 1, makes the change; else it frees the block and
//	   begins again
//
// At 3' the pair is the one that index.Change saw at 1, so its decision is right then, whatever
// happened in between. The pair is compared as the leaf has it. An equal reference means the same
// value: the operation has been under way since 1, so the block of that time is not reused before
// its end. An operation that waits for memory holds no address (AwaitMemory), and begins again at
// 1.
//
// A modification that keeps the pair has read it, and waits until what it read is durable, as a
// lookup does.

// errKept is the answer of a modification that left the pair unchanged.
var errKept = errors.New("the pair is kept")

// modification is the index.Change under way in a session.
type modification struct {
	change index.Change
	old    []byte // the value that it saw
	// how the leaf has that: record.Put, record.Refer; record.Delete if the key is not there
	was   byte
	has   []byte // in the leaf: the value or the reference
	value []byte // the new value, if it needs a block
}

// Modify implements index.Session.
func (s *session) Modify(key []byte, change index.Change) error {
	s.mod.change = change
	err := s.write(key, nil, modify)
	s.mod.change, s.mod.value = nil, nil
	if err == errKept {
		return nil
	}
	return err
}

// decide calls index.Change for the pair in slot i, which has word; a negative i means that there
// is no pair. Under the lock of f. It prepares entry and record, and returns what to do; modify
// means nothing.
func (s *session) decide(f *frame.Frame, i int, word uint64, key []byte, epoch uint64) (mode, frame.State, error) {
	d := &s.mod
	d.value = nil
	if err := s.readOld(f, i, word, key, epoch); err != nil {
		return modify, frame.Done, err
	}
	var old []byte
	if i >= 0 {
		old = d.old
	}
	value, action, err := s.x.lay.Decide(d.change, key, old, i >= 0)
	switch {
	case err != nil || action == index.Keep:
		return modify, frame.Done, err
	case action == index.Remove:
		s.prepareRemoval(key, epoch)
		return remove, frame.Done, nil
	case s.x.lay.InBlock(len(value)):
		d.value = value
		return modify, blockWanted, nil
	}
	s.prepareInline(key, value, epoch)
	return upsert, frame.Done, nil
}

// readOld reads what the leaf has of key, and the value.
func (s *session) readOld(f *frame.Frame, i int, word uint64, key []byte, epoch uint64) error {
	d := &s.mod
	d.was, d.has = s.inLeaf(f, i, word, key, d.has[:0])
	if d.was != record.Refer {
		d.old = append(d.old[:0], d.has...)
		return nil
	}
	s.tag.Set(d.has, epoch)
	var ok bool
	var err error
	if d.old, ok = s.x.values.Get(&s.tag, d.old[:0]); ok {
		return nil
	}
	if d.old, ok, err = s.b.Blocks.AppendValue(d.old[:0], blocks.Decode(d.has)); ok || err != nil {
		return err
	}
	if err := s.x.pool.Alive(); err != nil {
		return op.Failure(err, false)
	}
	return fmt.Errorf("the block of key %x does not hold its value: %w", key, index.ErrFormat)
}

// asTold reports whether the leaf has of key what index.Change saw.
func (s *session) asTold(f *frame.Frame, i int, word uint64, key []byte) bool {
	var was byte
	was, s.value = s.inLeaf(f, i, word, key, s.value[:0])
	return was == s.mod.was && bytes.Equal(s.value, s.mod.has)
}

// inLeaf appends the content of slot i to dst, and returns its kind.
func (s *session) inLeaf(f *frame.Frame, i int, word uint64, key, dst []byte) (was byte, has []byte) {
	switch {
	case i < 0:
		return record.Delete, dst
	case f.Refers(word, s.x.lay):
		was = record.Refer
	default:
		was = record.Put
	}
	return was, f.Value(word, s.x.lay, key, dst)
}
