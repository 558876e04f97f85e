package lock

import (
	"encoding/binary"
	"fmt"
)

// Memory is the data region as its memory server changes it: by the same atomics as its clients
// (G2).
type Memory interface {
	// LoadWords reads the words from at on.
	LoadWords(at uint64, dst []uint64) error
	// SwapWord is a compare-and-swap. It returns what it found.
	SwapWord(at, compare, swap uint64) (old uint64, err error)
	// Owns reports whether the word at at lies in memory that the index of the sweep has.
	Owns(at uint64) bool
	// While calls do, if the index of the sweep has the memory at at. No index gets that memory, or
	// gives it back, before do has returned.
	While(at uint64, do func() error) error
}

// Strip is lock words side by side.
type Strip struct {
	At    uint64 // of the first one
	Words int
	// There reports whether they still are lock words; it is asked within While.
	There func() (bool, error)
}

// Strips calls see for all strips of the index, until that returns an error.
type Strips func(see func(s *Strip) error) error

// Sweep turns the holder lane of each lock word that one of ids holds to Repair, and returns how
// many. These are words of strips, or others that the intent slots of the index, from first on,
// name: a session names such a word before it takes it, in the same list. Own bits stay as they
// are. None of ids may have a
// request under way any more. A sweep that was cut short is done again, also by another process;
// several may be done at once.
//
// The order of its steps, over all slots of ids:
//
//  1. A slot with a change under a word whose holder is the slot's client is marked as owed.
//  2. The lane of each word of a strip whose holder is one of ids turns to Repair; and that of a
//     word that a slot names, and whose holder is its client. A slot that is not owed is given
//     back.
//
// 1 before 2: whoever finds Repair finds what is owed. A slot that 1 of an earlier sweep did not
// mark has no change to make: its client did not hold the word then, or had not yet begun to change
// anything, or had ended its change. Two slots of one client can name the same word, since a slot
// goes on naming it after a release. So 1 is over for all slots before 2 begins with any of them.
//
// A client writes what it likes into its slots. So a word is looked at only if it lies in memory of
// the index. Others may open strips, and get and give back chunks, while the sweep looks. A word of
// a strip that one of ids holds stays where it is: its chunk is given back when nobody holds a word
// of it. What is no strip any more by then is left alone (Strip.There).
func Sweep(m Memory, first uint64, slots int, ids []uint16, strips Strips) (turned int, err error) {
	var fenced [1 << HolderBits / 64]uint64
	for _, id := range ids {
		fenced[id/64] |= 1 << (id % 64)
	}
	s := sweep{m, first, slots, &fenced}
	err = s.each(func(at uint64, slot *Slot) error {
		if slot.Owed || !slot.Under {
			return nil
		}
		held, _, err := s.held(slot)
		if held && err == nil {
			_, err = m.SwapWord(at, slot.Owner, slot.Owner|Owed)
		}
		return err
	})
	if err == nil && strips != nil {
		err = strips(func(t *Strip) error {
			n, err := s.turnStrip(t)
			turned += n
			return err
		})
	}
	if err == nil {
		err = s.each(func(at uint64, slot *Slot) error {
			n, err := s.turn(slot)
			turned += n
			if err == nil && !slot.Owed {
				_, err = m.SwapWord(at, slot.Owner, 0)
			}
			return err
		})
	}
	if err != nil {
		return turned, fmt.Errorf("turn lock words of fenced clients to repair: %w", err)
	}
	return turned, nil
}

// Owners are the ids of the clients that have intent slots, some more than once.
func Owners(m Memory, first uint64, slots int) (ids []uint16, err error) {
	var word [1]uint64
	for i := range slots {
		if err := m.LoadWords(first+uint64(i)*SlotBytes, word[:]); err != nil {
			return nil, fmt.Errorf("look who has intent slots: %w", err)
		}
		if id := Holder(word[0]); id != 0 {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

type sweep struct {
	m      Memory
	first  uint64
	slots  int
	fenced *[1 << HolderBits / 64]uint64
}

func (s *sweep) isFenced(id uint16) bool {
	return id != 0 && id != Repair && s.fenced[id/64]>>(id%64)&1 != 0
}

// each calls see for every slot of a fenced client.
func (s *sweep) each(see func(at uint64, slot *Slot) error) error {
	var words [SlotBytes / 8]uint64
	var b [SlotBytes]byte
	for i := range s.slots {
		at := s.first + uint64(i)*SlotBytes
		if err := s.m.LoadWords(at, words[:]); err != nil {
			return err
		}
		if !s.isFenced(Holder(words[0])) {
			continue
		}
		for k, w := range words {
			binary.NativeEndian.PutUint64(b[8*k:], w)
		}
		var slot Slot
		slot.Decode(b[:])
		if err := see(at, &slot); err != nil {
			return err
		}
	}
	return nil
}

// held reports whether the client of a slot holds the word that the slot names, and what the word
// is.
func (s *sweep) held(slot *Slot) (held bool, word uint64, err error) {
	if !slot.Names || slot.Name.Word%8 != 0 || !s.m.Owns(slot.Name.Word) {
		return false, 0, nil
	}
	var w [1]uint64
	err = s.m.LoadWords(slot.Name.Word, w[:])
	return err == nil && Holder(w[0]) == slot.Client, w[0], err
}

// turn is step 2 for a word. Others may change its own bits meanwhile. Each try asks anew whose the
// word is: a client that lies names words of chunks that are given to another index meanwhile.
func (s *sweep) turn(slot *Slot) (turned int, err error) {
	for {
		held, old, err := s.held(slot)
		if !held || err != nil {
			return 0, err
		}
		found, err := s.m.SwapWord(slot.Name.Word, old, old|Repair)
		if err != nil {
			return 0, err
		}
		if found == old {
			return 1, nil
		}
	}
}

// wordsRead is how many words of a strip are read at once.
const wordsRead = 64

// turnStrip is step 2 for the words of a strip.
func (s *sweep) turnStrip(t *Strip) (turned int, err error) {
	var words [wordsRead]uint64
	for from := 0; from < t.Words; from += wordsRead {
		part := words[:min(wordsRead, t.Words-from)]
		if err := s.m.LoadWords(t.At+8*uint64(from), part); err != nil {
			return turned, err
		}
		for i, w := range part {
			if !s.isFenced(Holder(w)) {
				continue
			}
			n, err := s.turnIn(t, t.At+8*uint64(from+i))
			turned += n
			if err != nil {
				return turned, err
			}
		}
	}
	return turned, nil
}

// turnIn is turnStrip for the word at at, which one of ids seemed to hold.
func (s *sweep) turnIn(t *Strip, at uint64) (turned int, err error) {
	err = s.m.While(at, func() error {
		for there, err := t.There(); ; {
			if !there || err != nil {
				return err
			}
			var w [1]uint64
			if err := s.m.LoadWords(at, w[:]); err != nil || !s.isFenced(Holder(w[0])) {
				return err
			}
			found, err := s.m.SwapWord(at, w[0], w[0]|Repair)
			if err != nil {
				return err
			}
			if found == w[0] {
				turned++
				return nil
			}
		}
	})
	return turned, err
}
