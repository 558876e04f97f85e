package serve

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Session is an admitted connection.
type Session struct {
	Conn net.Conn
	Peer verbs.Peer

	id   uint64
	left bool          // a later session takes its place; guarded by the server's mu
	done chan struct{} // closed when the session has ended

	cutOnce sync.Once
	wasCut  chan struct{} // closed when the session is first cut
	atCut   atomic.Pointer[func()]
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// WasCut is closed when the session is first cut. A Run that waits for something besides its
// connection waits for this as well.
func (s *Session) WasCut() <-chan struct{} { return s.wasCut }

// AtCut lets f be called whenever the session is cut, by any goroutine; at once if it was. Run
// calls AtCut once.
func (s *Session) AtCut(f func()) {
	s.atCut.Store(&f)
	select {
	case <-s.wasCut: // whoever cuts may have looked before the store
		f()
	default:
	}
}
