//env:real gRPC serves each connection on goroutines of its own

package admission

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/accept/h2"
	"github.com/dmindex/dmindex/pkg/identity"
)

// Bounds of what the connections of the control port hold. The operator and each index have their
// own share: connections of one index keep neither the operator nor another index out. An idle
// connection takes 32 KiB and a call that waits 11 KiB (measured, with TLS).
const (
	maxHandshakes  = 256  // connections that have not shown a certificate yet
	maxConnections = 1024 // of one identity
	// connections of all identities but the operator: as many as the fabric admits
	maxAll     = 1024
	maxCalls   = 2048     // of one identity at a time
	maxRequest = 32 << 10 // bytes of a request that is not a map
	maxOwed    = 8 << 20  // bytes of replies that one identity has not taken
	// bytes of replies that all identities but the operator have not taken
	maxOwedAll = 16 << 20
	// bytes of a request that is not charged while its call goes on
	smallRequest = 512
	// of one identity: four times the bytes of larger requests whose calls go on, but for maps
	maxHeld    = 256 << 10
	maxHeaders = 2 << 10          // bytes of a request's headers, and 32 for each
	maxMessage = 2 << 10          // bytes of an error's message
	replyLimit = 30 * time.Second // a reply that is not taken for so long ends its connection
)

// everybody is who calls a server without TLS.
var everybody = identity.Identity{Role: identity.RoleOperator}

// Callers are the credentials of the control port. They count its connections, before their
// handshakes and after. Safe for concurrent use.
type Callers struct {
	credentials.TransportCredentials
	everybody *identity.Identity // without TLS
	log       *slog.Logger
	lines     Lines
	// of connections that have shown no certificate; gRPC bounds their time
	lobby    *accept.Lobby
	limit    time.Duration       // replyLimit
	room     *semaphore.Weighted // maxOwedAll
	building *semaphore.Weighted // one large reply is built at a time, but for the operator's

	mu struct {
		sync.Mutex
		of       map[identity.Identity]*party
		open     int    // connections of all identities but the operator
		admitted uint64 // number of the last connection that was admitted
		began    uint64 // number of the last stream that began
		requests int    // bytes of requests under way, but for the operator's
		streams  int    // that are open, but for the operator's
	}
}

// party is what the connections of one identity hold.
type party struct {
	operator bool
	room     *semaphore.Weighted // maxOwed
	// one large call at a time is built, or waits for its turn or for room
	building *semaphore.Weighted
	held     *semaphore.Weighted // maxHeld
	calls    *semaphore.Weighted // maxCalls

	// Guarded by callers.mu.
	connections map[*connection]struct{}
	requests    int // bytes of requests under way
	streams     int // that are open
}

// NewCallers asks callers for certificates; files = nil serves everybody without TLS. A connection
// that leaves a reply for limit is closed; 0 = replyLimit.
func NewCallers(files *identity.Files, limit time.Duration, log *slog.Logger) *Callers {
	if limit == 0 {
		limit = replyLimit
	}
	c := &Callers{TransportCredentials: insecure.NewCredentials(), everybody: &everybody, log: log, limit: limit, lobby: accept.NewLobby(maxHandshakes, 0),
		room: semaphore.NewWeighted(maxOwedAll), building: semaphore.NewWeighted(1)}
	if files != nil {
		c.TransportCredentials, c.everybody = files.ServerCredentials(), nil
	}
	c.mu.of = map[identity.Identity]*party{}
	return c
}

// callerInfo is what interceptors learn of a connection.
type callerInfo struct {
	credentials.AuthInfo
	connection *connection
}

// Unwrap is what the handshake found.
func (i callerInfo) Unwrap() credentials.AuthInfo { return i.AuthInfo }

// ServerHandshake implements credentials.TransportCredentials. gRPC bounds its time.
func (c *Callers) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	place := c.lobby.Enter(raw.RemoteAddr(), func() { raw.Close() }) // its handshake ends by that
	below := &accept.Rationed{Conn: raw, Left: accept.MaxHandshake}
	conn, info, err := c.TransportCredentials.ServerHandshake(below)
	if !place.Leave() && err == nil { // the handshake ended, and lost its place then
		conn.Close()
		err = errPlace
	}
	if err != nil {
		return nil, nil, err
	}
	admitted, err := c.admit(conn, below, info)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return admitted, callerInfo{info, admitted}, nil
}

// errPlace is returned when a connection gave up its place to a newer one.
var errPlace = fmt.Errorf("%d other connections are in their handshakes", maxHandshakes)

// admit counts a connection of an identity until it is closed.
func (c *Callers) admit(conn net.Conn, raw *accept.Rationed, info credentials.AuthInfo) (*connection, error) {
	var who identity.Identity
	var err error
	if c.everybody != nil {
		who = *c.everybody
	} else if who, err = identity.FromAuthInfo(info); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.mu.of[who]
	if p == nil {
		p = &party{
			operator: who.Role == identity.RoleOperator,
			room:     semaphore.NewWeighted(maxOwed), building: semaphore.NewWeighted(1), calls: semaphore.NewWeighted(maxCalls),
			held:        semaphore.NewWeighted(maxHeld),
			connections: map[*connection]struct{}{},
		}
	}
	if err := c.makePlaceLocked(p); err != nil {
		c.warn("a control connection is refused: its caller has too many open; close some", "caller", who.String(), "open", len(p.connections),
			"address", conn.RemoteAddr().String())
		return nil, fmt.Errorf("%v: %w", who, err)
	}
	c.mu.admitted++
	admitted := &connection{
		Conn: conn, raw: raw, callers: c, who: who, party: p, number: c.mu.admitted, owed: map[*reply]struct{}{}, streams: map[uint32]stream{},
		in: h2.FromClient(),
	}
	c.mu.of[who] = p
	p.connections[admitted] = struct{}{}
	if !p.operator {
		c.mu.open++
	}
	return admitted, nil
}

// makePlaceLocked makes place for one more connection of p. Where all places are taken, the
// identity that has most gives up its newest connection: so an identity that has few keeps them,
// and gets more, whatever others open. The difference of two keeps two identities from taking a
// place from each other in turn.
func (c *Callers) makePlaceLocked(p *party) error {
	open := len(p.connections)
	if open >= maxConnections {
		return fmt.Errorf("it has %d control connections open, at most %d are possible", open, maxConnections)
	}
	if p.operator || c.mu.open < maxAll {
		return nil
	}
	most := p
	if other := c.mostLocked(func(p *party) int { return len(p.connections) }); other != nil && len(other.connections) > len(p.connections) {
		most = other
	}
	if len(most.connections) < open+2 {
		return fmt.Errorf("it has %d control connections open, no other index has many more, and all together have %d, which is the most", open, c.mu.open)
	}
	var newest *connection
	for conn := range most.connections { //env:real the greatest of all is the same in any order
		if newest == nil || conn.number > newest.number {
			newest = conn
		}
	}
	c.warn("a control connection is closed: all places are taken, and its caller has most", "caller", newest.who.String(),
		"open", len(most.connections), "address", newest.RemoteAddr().String())
	c.leaveLocked(newest)
	newest.raw.Close() // gRPC closes the rest of it
	return nil
}

// mostLocked is the identity with most of what of counts; of several, any. The operator is none of
// them. nil: there is no other.
func (c *Callers) mostLocked(of func(*party) int) (most *party) {
	for _, p := range c.mu.of { //env:real one of the largest, in any order
		if !p.operator && (most == nil || of(p) > of(most)) {
			most = p
		}
	}
	return most
}

// leave counts a closed connection no more.
func (c *Callers) leave(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(conn)
}

func (c *Callers) leaveLocked(conn *connection) {
	conn.endStreamsLocked()
	p := conn.party
	if _, counted := p.connections[conn]; !counted { // it gave its place up before
		return
	}
	if !p.operator {
		c.mu.open--
	}
	delete(p.connections, conn)
	c.forgetLocked(conn.who, p)
}

// forgetLocked forgets an identity that has no connections and no calls under way. One that comes
// again while calls of its former connections go on has no more of them than any other.
func (c *Callers) forgetLocked(who identity.Identity, p *party) {
	if len(p.connections) > 0 || c.mu.of[who] != p || !p.calls.TryAcquire(maxCalls) {
		return
	}
	p.calls.Release(maxCalls)
	delete(c.mu.of, who)
}

// connection is a control connection after its handshake.
type connection struct {
	net.Conn
	callers *Callers
	who     identity.Identity
	party   *party
	raw     *accept.Rationed // below TLS
	number  uint64           // in the order in which they were admitted

	in, out h2.Frames // of Read and of Write, which gRPC calls from one goroutine each

	// Guarded by callers.mu.
	streams map[uint32]stream // that are open; nil once they count no more
	writing bool              // a Write is under way
	reset   []uint32          // streams that count until it returns
	unread  int               // bytes of frames that came meanwhile and are to be answered

	mu     sync.Mutex
	closed bool
	owed   map[*reply]struct{}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.end()
	return c.Conn.Close()
}

func (c *connection) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// end counts the connection no more, nor what it owed: gRPC does not free every reply of a
// connection that ends. It reports whether this was the first call.
func (c *connection) end() bool {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	for r := range c.owed { //env:real all of them, in any order
		c.settleLocked(r)
	}
	c.mu.Unlock()
	if first {
		c.callers.leave(c)
	}
	return first
}
