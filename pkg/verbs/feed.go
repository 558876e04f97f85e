package verbs

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A Feed is what one copy gets of a journal: the stream, from a position on. Its owner connects it,
// and connects it again when its link breaks, from where the copy is ([Feed.Connect]). So a copy
// whose connection breaks lacks nothing, as long as the window has what it lacks.
//
//	              the window keeps what it lacks    answers wait for it    too slow
//	at first      as long as that fits              no                     it is given up
//	Await         yes: changes wait for room        yes                    changes wait
//	Drop          no                                no
//
// A feed that is given up ends for good (Err): the copy has to join anew. If answers wait for it,
// they fail until it is dropped. What a feed sends while nobody waits is copied out of the window
// under the order, since a change may come behind that takes its place there.
type Feed struct {
	journal *Journal
	start   Position
	acked   func(Position)
	applied atomic.Uint64 // what the copy is known to have; changes under mu

	// The fields below are guarded by the journal's mu.
	awaited bool
	dropped bool
	sending bool // somebody sends
	taking  bool // somebody takes the copy's answers
	link    Link // nil = there is none
	broken  error
	err     error  // why it was given up
	sent    uint64 // what the link was given
	part    []byte // of the stream, while nobody waits
	parked  []*Waiter
}

// Link is a connection to a copy. One goroutine at a time sends, and one receives. Each call waits
// a moment at most, so that who waits for a copy can be cut, and Send and Receive return soon after
// Close.
type Link interface {
	// Send sends the next bytes of the stream, and returns how many it took. It keeps nothing of b.
	Send(b []byte) (int, error)
	// Receive returns how much of the stream the copy has, or 0 if it says nothing. It fails where
	// the copy has been silent for too long.
	Receive() (Position, error)
	// Close ends the connection.
	Close() error
}

// WaitLimit is how long anybody waits for copies.
const WaitLimit = 10 * time.Second

const (
	mostFeeds = 3 // files, a backup, and a copy that joins

	partBytes = 256 << 10        // of Feed.part
	sendMost  = JournalWindow    // of one who waits; others go on behind it
	lookAgain = time.Millisecond // for what nobody tells of
	lookLast  = 16 * time.Millisecond
)

// ErrGone is returned where a copy lacks what the window does not have any more.
var ErrGone = errors.New("the copy lacks what is not kept any more: it has to join anew")

// Feed begins another feed. From here on changes are recorded, and those that lists make that went
// by the mode of before are over when settle has returned. So a copy that gets, from there on, all
// pieces of the memory as items has the memory. acked is told what the copy has applied, before
// anybody else goes by it; it calls nothing of the journal. ErrTooMany: there are as many as can
// be.
func (j *Journal) Feed(settle func() error, acked func(Position)) (*Feed, error) {
	f := &Feed{journal: j, acked: acked, broken: errors.New("the copy was not reached yet")}
	if err := j.enter(f); err != nil {
		return nil, err
	}
	if err := settle(); err != nil {
		f.Drop()
		return nil, fmt.Errorf("begin to record changes for a copy: %w", err)
	}
	return f, nil
}

func (j *Journal) enter(f *Feed) error {
	j.order.Lock()
	defer j.order.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.feeds) == mostFeeds {
		return fmt.Errorf("send changes to one more copy than %d: %w", mostFeeds, ErrTooMany)
	}
	if j.ring == nil {
		j.ring, j.stamps = make([]byte, ringBytes), make([]atomic.Uint64, stampCount)
	}
	f.sent = j.end.Load()
	f.start = Position(f.sent)
	f.applied.Store(f.sent)
	j.feeds = append(j.feeds, f)
	j.count()
	j.change(recording, true)
	return nil
}

// count notes what all have that are waited for. The caller has mu.
func (j *Journal) count() {
	all, keeps := uint64(endless), uint64(endless)
	for _, f := range j.feeds {
		if f.awaited {
			all = min(all, f.applied.Load())
		} else if f.err == nil {
			keeps = min(keeps, f.sent+ringBytes)
		}
	}
	j.all.Store(all)
	j.keeps.Store(keeps)
}

// breaks gives up all feeds of now.
func (j *Journal) breaks(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, f := range j.feeds {
		f.giveUp(err)
	}
	j.count()
}

// wake wakes those who need no more than p.
func (f *Feed) wake(p uint64) {
	stay := f.parked[:0]
	for _, w := range f.parked {
		if w.need <= p {
			w.parked = false
			w.event.Set()
		} else {
			stay = append(stay, w)
		}
	}
	clear(f.parked[len(stay):])
	f.parked = stay
}

// handOver leaves to one of those who wait what nobody does.
func (f *Feed) handOver() {
	unsent := !f.sending && f.sent < f.journal.end.Load()
	if (!f.taking || unsent) && len(f.parked) > 0 {
		f.parked[0].event.Set()
	}
}

// send sends what is not sent, unless somebody does. The caller has mu, which is given up
// meanwhile. It reports whether the link took something.
func (f *Feed) send() (took bool) {
	j := f.journal
	if f.sending {
		return false
	}
	f.sending = true
	for most := f.sent + sendMost; f.link != nil && f.sent < min(j.end.Load(), most); {
		link, sent := f.link, f.sent
		part := f.next()
		if part == nil {
			break
		}
		// before the bytes, so that no answer to them comes as a surprise
		f.sent = sent + uint64(len(part))
		j.mu.Unlock()
		n, err := link.Send(part)
		j.mu.Lock()
		if err != nil {
			f.breaks(link, err) // what it took is not known
			break
		}
		if f.link == link {
			f.sent = sent + uint64(n)
		}
		if took = took || n > 0; n == 0 {
			break
		}
	}
	f.sending = false
	return took
}

// next is the next part of the stream to be sent. It stays as it is until that is over.
func (f *Feed) next() []byte {
	j := f.journal
	if f.awaited {
		from, n := f.sent%ringBytes, j.end.Load()-f.sent
		return j.ring[from:min(from+n, ringBytes)]
	}
	j.mu.Unlock()
	j.order.Lock()
	j.mu.Lock()
	defer j.order.Unlock()
	n := j.end.Load() - f.sent
	if f.link == nil {
		return nil
	}
	if n > ringBytes {
		f.giveUp(ErrGone)
		j.count()
		return nil
	}
	if f.part == nil {
		f.part = make([]byte, partBytes)
	}
	from := f.sent % ringBytes
	return f.part[:copy(f.part, j.ring[from:min(from+n, ringBytes)])]
}

// take takes what the copy says. The caller has mu, which is given up meanwhile.
func (f *Feed) take() (progress bool) {
	j, link := f.journal, f.link
	f.taking = true
	j.mu.Unlock()
	applied, err := link.Receive()
	j.mu.Lock()
	f.taking = false
	switch {
	case f.link != link:
	case err != nil:
		f.breaks(link, err)
	case uint64(applied) > f.sent:
		f.giveUp(fmt.Errorf("the copy says that it has %d bytes of %d: %w", applied, f.sent, ErrDisconnected))
		j.count()
	case uint64(applied) > f.applied.Load():
		f.has(uint64(applied))
		return true
	}
	return false
}

// has notes what the copy has.
func (f *Feed) has(applied uint64) {
	f.applied.Store(applied)
	if f.acked != nil {
		f.acked(Position(applied))
	}
	f.journal.count()
	f.wake(applied)
}

// breaks notes that a link broke.
func (f *Feed) breaks(link Link, err error) {
	if f.link == link {
		link.Close() // its error says nothing that err does not
		f.link, f.broken = nil, err
		f.wake(endless)
	}
}

// giveUp ends the feed for good.
func (f *Feed) giveUp(err error) {
	if f.err == nil {
		f.err = fmt.Errorf("the copy of this memory server is given up, and what was not answered may be lost with it: %w", err)
		if f.link != nil {
			f.breaks(f.link, err)
		}
		f.wake(endless)
	}
}
