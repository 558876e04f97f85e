package combine

import (
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Limits of a window and of waits.
const (
	// MaxFollowers is how many sessions one READ serves beside its own.
	MaxFollowers = 31
	// maxCopied is how many bytes a leader copies for its followers.
	maxCopied = 64 << 10
	// Patience is how long a leader waits for the flight before it, and twice that a follower for
	// its leader. Then it READs itself.
	Patience = 2 * time.Millisecond
)

// Role is what a reader has to do.
type Role uint8

// The roles.
const (
	Alone Role = iota // READ; nobody waits for it
	Lead              // READ, or give up; then Done
	Wait              // Await, which says what comes next
	Got               // nothing: the bytes are there
)

// state is of a reader that waits, or has waited.
type state uint8

const (
	idle      state = iota
	gathering       // it leads the open window, and waits for the flight before it
	following       // it waits for its leader
	answered        // its leader has copied the bytes to it
	failed          // its leader has none
)

// Reader is one session's part in a table. One goroutine uses it. The zero value READs alone.
type Reader struct {
	table *Reads
	event env.Event
	id    uint64 // its number, in place in a word; 0 = it has none

	reads uint32 // its own; see Start

	// Of the READ under way. The owner sets them before others know of it.
	at    uint64
	buf   []byte
	slot  *slot
	word  uint64 // the slot's while this is the flight
	opens bool   // it waits as the leader of a window
	group bool   // its window had followers

	// guarded by the slot's mutex
	state     state
	leader    *Reader               // whose window it has joined
	followers [MaxFollowers]*Reader // of its window, then of its READ
	count     int
	most      int // followers that the window takes
}

// Open makes r a reader of t. Close ends it.
func (r *Reader) Open(t *Reads) {
	*r = Reader{table: t, event: t.env.NewEvent()}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := uint16(0)
	if last := len(t.mu.free) - 1; last >= 0 {
		n = t.mu.free[last]
		t.mu.free = t.mu.free[:last]
	} else if t.mu.given < maxReaders-1 {
		t.mu.given++
		n = t.mu.given
	}
	if n > 0 {
		t.readers[n].Store(r)
		r.id = uint64(n) << idShift
	}
}

// Close gives the number back. No READ may be under way.
func (r *Reader) Close() {
	if r.id == 0 {
		return
	}
	t, n := r.table, uint16(r.id>>idShift)
	r.id = 0
	t.readers[n].Store(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.free = append(t.mu.free, n)
}

// Join is called before a READ of len(b) bytes at an address. From then on until the READ is over,
// or Await returns, b belongs to the READ: nobody else touches it.
func (r *Reader) Join(at uint64, b []byte) Role {
	if r.id == 0 || !r.table.isWorthMeeting(len(b)) {
		return Alone
	}
	return r.join(at, b)
}

func (r *Reader) join(at uint64, b []byte) Role {
	h := at * hashing
	s := &r.table.slots[h>>(64-slotBits)]
	w := s.word.Load()
	if w != 0 && (w^h)&tagMask != 0 {
		return Alone
	}
	r.at, r.buf, r.slot, r.word, r.group = at, b, s, h&tagMask|r.id, false
	if w == 0 && s.word.CompareAndSwap(0, r.word) {
		return Lead
	}
	return r.joinWindow()
}

// joinWindow joins the open window of the address. If there is none, but a flight, it opens one,
// and if there is no flight, the reader's own READ is the flight.
func (r *Reader) joinWindow() Role {
	s := r.slot
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.next; n != nil {
		if n.at != r.at || len(n.buf) < len(r.buf) || n.count >= n.most {
			return Alone
		}
		r.state, r.leader, r.opens = following, n, false
		n.followers[n.count] = r
		n.count++
		return Wait
	}
	for {
		switch w := s.word.Load(); {
		case w == 0:
			if s.word.CompareAndSwap(0, r.word) {
				return Lead
			}
		case (w^r.word)&tagMask != 0:
			return Alone
		case w&asked != 0 || s.word.CompareAndSwap(w, w|asked):
			// The flight ends under the mutex from here on, so its address stands.
			if r.table.readers[w>>idShift&idMask].Load().at != r.at {
				return Alone
			}
			r.state, r.count, r.opens = gathering, 0, true
			r.most = min(MaxFollowers, max(1, maxCopied/max(1, len(r.buf))))
			s.next = r
			return Wait
		}
	}
}

// Await comes after Join has said Wait. It waits until the READ of the leader is over; a leader,
// until the flight before it is. It waits limit at most, and no longer than its patience.
func (r *Reader) Await(limit time.Duration) Role {
	patience := Patience
	if !r.opens {
		patience *= 2
	}
	r.event.Wait(min(limit, patience))
	s := r.slot
	s.mu.Lock()
	defer s.mu.Unlock()
	r.event.Wait(0) // set by now if it will be: it must not wake a later wait for nothing
	was := r.state
	r.state = idle
	switch was {
	case gathering:
		// The window is closed. The READ is posted after that.
		s.next = nil
		s.word.Store(r.word)
		r.group = r.count > 0
		return Lead
	case answered:
		return Got
	case following:
		r.leaveWindow()
	}
	return Alone
}

// leaveWindow takes r out of its leader's followers: nobody touches its buffer any more.
func (r *Reader) leaveWindow() {
	l := r.leader
	for i, f := range l.followers[:l.count] {
		if f == r {
			l.count--
			l.followers[i] = l.followers[l.count]
			l.followers[l.count] = nil
			return
		}
	}
}

// Done ends the READ of a leader: ok says that its buffer has the bytes. It copies them to the
// followers, which may go on then, and wakes the leader of the next window.
func (r *Reader) Done(ok bool) {
	s := r.slot
	if !r.group && s.word.CompareAndSwap(r.word, 0) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.group {
		for i, f := range r.followers[:r.count] {
			f.state = failed
			if ok {
				copy(f.buf, r.buf)
				f.state = answered
			}
			f.event.Set()
			r.followers[i] = nil
		}
		if ok {
			r.table.delegated.Add(uint64(r.count))
		}
		r.count = 0
	}
	if s.word.Load()&^asked != r.word {
		return // it took longer than the next leader's patience
	}
	if s.next == nil {
		s.word.Store(0)
	} else {
		s.next.event.Set()
	}
}
