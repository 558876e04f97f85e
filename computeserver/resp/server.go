//env:real a listener of the machine's network and its connections

package resp

import (
	"cmp"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/pubsub"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Server is the RESP front end: it accepts connections within a bound and drains them.
type Server struct {
	core    *engine.Engine
	users   *users.Directory
	front   *count.Front
	batches *count.Front
	cursors *cursors
	ask     func(of partition.Server, cursor uint64, limit time.Duration) (key []byte, found bool, err error)
	size    *engine.Counting

	slow             slowPipelines
	topics           pubsub.Table
	monitors         monitors
	relay            func(m *pubsub.Message)
	askSubscriptions func(ask *rpcv1.ListSubscriptionsRequest) []*rpcv1.ListSubscriptionsReply

	version string
	started time.Time
	hide    func(message string) string

	lobby      *accept.Lobby // of connections that have not authenticated
	logins     *accept.Logins
	limits     atomic.Pointer[Limits]
	writeLimit time.Duration // that a client may take to take its replies, or to send a command
	maxReply   int           // bytes of one reply
	budget     budget
	failedSeen atomic.Int64  // when a wrong password was logged last
	httpSeen   atomic.Int64  // when a connection that spoke HTTP was logged last
	tls        *TLS          // nil = connections are in the clear
	handshake  time.Duration // its limit
	drainGrace time.Duration // how long a silent connection stays open while draining

	mu     sync.Mutex
	nextID uint64
	conns  map[uint64]*conn
	authed int       // of conns
	until  time.Time // draining connections are served until then
	gone   chan struct{}
	waits  bool // somebody waits for gone
}

// Config of a Server.
type Config struct {
	Engine  *engine.Engine
	Users   *users.Directory
	Front   *count.Front // where its requests are counted
	Batches *count.Front // those of the SDK and of other servers: INFO tells of them
	Version string       // of the program, for people

	// AskCursor asks another server from which key on a SCAN goes on whose cursor that one gave;
	// false if it does not know the cursor. nil = nobody is asked.
	AskCursor func(of partition.Server, cursor uint64, limit time.Duration) (key []byte, found bool, err error)

	// Relay gives a message to the other servers. It waits for a bounded time at most. nil = there
	// are none.
	Relay func(m *pubsub.Message)
	// AskSubscriptions asks the other servers, and returns what those said that answered. nil =
	// there are none.
	AskSubscriptions func(ask *rpcv1.ListSubscriptionsRequest) []*rpcv1.ListSubscriptionsReply

	// Hide takes keys out of the message of an error, for users that may not read every key.
	Hide func(message string) string

	Logins *accept.Logins // of the server's front ends
	TLS    *TLS           // nil = connections are in the clear

	Limits     Limits
	AuthLimit  time.Duration // that a client may take to authenticate
	WriteLimit time.Duration // that a client may take to take its replies, or to send a command
	MaxReply   int           // bytes of one reply
	MaxBuffers int64         // bytes of all connections' buffers together
}

// Limits are what may change while a Server runs.
type Limits struct {
	MaxConnections int           // that have authenticated
	Idle           time.Duration // that a client may be silent
	SlowAfter      time.Duration // from which on SLOWLOG has a pipeline
}

const (
	maxCursors  = 100_000
	cursorsKept = 10 * time.Minute
	drainGrace  = 20 * time.Millisecond
)

// New makes a server that has no connection yet.
func New(c Config) *Server {
	s := &Server{
		core: c.Engine, users: c.Users, front: c.Front, batches: c.Batches, version: c.Version, hide: c.Hide,
		cursors: newCursors(c.Engine.Env, c.Engine.Self, maxCursors, cursorsKept), ask: c.AskCursor, size: engine.NewCounting(c.Engine.Env), started: time.Now(),
		lobby: accept.NewLobby(maxAnonymousConns, c.AuthLimit), logins: c.Logins,
		writeLimit: c.WriteLimit, maxReply: c.MaxReply, budget: budget{limit: c.MaxBuffers, mu: c.Engine.Env.NewMutex()},
		relay: c.Relay, askSubscriptions: c.AskSubscriptions,
		tls: c.TLS, handshake: c.AuthLimit,
		drainGrace: drainGrace, conns: map[uint64]*conn{},
	}
	s.limits.Store(&c.Limits)
	c.Engine.SetCommands(s)
	return s
}

// SetLimits puts other limits in force. Connections that are open stay. Those that are silent may
// be so for the new time from now on.
func (s *Server) SetLimits(l Limits) {
	s.limits.Store(&l)
	s.Recheck()
}

// Accept serves a listener until it is closed. Its Accept fails for nothing else.
func (s *Server) Accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		s.admit(nc)
	}
}

// admit starts to serve a connection, or refuses it as Redis does.
func (s *Server) admit(nc net.Conn) {
	term, settled := s.core.Sessions.NewConnection()
	s.mu.Lock()
	refusal := ""
	switch {
	case !settled:
		refusal = "-UNAVAILABLE this server stood still and opens the index anew; connect again\r\n"
	case !s.users.Required() && s.authed >= s.limits.Load().MaxConnections:
		refusal = "-" + tooManyClients + "\r\n"
	case s.core.Draining():
		refusal = "-UNAVAILABLE this server is shutting down; connect again\r\n"
	}
	if refusal != "" {
		s.mu.Unlock()
		s.core.Count.Refused.Add(1)
		if s.tls == nil { // else nobody has shaken hands, and this goroutine has no time for it
			// a courtesy: the connection ends in any case
			_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = nc.Write([]byte(refusal))
		}
		_ = nc.Close()
		return
	}
	if s.tls != nil {
		nc = &secured{Conn: nc, how: s.tls, limit: s.handshake}
	}
	s.nextID++
	c := &conn{s: s, nc: nc, from: nc.RemoteAddr(), id: s.nextID, term: term, account: account{of: &s.budget}, gone: make(chan struct{})}
	c.enterLobby()
	c.who.start(nc)
	s.conns[c.id] = c
	s.mu.Unlock()
	s.core.Count.Connections.Add(1)
	go c.serve()
}

func (s *Server) forget(c *conn) {
	s.core.Count.Connections.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(c)
	if s.waits && len(s.conns) == 0 {
		s.waits = false
		close(s.gone)
	}
}

// Recheck wakes all connections that wait for a command: those whose password is not right any more
// end, and the others wait anew. It is called after the users or the limits changed.
func (s *Server) Recheck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.place == nil { // others have shown no password, and may be shaking hands
			_ = c.nc.SetReadDeadline(time.Now())
		}
	}
}

func (s *Server) drainUntil() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until
}

// PastDrain reports whether draining is so far that commands are refused.
func (s *Server) PastDrain() bool { return time.Now().After(s.drainUntil()) }

// BeginDrain makes the server refuse new connections, serve the others for most of limit, and
// refuse their commands in the rest.
func (s *Server) BeginDrain(limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The last fifth is for refusals to be read.
	s.until = time.Now().Add(limit * 4 / 5)
	s.gone = make(chan struct{})
	s.core.Drain()
}

// Drain lets connections finish what they sent and closes them, by force after limit. BeginDrain
// came before. It returns how many had to be closed by force.
func (s *Server) Drain(limit time.Duration) (forced int) {
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
	s.core.CutShort()
	s.mu.Lock()
	forced = len(s.conns)
	for _, c := range s.conns {
		c.cut()
	}
	s.mu.Unlock()
	<-s.gone // every request keeps to its limit
	return forced
}

// Cut closes all connections; what they wait for ends within its limit.
func (s *Server) Cut() {
	for _, c := range s.connections() {
		c.cut()
	}
}

// connections are those of this moment, in the order in which they came.
func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	return all
}
