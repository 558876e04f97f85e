package verbs

import "fmt"

// Methods for the owner of a feed.

// Start is where the stream of the feed begins.
func (f *Feed) Start() Position { return f.start }

// Applied is what the copy is known to have.
func (f *Feed) Applied() Position { return Position(f.applied.Load()) }

// Err is why the feed was given up; nil = it was not, nor dropped.
func (f *Feed) Err() error {
	f.journal.mu.Lock()
	defer f.journal.mu.Unlock()
	if f.err == nil && f.dropped {
		return errDropped
	}
	return f.err
}

var errDropped = fmt.Errorf("the copy was dropped: nothing is sent to it any more: %w", ErrClosed)

// Connected reports whether there is a link.
func (f *Feed) Connected() bool {
	f.journal.mu.Lock()
	defer f.journal.mu.Unlock()
	return f.link != nil
}

// Connect lets the stream go on over a link, from where the copy says that it is: Start for one
// that has nothing of it. What an earlier link took goes on behind that. After an error the link is
// closed, and the feed is given up or was dropped.
func (f *Feed) Connect(link Link, from Position) error {
	j := f.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if f.link != nil {
		f.breaks(f.link, fmt.Errorf("the copy was connected anew: %w", ErrDisconnected))
	}
	f.idle()
	at, lacks := uint64(from), j.end.Load()-uint64(from)
	switch {
	case f.err != nil || f.dropped:
	case at < f.applied.Load() || at > f.sent:
		f.giveUp(fmt.Errorf("the copy says that it has %d bytes of %d, and had %d: %w", at, f.sent, f.applied.Load(), ErrDisconnected))
	case lacks > ringBytes:
		f.giveUp(fmt.Errorf("%d bytes: %w", lacks, ErrGone))
	default:
		f.link, f.sent = link, at
		f.has(max(at, f.applied.Load()))
		f.wake(endless) // somebody has to send
		return nil
	}
	j.count()
	link.Close() // its error says nothing that comes later
	if f.err != nil {
		return f.err
	}
	return errDropped
}

// idle waits until nobody sends or takes any more, which links end soon that are closed. The caller
// has mu.
func (f *Feed) idle() {
	j := f.journal
	for f.sending || f.taking {
		j.mu.Unlock()
		j.env.Sleep(lookAgain)
		j.mu.Lock()
	}
}

// Await lets answers and changes wait for the copy from now on.
func (f *Feed) Await() error {
	j := f.journal
	j.order.Lock()
	defer j.order.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if f.err == nil && j.end.Load()-f.applied.Load() > ringBytes {
		f.giveUp(ErrGone)
	}
	if f.err == nil {
		f.awaited = true
	}
	j.count()
	return f.err
}

// Drop ends the feed: nothing waits for the copy any more. With the last feed nothing is recorded
// any more.
func (f *Feed) Drop() {
	j := f.journal
	j.mu.Lock()
	f.dropped = true
	if f.link != nil {
		f.breaks(f.link, errDropped)
	}
	f.wake(endless)
	f.idle() // until then the window keeps what is being sent
	j.mu.Unlock()

	j.order.Lock()
	defer j.order.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, o := range j.feeds {
		if o == f {
			// another slice: whoever waits may be going through this one
			j.feeds = append(j.feeds[:i:i], j.feeds[i+1:]...)
			break
		}
	}
	j.count()
	j.change(recording, len(j.feeds) > 0)
}
