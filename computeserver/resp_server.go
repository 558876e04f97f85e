//env:real a listener of the machine's network and its connections

package computeserver

import (
	"cmp"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// respServer is the RESP front end: it accepts connections within a bound and drains them.
type respServer struct {
	core    *core
	auth    *passwords
	metrics *metrics
	cursors *cursors
	size    counting
	started time.Time

	maxConns   int
	idle       time.Duration // that a client may be silent
	writeLimit time.Duration // that a client may take to take its replies
	maxReply   int           // bytes of one reply
	budget     budget
	httpSeen   atomic.Int64  // when a connection that spoke HTTP was logged last
	drainGrace time.Duration // how long a silent connection stays open while draining

	mu     sync.Mutex
	nextID uint64
	conns  map[uint64]*respConn
	until  time.Time // draining connections are served until then
	gone   chan struct{}
	waits  bool // somebody waits for gone
}

// accept serves a listener until it is closed. Its Accept fails for nothing else.
func (s *respServer) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		s.admit(nc)
	}
}

// admit starts to serve a connection, or refuses it as Redis does.
func (s *respServer) admit(nc net.Conn) {
	term, settled := s.core.eng.newConnection()
	s.mu.Lock()
	refusal := ""
	switch {
	case !settled:
		refusal = "-UNAVAILABLE this server stood still and opens the index anew; connect again\r\n"
	case len(s.conns) >= s.maxConns:
		refusal = "-ERR max number of clients reached\r\n"
	case s.core.draining.Load():
		refusal = "-UNAVAILABLE this server is shutting down; connect again\r\n"
	}
	if refusal != "" {
		s.mu.Unlock()
		s.core.count.refused.Add(1)
		// a courtesy: the connection ends in any case
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = nc.Write([]byte(refusal))
		_ = nc.Close()
		return
	}
	s.nextID++
	c := &respConn{s: s, nc: nc, id: s.nextID, in: make([]byte, 0, respBuffer), authed: !s.auth.required(), term: term, account: account{of: &s.budget}}
	c.who.start(nc)
	s.conns[c.id] = c
	s.mu.Unlock()
	s.core.count.connections.Add(1)
	go c.serve()
}

func (s *respServer) forget(c *respConn) {
	s.core.count.connections.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.id)
	if s.waits && len(s.conns) == 0 {
		s.waits = false
		close(s.gone)
	}
}

func (s *respServer) drainUntil() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until
}

// pastDrain says whether draining is so far that commands are refused.
func (s *respServer) pastDrain() bool { return time.Now().After(s.drainUntil()) }

// beginDrain makes the server refuse new connections, serve the others for most of limit, and
// refuse their commands in the rest.
func (s *respServer) beginDrain(limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The last fifth is for refusals to be read.
	s.until = time.Now().Add(limit * 4 / 5)
	s.gone = make(chan struct{})
	s.core.draining.Store(true)
}

// drain lets connections finish what they sent and closes them, by force after limit. beginDrain
// came before. It returns how many had to be closed by force.
func (s *respServer) drain(limit time.Duration) (forced int) {
	s.mu.Lock()
	if s.waits = len(s.conns) > 0; !s.waits {
		close(s.gone)
	}
	for _, c := range s.conns {
		_ = c.nc.SetReadDeadline(time.Now()) // wakes those that wait for a command
	}
	s.mu.Unlock()
	force := time.NewTimer(limit)
	defer force.Stop()
	select {
	case <-s.gone:
		return 0
	case <-force.C:
	}
	s.core.cut.Store(true)
	s.mu.Lock()
	forced = len(s.conns)
	for _, c := range s.conns {
		_ = c.nc.Close() // ends its reads and writes
	}
	s.mu.Unlock()
	<-s.gone // every request keeps to its limit
	return forced
}

// cut closes all connections; what they wait for ends within its limit.
func (s *respServer) cut() {
	for _, c := range s.connections() {
		_ = c.nc.Close() // ends its reads and writes
	}
}

// connections are those of this moment, in the order in which they came.
func (s *respServer) connections() []*respConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*respConn, 0, len(s.conns))
	for _, c := range s.conns {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *respConn) int { return cmp.Compare(a.id, b.id) })
	return all
}
