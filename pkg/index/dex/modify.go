package dex

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
)

// A read-modify-write is done with the lock of the leaf's frame, which every change of this client
// needs, and only this client changes the key:
//
//	1  with the lock: reads the pair, and asks index.Change what to do
//	2  with the same lock: makes that change as any other one, and appends its record
//
// A value that needs a block cannot be written there: memory may have to be waited for. So it
// goes on
//
//	2' releases the lock, and writes the block, which nobody knows
//	3' with the lock again: sees that the pair is as it was at 1, and makes the change; else it
//	   gives the block back and begins anew
//
// At 3' the pair has what index.Change was told at 1, so what it said is right then, whatever
// happened in between. The pair is compared as the leaf has it. An equal reference is of the same
// value: the operation has been under way since 1, so the block that was referred to then is nobody
// else's before its end. An operation that waits for memory holds no address (AwaitMemory), and
// begins anew at 1.
//
// Who keeps the pair has read it, and waits until what it read is durable, as a lookup does.

// errKept is the answer of a modification that left the pair as it was.
var errKept = errors.New("the pair is kept")

// modification is the index.Change under way of a session.
type modification struct {
	change index.Change
	old    []byte // what it was told
	// how the leaf had that: recordPut, recordRefer; recordDelete if there was nothing
	was   byte
	has   []byte // in the leaf: the value or the reference
	value []byte // what it said, if that needs a block
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

// decide asks what to do with the pair in slot i, which has word; there is none if i is negative.
// Under the lock of f. It prepares entry and record. The mode is what to do: modify is nothing.
func (s *session) decide(f *frame, i int, word uint64, key []byte, epoch uint64) (mode, state, error) {
	d := &s.mod
	d.value = nil
	if err := s.readOld(f, i, word, key, epoch); err != nil {
		return modify, done, err
	}
	var old []byte
	if i >= 0 {
		old = d.old
	}
	value, action := d.change(old, i >= 0)
	switch {
	case action == index.Keep, action == index.Remove && i < 0:
		return modify, done, nil
	case action == index.Remove:
		s.prepareRemoval(key, epoch)
		return remove, done, nil
	case action != index.Put:
		return modify, done, fmt.Errorf("%d is no action", action)
	}
	if err := s.x.lay.CheckPair(key, value); err != nil {
		return modify, done, err
	}
	if s.x.lay.InBlock(len(value)) {
		d.value = value
		return modify, blockWanted, nil
	}
	s.prepareInline(key, value, epoch)
	return upsert, done, nil
}

// readOld reads what the leaf has of key, and its value.
func (s *session) readOld(f *frame, i int, word uint64, key []byte, epoch uint64) error {
	d := &s.mod
	d.was, d.has = s.inLeaf(f, i, word, key, d.has[:0])
	if d.was != recordRefer {
		d.old = append(d.old[:0], d.has...)
		return nil
	}
	s.tag.set(d.has, epoch)
	var ok bool
	var err error
	if d.old, ok = s.x.values.find(s.x, &s.tag, d.old[:0]); ok {
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

// asTold reports whether the leaf has of key what index.Change was told of.
func (s *session) asTold(f *frame, i int, word uint64, key []byte) bool {
	var was byte
	was, s.value = s.inLeaf(f, i, word, key, s.value[:0])
	return was == s.mod.was && bytes.Equal(s.value, s.mod.has)
}

// inLeaf appends to dst what slot i has, and says what that is.
func (s *session) inLeaf(f *frame, i int, word uint64, key, dst []byte) (was byte, has []byte) {
	switch {
	case i < 0:
		return recordDelete, dst
	case f.refers(word, s.x.lay):
		was = recordRefer
	default:
		was = recordPut
	}
	return was, f.value(word, s.x.lay, key, dst)
}
