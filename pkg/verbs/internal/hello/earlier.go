package hello

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Earlier are the sessions of a device whose queue pairs have ended and may not be quiet. A new
// connection to the same address is usable only when they are (G3):
//   - A session that broke is named in the next hello, and the server ends it before it admits the
//     new one.
//   - A session that is leaving, by Conn.Close, will be quiet or have broken in a moment. Who
//     connects waits for that before its hello. It does not name such a session: Close would then
//     find it cut, and could not say that it is quiet.
//
// A session is among them before any of its queue pairs is seen dead. The zero value has none. Safe
// for concurrent use.
type Earlier struct {
	mu      sync.Mutex
	broken  map[string][]uint64        // by address, at most MaxEarlier each
	leaving map[string][]chan struct{} // by address; each is closed when its session has left
}

// Await waits until all sessions that are leaving address now have left.
func (e *Earlier) Await(address string, limit time.Duration) error {
	e.mu.Lock()
	leaving := slices.Clone(e.leaving[address])
	e.mu.Unlock()
	if len(leaving) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, left := range leaving {
		select {
		case <-left:
		case <-ctx.Done():
			return verbs.ErrTimeout
		}
	}
	return nil
}

// Broken are the sessions to name in a hello to address.
func (e *Earlier) Broken(address string) []uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.broken[address])
}

// Ended forgets sessions that a server was told of when it admitted a new one.
func (e *Earlier) Ended(address string, named []uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	left := slices.DeleteFunc(e.broken[address], func(id uint64) bool { return slices.Contains(named, id) })
	if len(left) == 0 {
		delete(e.broken, address)
		return
	}
	e.broken[address] = left
}

// Broke notes a session that ended without a farewell. The oldest is forgotten where there are too
// many: the server can hold no more connections than that either.
func (e *Earlier) Broke(address string, session uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken == nil {
		e.broken = map[string][]uint64{}
	}
	list := append(e.broken[address], session)
	e.broken[address] = list[max(0, len(list)-MaxEarlier):]
}

// Leave notes a session that begins its farewell to address. The caller calls left when that is
// over, after Broke where the server did not answer it.
func (e *Earlier) Leave(address string) (left func()) {
	over := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leaving == nil {
		e.leaving = map[string][]chan struct{}{}
	}
	e.leaving[address] = append(e.leaving[address], over)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.leaving[address] = slices.DeleteFunc(e.leaving[address], func(c chan struct{}) bool { return c == over })
		if len(e.leaving[address]) == 0 {
			delete(e.leaving, address)
		}
		close(over)
	}
}

// Session is one of the sessions of a device, as its connection knows it.
type Session struct {
	Earlier *Earlier
	Address string
	ID      uint64
}

// Broke notes that it ended without a farewell.
func (s *Session) Broke() { s.Earlier.Broke(s.Address, s.ID) }

// Leave notes that it begins its farewell; left, that this is over.
func (s *Session) Leave() (left func()) { return s.Earlier.Leave(s.Address) }
