package memindex

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
)

// Log gives the store a log, as DEX has one: a change is durable after wait has returned nil for
// its position, or a later one. wait is called by sessions, several at once; its error is that of
// the log. It is for sessions that defer: an operation waits for nothing, and its position is that
// of the newest change. A scan waits itself. Nil ends that.
func (s *Store) Log(wait func(position uint64) error) {
	if wait == nil {
		s.log.Store(nil)
		return
	}
	s.log.Store(&wait)
}

// made is a change that was made, and what the key was before.
type made struct {
	position   uint64
	key, value []byte
	there      bool
	was        pair
	had        bool
}

// note gives a change its position, and tells who watches. Called under mu.
func (s *Store) note(c made) {
	c.position = s.appended.Add(1)
	if s.log.Load() != nil {
		s.volatile = append(s.volatile, c)
	}
	if f := s.watch.Load(); f != nil {
		(*f)(c.key, c.value, c.there)
	}
}

// Lose loses the log of all indexes that are open, and with it every change that is not durable: it
// is as if it had never been made. undone is told of each, the last one first, while nothing
// changes. What these indexes wait for from now on fails, and so does what already waits. It
// returns how many changes were lost.
func (s *Store) Lose(undone func(key, value []byte, there bool)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.openNow {
		o.lost.CompareAndSwap(0, s.durable.Load()+1)
	}
	n := len(s.volatile)
	for i := n - 1; i >= 0; i-- {
		c := s.volatile[i]
		if c.had {
			s.pairs.Set(c.was)
		} else {
			s.pairs.Delete(pair{key: c.key})
		}
		undone(c.key, c.value, c.there)
	}
	s.volatile = s.volatile[:0]
	return n
}

// Volatile is how many changes are not durable.
func (s *Store) Volatile() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.volatile)
}

// noteSeen notes what an operation may have seen.
func (x *session) noteSeen() {
	if x.s.log.Load() != nil {
		x.position = x.s.appended.Load()
	}
}

// Defer implements index.Session.
func (x *session) Defer(bool) {}

// durableUpTo is up to where the session's log is durable, and whether it will ever be durable
// beyond. Others may be durable beyond what this one lost.
func (x *session) durableUpTo() (durable uint64, lost bool) {
	durable = x.s.durable.Load() // before the look at what was lost
	if from := x.o.lost.Load(); from > 0 {
		return from - 1, true
	}
	return durable, false
}

// Position implements index.Session.
func (x *session) Position() uint64 {
	if durable, _ := x.durableUpTo(); x.position <= durable {
		x.position = 0
	}
	return x.position
}

// Durable implements index.Session.
func (x *session) Durable(position uint64) error {
	wait := x.s.log.Load()
	if durable, _ := x.durableUpTo(); wait == nil || position <= durable {
		return nil
	}
	if err := (*wait)(position); err != nil {
		return fmt.Errorf("wait for the log: %w", err)
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	switch durable, lost := x.durableUpTo(); {
	case position <= durable:
	case lost:
		return fmt.Errorf("wait for the log, which was lost: %w", index.ErrUnknown)
	default:
		x.s.durable.Store(position)
		n := 0
		for n < len(x.s.volatile) && x.s.volatile[n].position <= position {
			n++
		}
		x.s.volatile = append(x.s.volatile[:0], x.s.volatile[n:]...)
	}
	return nil
}
