//env:real gRPC serves each connection on goroutines of its own

package computeserver

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/accept/h2"
	"github.com/dmindex/dmindex/pkg/identity"
)

// A program shows the password with each call, so gRPC reads from anybody who finishes a handshake.
// Until a connection has authenticated, by a certificate or by the headers of its first call, it is
// a stranger:
//
//   - It has a place in the lobby, for Config.AuthLimit from when it was accepted.
//   - Its calls end at their headers (tap), before any of a request is read or decoded, and before
//     they have a stream or a goroutine.
//   - It sends a bounded number of bytes: of a handshake, of frames, and of what follows headers
//     that were refused. gRPC keeps up to 10,000 answers to frames for a client that does not read,
//     and of each what it takes: settings, for example, as many as a frame has room for.
//   - What it sends is read in small steps, so that headers are looked at before more is read. A
//     client with credentials is no stranger any more when the rest of what it sent is counted.
//
// A connection of a program then counts among Config.MaxConnections. Those with certificates, of
// the operator and of other servers, always have a place.

// Bounds of connections that have not authenticated.
const (
	maxStrangers      = 512      // connections
	strangerStep      = 512      // bytes of one Read
	maxStrangerFrames = 32 << 10 // bytes of frames that are not of data, and frameCost for each
	frameCost         = 256
	maxStrangerData   = 256 << 10 // bytes of data, which nobody keeps
)

// gate lets callers of rpc.Compute in. Safe for concurrent use.
type gate struct {
	who    *callers
	lobby  *accept.Lobby
	limit  time.Duration // Config.AuthLimit
	logins *accept.Logins
	most   atomic.Int64 // connections of programs; settings change it
	open   atomic.Int64 // that have authenticated
}

func newGate(cfg *Config, directory *users.Directory, logins *accept.Logins) *gate {
	g := &gate{
		who:   &callers{index: cfg.Index.Identity, users: directory, files: cfg.TLS},
		lobby: accept.NewLobby(maxStrangers, cfg.AuthLimit), limit: cfg.AuthLimit, logins: logins,
	}
	g.most.Store(int64(cfg.limitsNow().MaxConnections))
	return g
}

// strangers are the connections that have not authenticated: how many there are, and how many were
// ended, ever, for that.
func (g *gate) strangers() (open int, ended uint64) { return g.lobby.Open(), g.lobby.Ended() }

// isOpen reports whether there is nothing by which a caller could authenticate.
func (g *gate) isOpen() bool { return g.who.files == nil && !g.who.users.Required() }

// rpcConn is a connection after its handshake. Its Read belongs to one goroutine.
type rpcConn struct {
	net.Conn
	raw *termConn

	in     h2.Frames
	out    h2.Frames // of Write
	frames int       // bytes of frames that are not of data
	data   int
}

// gateCredentials let connections through the handshake.
type gateCredentials struct {
	credentials.TransportCredentials
	gate *gate
}

func (g *gate) credentials(files *identity.Files) credentials.TransportCredentials {
	if files == nil {
		return gateCredentials{insecure.NewCredentials(), g}
	}
	return gateCredentials{rpcCredentials(files), g}
}

// ServerHandshake implements credentials.TransportCredentials. gRPC bounds its time, and the lobby.
func (c gateCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	below, ok := raw.(*termConn)
	if !ok {
		return nil, nil, errors.New("the connection did not come through the server's listener: this is a fault of the program, please report it")
	}
	below.ration.Left = accept.MaxHandshake
	conn, info, err := c.TransportCredentials.ServerHandshake(below)
	if err != nil {
		return nil, nil, err
	}
	if c.gate.who.certified(info) != nil && !below.admit(nil) {
		_ = conn.Close() // it lost its place already
		return nil, nil, errPlace
	}
	if t, ok := info.(credentials.TLSInfo); ok && len(t.State.PeerCertificates) > 0 {
		below.certificate = newCertificate(c.gate.who.files, t.State)
	}
	return &rpcConn{Conn: conn, raw: below, in: h2.FromClient()}, info, nil
}

// errPlace is returned when a connection gave up its place in the lobby to another one.
var errPlace = errors.New("the connection took too long to authenticate")

// Read implements net.Conn.
func (c *rpcConn) Read(b []byte) (int, error) {
	c.raw.ration.Left = accept.MaxAhead
	if c.raw.admitted.Load() {
		return c.Conn.Read(b)
	}
	n, err := c.Conn.Read(b[:min(len(b), strangerStep)])
	if n > 0 {
		if refused := c.received(b[:n]); refused != nil {
			return 0, refused
		}
	}
	return n, err
}

// errStranger is returned when a connection that has not authenticated sends too much.
var errStranger = errors.New("the connection sends too much and has not authenticated: show the index's password with the first call, or a certificate")

// received counts what a stranger sent. Errors: errStranger.
func (c *rpcConn) received(b []byte) error {
	for h, rest, ok := c.in.Next(b); ok; h, rest, ok = c.in.Next(rest) {
		if h.Type == http2.FrameData {
			c.data += frameCost + int(h.Length)
		} else {
			c.frames += frameCost + int(h.Length)
		}
		if c.data > maxStrangerData || c.frames > maxStrangerFrames {
			return errStranger
		}
	}
	return nil
}

// tap identifies the caller of a call by its headers. It runs on the goroutine that reads the
// connection.
func (g *gate) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil, status.Error(codes.Internal, "the call has no peer: this is a fault of the program, please report it")
	}
	conn, _ := p.Addr.(termAddr)
	c, err := g.identify(p, conn.conn, info.Header["authorization"])
	if err != nil {
		return nil, err
	}
	if info.FullMethodName == rpcv1.Compute_Publish_FullMethodName && !c.isServer() {
		return nil, errOfServers // before the request is read, which may be large
	}
	return c.newContext(ctx), nil
}

// errWrong is what a call is told that comes after too many wrong passwords, if it is told
// anything.
var errWrong = status.Errorf(codes.Unavailable, "the connection showed %d wrong passwords and is closed; open another one, with the right one", accept.MostWrong)

// identify says who calls, and admits the connection.
func (g *gate) identify(p *peer.Peer, conn *termConn, authorization []string) (*caller, error) {
	if c := g.who.certified(p.AuthInfo); c != nil {
		if conn != nil {
			c.certificate = conn.certificate
		}
		if err := c.certificate.refused(); err != nil {
			return nil, status.Errorf(codes.Unauthenticated, "the certificate of this connection counts no more (%v); connect again with the present one", err)
		}
		return c, nil
	}
	if conn != nil && conn.wrong >= accept.MostWrong {
		_ = conn.Close() // not with the last one, so that this was answered
		return nil, errWrong
	}
	stranger := conn != nil && !conn.admitted.Load()
	if stranger && !conn.tried.Swap(true) {
		// Nobody else has calls on this connection. Its next calls do not wait: they are few, and
		// those of a program whose password has changed would be answered too late.
		conn.pause(g.logins.Wait(p.Addr))
	}
	c, err := g.who.program(authorization)
	if err != nil {
		g.logins.Failed(p.Addr)
		if conn != nil {
			conn.wrong++
		}
		return nil, err
	}
	if stranger {
		if most := c.user().Places(int(g.most.Load())); g.open.Add(1) > int64(most) {
			g.open.Add(-1)
			return nil, status.Errorf(codes.ResourceExhausted, "programs have %d connections open, and no more are possible for the user %s; close some, or add compute servers", most, c.user().Name())
		}
		if !conn.admit(func() { g.open.Add(-1) }) {
			g.open.Add(-1)
			return nil, status.FromContextError(context.Canceled).Err() // it is closed already
		}
	}
	return c, nil
}

// TagRPC implements stats.Handler.
func (g *gate) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (g *gate) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn implements stats.Handler: it makes the context of a connection one that ends. gRPC makes
// a timer for a call that has a limit before it asks tap, and does not stop it when tap refuses.
// The timer would last for as long as the caller says, which may be for ever.
func (g *gate) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, endOfConn{}, cancel)
}

type endOfConn struct{}

// HandleConn implements stats.Handler.
func (g *gate) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ended := s.(*stats.ConnEnd); !ended {
		return
	}
	if cancel, ok := ctx.Value(endOfConn{}).(context.CancelFunc); ok {
		cancel()
	}
}

// admission is what a connection knows of its way in.
type admission struct {
	admitted atomic.Bool
	tried    atomic.Bool   // it has shown a password, or none
	wrong    int           // passwords that it showed; of the goroutine that reads the connection
	gone     chan struct{} // closed with the connection

	mu     sync.Mutex
	place  *accept.Place // nil once it is admitted
	leave  func()        // when it is closed; nil = nothing is to be done
	closed bool
}

// enter gives a connection a place in the lobby.
func (a *admission) enter(l *accept.Lobby, from net.Addr, end func()) {
	a.mu.Lock() // end waits for the place
	defer a.mu.Unlock()
	a.place = l.Enter(from, end)
}

// admit gives up the place in the lobby, and reports whether the connection still had it; leave is
// called when the connection is closed. Calls after the first do nothing.
func (a *admission) admit(leave func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.place != nil && !a.place.Leave() {
		return false
	}
	a.place, a.leave = nil, leave
	a.admitted.Store(true)
	return true
}

// pause waits, or until the connection is closed.
func (a *admission) pause(d time.Duration) {
	if d == 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-a.gone:
	case <-t.C:
	}
}

// end is the close of the connection.
func (a *admission) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.closed = true
	close(a.gone)
	if a.place != nil {
		a.place.Leave()
	}
	if a.leave != nil {
		a.leave()
	}
}
