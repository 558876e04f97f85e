// Package serve is what the servers of shm and tcp share: accepting within limits, the handshake,
// the table of sessions, and cutting them.
package serve

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

// Provider is what a provider adds. All fields but Begin, Quiet and Process are required.
type Provider struct {
	Capabilities verbs.Capabilities
	MaxQPs       uint32
	Regions      []verbs.Region
	// Records says that the provider records all changes in ServerOptions.Journal.
	Records bool

	// Begin makes of a connection what the handshake and all that follows go over, TLS for example,
	// within the deadline that c has. Closing c ends it, whatever it waits for. state is of TLS;
	// nil = in the clear. A nil Begin takes connections as they are.
	Begin func(c net.Conn) (over net.Conn, state *tls.ConnectionState, err error)
	// Answer sends the answer that opens a session, and what belongs to it.
	Answer func(s *Session, answer []byte) error
	// Run serves an admitted session until its connection ends or it is cut. When it returns,
	// nothing of the session takes effect any more, as far as the provider can tell. The connection
	// is closed by the caller.
	Run func(s *Session)
	// Cut makes Run return soon. It may be called several times, and before Run.
	Cut func(s *Session)
	// Quiet reports whether nothing can take effect any more of all sessions that peer ever had,
	// those with earlier processes of the server included, although they may have ended for the
	// server before. nil = what has ended, with its server's process at the latest, is quiet.
	Quiet func(peer verbs.Peer) (bool, error)
	// Process names the process at the other end, for messages; nil = that cannot be known.
	Process func(c net.Conn) string
}

// Server is a verbs.Server. Safe for concurrent use.
type Server struct {
	o     verbs.ServerOptions
	p     Provider
	lobby *accept.Lobby // with MaxConns places; start bounds the time of those who wait

	// held from Admit until the session is in the table, so that Disconnect misses none
	admitting sync.Mutex

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	waiting   map[net.Conn]*accept.Place // connections without a session
	// at most MaxConns, besides those that are left
	sessions map[uint64]*Session
	left     int // sessions whose place a later one took, and that have not ended
	// with Quiet: who had a session and was not seen quiet since, with its process
	lasting map[verbs.Peer]string
	running sync.WaitGroup // a member for each connection
}

// New makes a server of provider p.
func New(o verbs.ServerOptions, p Provider) (*Server, error) {
	if o.Admission == nil {
		return nil, errors.New("server options: Admission is required")
	}
	if o.Journal != nil && !p.Records {
		return nil, fmt.Errorf("server options: a Journal, and this provider does not execute lists itself: %w", verbs.ErrUnsupported)
	}
	o = o.WithDefaults()
	return &Server{
		o: o, p: p,
		// start bounds the time of its connections
		lobby:     accept.NewLobby(o.MaxConns, 0),
		listeners: map[net.Listener]struct{}{},
		waiting:   map[net.Conn]*accept.Place{},
		sessions:  map[uint64]*Session{},
		lasting:   map[verbs.Peer]string{},
	}, nil
}

// Serve implements verbs.Server. It closes l.
func (s *Server) Serve(l net.Listener) error {
	l = accept.Patiently(l, nil)
	defer l.Close()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			closed := s.closed
			s.mu.Unlock()
			if closed {
				return nil
			}
			return fmt.Errorf("accept on %v: %w", l.Addr(), err)
		}
		s.start(c)
	}
}

// start gives c a goroutine. A connection without a session takes no place of one with a session:
// anybody who reaches the port can open it. There are as many places for connections that wait for
// their admission.
func (s *Server) start(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return
	}
	s.waiting[c] = s.lobby.Enter(c.RemoteAddr(), func() { c.Close() }) // its goroutine ends by that
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		defer func() {
			c.Close()
			s.mu.Lock()
			s.leaveLocked(c)
			s.mu.Unlock()
		}()
		c.SetDeadline(time.Now().Add(s.o.HandshakeLimit))
		s.handle(c)
	}()
}

// leaveLocked gives up the place of a connection that waited for its admission.
func (s *Server) leaveLocked(c net.Conn) {
	if place := s.waiting[c]; place != nil {
		place.Leave()
		delete(s.waiting, c)
	}
}

// decline answers a client that is not let in. Whoever refuses cannot care whether it is heard.
func decline(c net.Conn, refusal *hello.Answer) {
	c.Write(refusal.Append(nil))
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		// A close with bytes unread may overtake the answer as a reset, so read what is left of the
		// hello, until the client closes or the limit of the handshake.
		w.CloseWrite()
		io.Copy(io.Discard, io.LimitReader(c, 64<<10))
	}
}

func (s *Server) handle(raw net.Conn) {
	c, state := raw, (*tls.ConnectionState)(nil)
	if s.p.Begin != nil {
		var err error
		if c, state, err = s.p.Begin(raw); err != nil {
			return // TLS has told the client why
		}
	}
	h, err := hello.ReadHello(c)
	var session *Session
	if err == nil {
		session, err = s.admit(raw, c, state, h)
	}
	if err != nil {
		refusal := hello.Answer{Code: hello.CodeOf(err)}
		if errors.Is(err, verbs.ErrLostMemory) {
			refusal.Incarnation = s.o.Incarnation
		}
		decline(c, &refusal)
		return
	}
	defer s.end(session)
	defer s.Recover(session)
	answer := hello.Answer{
		Incarnation: s.o.Incarnation, Session: session.id, MaxQPs: s.p.MaxQPs,
		Capabilities: s.p.Capabilities, Regions: s.p.Regions,
	}
	if err := s.p.Answer(session, answer.Append(nil)); err != nil {
		return
	}
	c.SetDeadline(time.Time{})
	s.p.Run(session)
}

// Recover is deferred by a goroutine that serves a session. A panic ends the session's connection
// and no other one: memory and requests are what any client made of them, so whatever a client can
// provoke costs its own connection only.
func (s *Server) Recover(session *Session) {
	if s.o.Panicked == nil {
		return
	}
	if p := recover(); p != nil {
		session.Conn.Close()
		s.o.Panicked(session.Peer, p, debug.Stack())
	}
}

// admit lets a client in: token first, so that a client without one learns nothing; then the
// incarnation; then the sessions that it names end, so that nothing of them takes effect once the
// client has its answer (G3).
//
// They end whichever peer had them. One device of a client process connects as several peers, and
// forgets the sessions that it named when it has its answer: a session that stayed because it was
// another peer's would never be named again. A session's id is a random number that its own client
// alone was told, so a client can end no session but those of its own process.
func (s *Server) admit(raw, c net.Conn, state *tls.ConnectionState, h *hello.Hello) (*Session, error) {
	s.admitting.Lock()
	s.mu.Lock()
	_, broken := s.namedLocked(h)
	full := len(s.sessions)-s.left >= s.o.MaxConns && broken == nil
	s.mu.Unlock()
	if full { // before the token is used up: with it the client may try again
		s.admitting.Unlock()
		return nil, verbs.ErrTooMany
	}
	peer, err := s.admission(h.Token, state)
	if err == nil && h.Incarnation != 0 && h.Incarnation != s.o.Incarnation {
		err = verbs.ErrLostMemory
	}
	if err != nil {
		s.admitting.Unlock()
		return nil, err
	}
	session := &Session{Conn: c, Peer: peer, done: make(chan struct{}), wasCut: make(chan struct{})}
	s.mu.Lock()
	earlier, broken := s.namedLocked(h)
	if broken == nil && s.ofIndexLocked(peer.Index) >= s.share() {
		s.mu.Unlock()
		s.admitting.Unlock()
		return nil, verbs.ErrTooMany
	}
	if broken != nil {
		broken.left = true
		s.left++
	}
	for session.id == 0 || s.sessions[session.id] != nil {
		session.id = newID()
	}
	s.sessions[session.id] = session
	s.leaveLocked(raw)
	if s.p.Quiet != nil {
		s.lasting[peer] = s.process(raw)
	}
	closed := s.closed
	s.mu.Unlock()
	s.admitting.Unlock()
	if closed {
		s.end(session)
		return nil, net.ErrClosed
	}
	s.cut(earlier)
	return session, nil
}

// share is how many connections one index may have: half of all, so that none keeps others out,
// where that is many.
func (s *Server) share() int { return max(s.o.MaxConns/2, leastShare) }

const leastShare = 16

// ofIndexLocked is how many of the connections are an index's, but for those whose place is another
// one's.
func (s *Server) ofIndexLocked(index string) (n int) {
	for _, e := range s.sessions {
		if e.Peer.Index == index && !e.left {
			n++
		}
	}
	return n
}

// namedLocked are the sessions that a hello names, and one of them whose place its client can have:
// a client whose connection broke needs no other one, though the server may not know yet that it
// did. Each place is given once. Until broken has ended, its successor is not served, so no more
// than MaxConns are served at once; and has no id to be named by, so there are no more than twice
// as many sessions.
func (s *Server) namedLocked(h *hello.Hello) (earlier []*Session, broken *Session) {
	for _, id := range h.Earlier {
		if e := s.sessions[id]; e != nil && !slices.Contains(earlier, e) {
			earlier = append(earlier, e)
			if broken == nil && !e.left {
				broken = e
			}
		}
	}
	return earlier, broken
}

// newID is a number that nobody can guess.
func newID() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

func (s *Server) end(session *Session) {
	s.mu.Lock()
	delete(s.sessions, session.id)
	if session.left {
		s.left--
	}
	s.mu.Unlock()
	s.settle(session.Peer)
	close(session.done)
}

// beginCut makes the session end soon. It may be called several times.
func (s *Server) beginCut(e *Session) {
	e.cutOnce.Do(func() { close(e.wasCut) })
	if f := e.atCut.Load(); f != nil {
		(*f)()
	}
	s.p.Cut(e)
}

// cut ends sessions and waits for them.
func (s *Server) cut(list []*Session) {
	for _, e := range list {
		s.beginCut(e)
	}
	for _, e := range list {
		<-e.done
	}
}

// matching are the sessions of those who match. Nobody is between admission and the table
// meanwhile.
func (s *Server) matching(match func(verbs.Peer) bool) (list []*Session) {
	s.admitting.Lock()
	defer s.admitting.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.sessions {
		if match(e.Peer) {
			list = append(list, e)
		}
	}
	return list
}

// Disconnect implements verbs.Server.
func (s *Server) Disconnect(match func(verbs.Peer) bool) int {
	list := s.matching(match)
	s.cut(list)
	return len(list)
}

// Close implements verbs.Server.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for l := range s.listeners {
		l.Close()
	}
	var list []*Session
	for _, e := range s.sessions {
		list = append(list, e)
	}
	for c := range s.waiting {
		c.Close()
	}
	s.mu.Unlock()
	s.cut(list)
	s.running.Wait()
	return nil
}
