package pool

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// The repair of what lock words guard; word.go has the protocol.

// WordMemory is the data region as its memory server changes it: by the same atomics as its clients
// (G2).
type WordMemory = lock.Memory

// IntentBytes is the size of an intent slot.
const IntentBytes = lock.SlotBytes

// SweepWords turns lock words that clients held to Repair, and returns how many: what fencing does
// once nothing of these clients takes effect any more. The intent slots of the index, from offset
// first on, name these words. It may be cut short and done again.
func SweepWords(m WordMemory, first uint64, slots int, ids []uint16) (turned int, err error) {
	return lock.Sweep(m, first, slots, ids)
}

// takeOverWord is lines 3 to 7 of the protocol, for a word that was taken from Repair. After an
// error the word is this client's, and what is under it is damaged.
func (s *Session) takeOverWord(l *wordLock, spans []Span) error {
	err := s.repairWord(l)
	if err == nil && len(spans) > 0 {
		for _, span := range spans {
			s.Read(span.At, span.Local)
		}
		err = s.Post()
	}
	if err != nil && s.broken == nil {
		s.broken = err
	}
	return err
}

func (s *Session) repairWord(l *wordLock) error {
	owed, err := s.redoOwed(l)
	if err != nil {
		return fmt.Errorf("repair what lock word %v guards: %w", l.word.At, err)
	}
	if f := s.pool.rebuild.Load(); f != nil {
		l.held = true
		s.lockWord = *l
		mask, own, err := (*f)(s, l.word, l.own, s.part)
		s.lockWord = wordLock{}
		if err != nil {
			return fmt.Errorf("rebuild lock word %v: %w", l.word.At, err)
		}
		mask &= ownMask
		s.queueTo(l.server, s.give(l, s.pool.client, mask, own))
		if err := s.postHeld(l); err != nil {
			return err
		}
		l.own = l.own&^mask | own&mask
	}
	for _, o := range owed {
		s.queueTo(l.server, verbs.Request{Op: verbs.CompareSwap, Remote: o.at, Local: s.old, Compare: o.owner})
		if err := s.Post(); err != nil {
			return err
		}
	}
	return nil
}

// owedSlot is a slot whose change is made.
type owedSlot struct{ at, owner uint64 }

// redoOwed makes the changes that slots owe the word.
func (s *Session) redoOwed(l *wordLock) (owed []owedSlot, err error) {
	at := l.word.At.Offset()
	err = s.eachSlot(l.server, 0, func(offset uint64, b []byte) (bool, error) {
		var slot lock.Slot
		slot.Decode(b)
		if !slot.Owed || !slot.Names || slot.Name.Word != at {
			return true, nil
		}
		owed = append(owed, owedSlot{offset, binary.NativeEndian.Uint64(b)})
		if !slot.Under {
			return true, nil
		}
		if err := s.redoChange(&slot.Change, l.server); err != nil {
			return false, fmt.Errorf("intent slot at %#x of memory server %d: %w", offset, s.pool.servers[l.server].id, err)
		}
		return true, nil
	})
	return owed, err
}

// redoChange makes a change, in parts of the size of s.part. An image that does not match is one
// that was cut short: then the change did not verify.
func (s *Session) redoChange(c *lock.Change, at int) error {
	server := s.pool.servers[at].id
	if c.Image >= 1<<offsetBits || c.Target >= 1<<offsetBits || c.Length > int(s.pool.ChunkBytes()) {
		return fmt.Errorf("a change of %d bytes from %#x to %#x: %w", c.Length, c.Image, c.Target, ErrFormat)
	}
	r := record{image: NewAddr(server, c.Image), node: NewAddr(server, c.Target), length: c.Length, sum: c.Sum}
	matches, err := s.verifyImage(&r, s.part)
	if err != nil {
		return err
	}
	if !matches {
		return fmt.Errorf("its image does not match: %w", ErrFormat)
	}
	if err := s.copyImage(&r, s.part); err != nil {
		return err
	}
	s.pool.repaired.Add(1)
	return nil
}

// RepairWords brings to an end, on all servers, what clients left half done under lock words that
// are fenced by now: RepairAll for lock words. Each READ of slots, and each word, is an operation
// of the session.
func (s *Session) RepairWords() error {
	for i, srv := range s.pool.servers {
		if err := s.repairOwed(i, true); err != nil {
			return fmt.Errorf("repair all lock words of memory server %d: %w", srv.id, err)
		}
	}
	s.End()
	return nil
}

// repairOwed makes the changes of all slots of a server that owe one; without wait not those that
// somebody is about to make.
func (s *Session) repairOwed(server int, wait bool) error {
	var words []Word
	id := s.pool.servers[server].id
	s.Begin()
	err := s.eachSlot(server, 0, func(_ uint64, b []byte) (bool, error) {
		var slot lock.Slot
		if slot.Decode(b); slot.Owed && slot.Names {
			words = append(words, Word{At: NewAddr(id, slot.Name.Word), Node: NewAddr(id, slot.Name.Node)})
		}
		return true, nil
	})
	for _, w := range words {
		if err != nil {
			break
		}
		s.Begin()
		s.Read(w.At, s.word)
		err = s.Post()
		if holder := lock.Holder(binary.NativeEndian.Uint64(s.word)); err != nil || !wait && holder != Repair {
			continue
		}
		if _, err = s.Acquire(w); err == nil {
			err = s.PostRelease(0, 0)
		}
	}
	return err
}
