package pool

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
)

// A chunk that goes back to its memory server takes its strips of lock words with it. Nobody holds
// the address of a word any more, but a client that died with one may owe a change under it: the
// word says Repair then, and an intent slot names it until somebody acquires it. Were that left for
// later, the image of the change would be written over what lies there by then. So the owner of the
// chunk acquires each word that is not free, before the call that gives the chunk back:
//
//  1. READ of the strip: which words are not free. None becomes so later: nobody holds the address
//     of one but repairers, which have it from the slot of a dead client, and leave a word alone
//     that is free (repairSlot).
//  2. Each of these is acquired and released: what is owed under it is made, and its slot given
//     back. Nobody has the memory yet.
//  3. If there was any, the chunk waits as what is retired now, for operations that are under way:
//     a repairer may have looked at the slot and the word before 2, and be about to acquire the
//     word. Who looks after 2 finds no slot that names it: the own one does not.
//
// If any of that fails, the chunk stays this client's at the memory server, for who adopts it.

// leaving is a chunk that goes back to its memory server.
type leaving struct {
	first  Addr
	strips []strip // of words that may not be free; none from step 3 on
}

// linger is step 3.
func (a *allocator) linger(l leaving) {
	l.strips = nil
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.batch(uncached)
	w.chunks = append(w.chunks, l)
}

// strip is the lock words of nodes side by side.
type strip struct {
	at, node Addr // of the first one
	size     int  // of a node
	nodes    int
}

// stripOf is the strip of b, for the nodes that were handed out; ok is false if there is none.
func (b *slab) stripOf(g *geometry) (s strip, ok bool) {
	if !b.class.strip || b.cut == 0 {
		return strip{}, false
	}
	at, _, _ := g.runAt(b.class.shapes[b.chunk.server], b.at)
	return strip{b.chunk.first + Addr(at), b.first, b.class.size, b.cut}, true
}

// wordsRead is how many words of a strip are read at once.
const wordsRead = 512

// freeWords acquires all words of strips on server i that are not free, and reports whether there
// were any. The words are in no memory that is used.
func (p *Pool) freeWords(i int, strips []strip, limit time.Duration) (some bool, err error) {
	if len(strips) == 0 {
		return false, nil
	}
	s, err := p.NewSession(8 * wordsRead)
	if err != nil {
		return false, err
	}
	defer s.Close()
	s.SetLimit(limit)
	b, err := s.Buffer(8 * wordsRead)
	if err != nil {
		return false, err
	}
	for _, t := range strips {
		for from := 0; from < t.nodes; from += wordsRead {
			n, err := s.freeSome(&t, from, b[:8*min(wordsRead, t.nodes-from)])
			if some = some || n > 0; err != nil {
				return false, fmt.Errorf("free the lock words of nodes that are given back: %w", err)
			}
		}
	}
	return some, s.forgetOwn(i)
}

// forgetOwn clears the name in the session's slot on server i, if it has one: where fences look at
// the words that slots name alone.
func (s *Session) forgetOwn(i int) error {
	if len(s.slots) <= i || s.slots[i] == nil {
		return nil
	}
	// Or clearSlots clears it just now: the name is gone only when that is confirmed.
	slot := s.slots[i]
	s.Begin()
	defer s.End()
	for n := 0; ; n++ {
		if err := s.forgetName(i, slot); err != nil {
			return err
		}
		if slot.state.Load() != slotForgetting {
			return nil
		}
		if late := s.Overdue(); late != nil {
			return fmt.Errorf("wait until an intent slot is cleared: %w", late)
		}
		s.backOff(n)
	}
}

// freeSome does that for the words of t from one on, which have room in b, and says how many it
// acquired.
func (s *Session) freeSome(t *strip, from int, b []byte) (acquired int, err error) {
	s.Begin()
	defer s.End()
	s.Read(t.at+Addr(8*from), b)
	if err := s.Post(); err != nil {
		return 0, err
	}
	for n := range len(b) / 8 {
		if lock.Holder(binary.NativeEndian.Uint64(b[8*n:])) == 0 {
			continue
		}
		w := Word{At: t.at + Addr(8*(from+n)), Node: t.node + Addr((from+n)*t.size), InStrip: true}
		if _, err := s.Acquire(w); err != nil {
			return acquired, err
		}
		if err := s.PostRelease(0, 0); err != nil {
			return acquired, err
		}
		acquired++
	}
	return acquired, nil
}
