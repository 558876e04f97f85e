package lock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// slotOf is a slot of a client that names word, with a change under it.
func slotOf(client uint32, word uint64, seq uint32, image uint64, sum uint32) []byte {
	b := make([]byte, SlotBytes)
	binary.NativeEndian.PutUint64(b, Owner(client))
	n := Name{Word: word, Node: word - 8, Seq: seq, Client: client}
	n.Encode(b[NameAt:])
	if image != 0 {
		c := Change{Image: image, Target: word - 8, Length: 8, Sum: sum}
		c.Encode(b[ChangeAt:], b[NameAt:], client)
	}
	return b
}

// TestCutShort: of a name or a change over an older one, cut short in any way, nothing verifies but
// the older name, or the whole of the new one. No older change comes to life again.
func TestCutShort(t *testing.T) {
	for _, same := range []bool{true, false} {
		word := uint64(800)
		if same {
			word = 1600
		}
		older := slotOf(3, word, 7, 4096, 99)
		clear(older[ChangeSumAt:][:8]) // as a release leaves it
		newer := slotOf(3, 1600, 8, 4096, 100)
		for mix := range 1 << 3 {
			b := append([]byte(nil), older...)
			for i := range 3 {
				if mix>>i&1 != 0 {
					copy(b[NameAt+8*i:][:8], newer[NameAt+8*i:])
				}
			}
			var s Slot
			if s.Decode(b); s.Under || s.Names && s.Name.Seq == 8 && mix>>2 == 0 {
				t.Errorf("words %03b of a name: %+v", mix, s)
			}
		}
		for mix := range 1 << 4 {
			b := append([]byte(nil), older...)
			copy(b[NameAt:], newer[NameAt:ChangeAt])
			for i := range 4 {
				if mix>>i&1 != 0 {
					copy(b[ChangeAt+8*i:][:8], newer[ChangeAt+8*i:])
				}
			}
			var s Slot
			s.Decode(b)
			// Words 2 and 3 have different content; word 1 is the same if the words are.
			if whole := mix&0b1100 == 0b1100 && (same || mix&0b10 != 0); s.Under != whole || !s.Names {
				t.Errorf("words %04b of a change: %+v", mix, s)
			}
		}
		for mix := range 1 << 7 { // name and change in one WRITE (of a word of a strip)
			b := append([]byte(nil), older...)
			for i := range 7 {
				if mix>>i&1 != 0 {
					copy(b[NameAt+8*i:][:8], newer[NameAt+8*i:])
				}
			}
			var s Slot
			if s.Decode(b); s.Under && (s.Change.Sum != 100 || s.Name.Seq != 8) {
				t.Errorf("same %v, words %07b of a name and a change: the older change is under way: %+v", same, mix, s)
			}
		}
	}
	b := slotOf(3, 1600, 8, 4096, 100)
	binary.NativeEndian.PutUint64(b, 4)
	var s Slot
	if s.Decode(b); s.Names || s.Under {
		t.Errorf("another client's slot: %+v", s)
	}
}

// TestNamesake: a name and a change that an earlier client left in a slot are not those of a later
// one with its id, whatever of its own it wrote since. A fence of the later one takes nothing of
// the earlier one for a change that is owed.
func TestNamesake(t *testing.T) {
	const word = 8 * 100
	earlier, later := uint32(3), uint32(2<<16|3)
	for _, own := range []bool{false, true} {
		b := slotOf(earlier, word, 7, 4096, 99)
		binary.NativeEndian.PutUint64(b, Owner(later))
		if own {
			copy(b[NameAt:ChangeAt], slotOf(later, word, 7, 0, 0)[NameAt:ChangeAt])
		}
		var s Slot
		if s.Decode(b); s.Client != 3 || s.Names != own || s.Under || s.Owed {
			t.Errorf("the later one's slot (with its own name: %v): %+v", own, s)
		}
		m := &memory{words: make([]uint64, 256), swaps: 9}
		m.words[word/8] = 3 // the later one holds it by another slot
		for k := range SlotBytes / 8 {
			m.words[k] = binary.NativeEndian.Uint64(b[8*k:])
		}
		if ids, err := Owners(m, 0, 1); err != nil || len(ids) != 1 || ids[0] != 3 {
			t.Errorf("slots are owned by %v, %v", ids, err)
		}
		if _, err := Sweep(m, 0, 1, []uint16{3}, nil); err != nil || m.words[0] != 0 {
			t.Errorf("the fence leaves %#x, %v", m.words[0], err)
		}
		if ids, err := Owners(m, 0, 1); err != nil || len(ids) != 0 {
			t.Errorf("slots are owned by %v, %v", ids, err)
		}
	}
	var s Slot
	if s.Decode(slotOf(later, word, 7, 4096, 99)); !s.Names || !s.Under || s.Name.Client != later {
		t.Errorf("the slot of a client of generation 2: %+v", s)
	}
}

// TestChangeOfAnEarlierOwner: a change that an earlier owner left in a slot is not that of the next
// one, though this names the same word with the same sequence number.
func TestChangeOfAnEarlierOwner(t *testing.T) {
	b := slotOf(3, 1600, 1, 4096, 99)
	copy(b, slotOf(4, 1600, 1, 0, 0)[:ChangeAt])
	var s Slot
	if s.Decode(b); !s.Names || s.Under {
		t.Errorf("the next owner's slot: %+v", s)
	}
}

// memory is words in which the first swaps succeed, and then fail, if not all do.
type memory struct {
	words []uint64
	swaps int
}

var errCut = errors.New("cut short")

func (m *memory) LoadWords(at uint64, dst []uint64) error {
	copy(dst, m.words[at/8:])
	return nil
}

func (m *memory) SwapWord(at, compare, swap uint64) (uint64, error) {
	if m.swaps--; m.swaps < 0 {
		return 0, errCut
	}
	old := m.words[at/8]
	if old == compare {
		m.words[at/8] = swap
	}
	return old, nil
}

func (m *memory) Owns(at uint64) bool { return at >= 1024 && at < 8*uint64(len(m.words)) }

func (m *memory) While(at uint64, do func() error) error {
	if !m.Owns(at) {
		return nil
	}
	return do()
}

// TestSweep: a fence turns the words that a fenced client holds, keeps their own bits, leaves those
// of others, and keeps the slots whose change is owed; also after it was cut short anywhere.
func TestSweep(t *testing.T) {
	const w1, w2, w3, outside = 1600, 1608, 1616, 512
	for cut := 0; ; cut++ {
		m := &memory{words: make([]uint64, 256), swaps: cut}
		for i, b := range [][]byte{
			slotOf(3, w1, 1, 0, 0),       // goes on naming the word
			slotOf(3, w1, 2, 4096, 1),    // holds it
			slotOf(3, w2, 1, 4096, 1),    // did not get it
			slotOf(4, w2, 1, 4096, 1),    // is not fenced
			slotOf(3, w3, 9, 0, 0),       // holds it, and has changed nothing
			slotOf(3, outside, 9, 99, 1), // lies
			slotOf(3, w3+4, 9, 99, 1),
			slotOf(3, 1<<63, 9, 99, 1),
		} {
			for k := range SlotBytes / 8 {
				m.words[8*i+k] = binary.NativeEndian.Uint64(b[8*k:])
			}
		}
		m.words[w1/8], m.words[w2/8], m.words[w3/8] = 3|0xabc<<16, 4|0xdef<<16, 3|0x123<<16
		m.words[outside/8] = 3
		if _, err := Sweep(m, 0, 8, []uint16{3, 5}, nil); err != nil && !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		whole := m.swaps >= 0
		m.swaps = 1000
		if _, err := Sweep(m, 0, 8, []uint16{3, 5}, nil); err != nil {
			t.Fatal(err)
		}
		got := [4]uint64{m.words[w1/8], m.words[w2/8], m.words[w3/8], m.words[outside/8]}
		if want := [4]uint64{Repair | 0xabc<<16, 4 | 0xdef<<16, Repair | 0x123<<16, 3}; got != want {
			t.Errorf("cut short after %d swaps: words %#x, want %#x", cut, got, want)
		}
		var owners [8]uint64
		for i := range owners {
			owners[i] = m.words[8*i]
		}
		if want := [8]uint64{0, 3 | Owed, 0, 4}; owners != want {
			t.Errorf("cut short after %d swaps: owners %#x, want %#x", cut, owners, want)
		}
		if whole {
			break
		}
	}
}

// moving is memory in which a word of the index's becomes another one's when a swap comes.
type moving struct {
	memory
	gone bool
}

func (m *moving) Owns(at uint64) bool { return !m.gone && m.memory.Owns(at) }

func (m *moving) SwapWord(at, compare, swap uint64) (uint64, error) {
	if at >= 1024 && !m.gone {
		m.gone = true
		m.words[at/8] = 3 | 0x77<<16
	}
	return m.memory.SwapWord(at, compare, swap)
}

// TestSweepOfMovedWord: a word that another index has when the sweep is about to turn it stays as
// it is.
func TestSweepOfMovedWord(t *testing.T) {
	m := &moving{memory: memory{words: make([]uint64, 256), swaps: 1000}}
	for k, b := 0, slotOf(3, 1600, 1, 0, 0); k < SlotBytes/8; k++ {
		m.words[k] = binary.NativeEndian.Uint64(b[8*k:])
	}
	m.words[200] = 3
	if _, err := Sweep(m, 0, 1, []uint16{3}, nil); err != nil || m.words[200] != 3|0x77<<16 {
		t.Errorf("the word is %#x; %v", m.words[200], err)
	}
}

// TestQueue: words go to waiters in order; a waiter that gives up is left out, and cancelling ends
// all.
func TestQueue(t *testing.T) {
	e := env.Real()
	q := NewQueues(e)
	if !q.Try(8) || q.Try(8) || !q.Try(16) || q.Acquire(8, NewWaiter(e), 0) {
		t.Fatal("words that are free are not to be had, or held ones are")
	}
	var order []int
	waiters := make(chan int, 3)
	queued := func(n int) {
		for {
			p := q.part(8)
			p.mu.Lock()
			have := p.find(8).waiters.Len()
			p.mu.Unlock()
			if have == n {
				return
			}
			e.Yield()
		}
	}
	for i := range 3 {
		w := NewWaiter(e)
		e.Go(fmt.Sprint("waiter ", i), func() {
			if q.Acquire(8, w, time.Minute) {
				waiters <- i
			} else {
				waiters <- -1
			}
		})
		queued(i + 1)
	}
	q.Release(8)
	order = append(order, <-waiters)
	q.Release(8)
	order = append(order, <-waiters)
	q.Cancel()
	order = append(order, <-waiters)
	if fmt.Sprint(order) != "[0 1 -1]" {
		t.Errorf("the word went to %v", order)
	}
	q.Release(8)
	if !q.Try(8) {
		t.Error("a released word is not to be had")
	}
}
