package memindex

import "fmt"

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

// saw notes what an operation may have seen.
func (x *session) saw() {
	if x.s.log.Load() != nil {
		x.position = x.s.appended.Load()
	}
}

// Defer implements index.Session.
func (x *session) Defer(bool) {}

// Position implements index.Session.
func (x *session) Position() uint64 {
	if x.position <= x.s.durable.Load() {
		x.position = 0
	}
	return x.position
}

// Durable implements index.Session.
func (x *session) Durable(position uint64) error {
	wait, durable := x.s.log.Load(), &x.s.durable
	if wait == nil || position <= durable.Load() {
		return nil
	}
	if err := (*wait)(position); err != nil {
		return fmt.Errorf("wait for the log: %w", err)
	}
	for was := durable.Load(); was < position && !durable.CompareAndSwap(was, position); {
		was = durable.Load()
	}
	return nil
}
