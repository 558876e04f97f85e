//env:real listeners, shutdown and their order

// Package computeserver is the compute server: it holds the sessions of one index, answers RESP (so
// that any Redis client works) and gRPC (for the SDK and for other compute servers), and sends
// requests for keys of other servers to them.
//
// The core (ownership, engine, execution, scans) stands on pkg/env and knows no network; the front
// ends are shells around it.
package computeserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/accept"
)

// Connections between servers and from programs: a dead one is noticed soon, a failed attempt is
// repeated soon.
var (
	quickReconnect = grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: 2 * time.Second,
	}
	clientKeepalive = keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}
	serverKeepalive = keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}
	keepalivePolicy = keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}
)

// Server is a compute server. Make it with New.
type Server struct {
	cfg   Config
	core  *core
	peers *grpcPeers

	resp  *respServer
	calls *rpcServer
	rpc   *grpc.Server
	http  *http.Server

	respListener, rpcListener, httpListener net.Listener

	callers *termListener // on rpcListener

	stopOnce sync.Once
	drained  chan struct{} // closed when drainAll is over
	left     int           // RESP connections that drainAll closed by force
}

// Addresses are where a server listens; empty for a front end that is off.
type Addresses struct{ RESP, RPC, Metrics string }

// New makes a server and binds its addresses. Nothing is answered before Run.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	auth, err := openPasswords(cfg.PasswordFile, cfg.AllowNoPassword)
	if err != nil {
		return nil, err
	}
	e := cfg.Env
	c := &core{env: e, index: cfg.Index, self: cfg.ID, version: cfg.Version, paths: cfg.Paths, limit: cfg.Limit, log: cfg.Logger, count: &counters{}, stop: e.NewEvent()}
	c.own = newOwnership(e, cfg.ID, cfg.SharesAll && cfg.Index.Routing == config.RoutingAny)
	c.eng = newEngine(e, cfg.Open, cfg.Limit, cfg.MaxSessions, cfg.MaxWaiting, cfg.Logger)
	if !cfg.SharesAll {
		c.holdRanges()
	}
	peers := &grpcPeers{files: cfg.TLS, auth: auth, limit: cfg.Limit, byID: map[uint32]*peerLink{}}
	c.peers = peers
	m := newMetrics(c)
	s := &Server{cfg: cfg, core: c, peers: peers, drained: make(chan struct{})}
	s.resp = &respServer{
		core: c, auth: auth, metrics: m, cursors: newCursors(e, maxCursors, cursorsKept), size: counting{mu: e.NewMutex()}, started: time.Now(),
		maxConns: cfg.MaxConnections, idle: cfg.Idle, writeLimit: cfg.WriteLimit, maxReply: cfg.MaxReply, budget: budget{limit: cfg.MaxBuffers},
		drainGrace: drainGrace, conns: map[uint64]*respConn{},
	}
	s.calls = &rpcServer{core: c, metrics: m, resp: s.resp, drain: s.drainFor, cut: make(chan struct{})}
	s.rpc = newRPC(cfg, s.calls, auth)
	s.http = newHTTP(c, m, cfg.Pprof)
	for _, l := range []struct {
		address string
		to      *net.Listener
	}{{cfg.ListenRESP, &s.respListener}, {cfg.ListenRPC, &s.rpcListener}, {cfg.ListenMetrics, &s.httpListener}} {
		if l.address == "" {
			continue
		}
		listener, err := net.Listen("tcp", l.address)
		if err != nil {
			s.closeListeners()
			return nil, fmt.Errorf("compute server: %w", err)
		}
		*l.to = accept.Patiently(listener, func(err error) {
			c.log.Warn("accept a connection: trying again", "address", listener.Addr(), "error", err)
		})
	}
	if s.httpListener != nil {
		s.httpListener = accept.AtMost(s.httpListener, maxMetrics)
	}
	if s.rpcListener != nil {
		s.callers = newTermListener(s.rpcListener, c.eng)
	}
	c.eng.still = s.cutAll
	return s, nil
}

// cutAll closes all connections of programs and of other servers: the process stood still, see
// terms.go.
func (s *Server) cutAll() {
	s.core.log.Error("this process stood still for longer than its leases; all connections are cut")
	s.resp.cut()
	if s.callers != nil {
		s.callers.cut()
	}
}

const (
	maxCursors  = 100_000
	cursorsKept = 10 * time.Minute
	drainGrace  = 20 * time.Millisecond
	lastWords   = 5 * time.Second
)

func newRPC(cfg Config, r *rpcServer, auth *passwords) *grpc.Server {
	who := &callers{index: cfg.Index.Identity, auth: auth, tls: cfg.TLS != nil}
	options := []grpc.ServerOption{
		grpc.UnaryInterceptor(who.unary), grpc.StreamInterceptor(who.stream),
		grpc.MaxRecvMsgSize(rpcMaxMessage), grpc.MaxSendMsgSize(rpcMaxMessage), grpc.MaxConcurrentStreams(rpcMaxStreams),
		grpc.KeepaliveParams(serverKeepalive), grpc.KeepaliveEnforcementPolicy(keepalivePolicy),
		grpc.ConnectionTimeout(10 * time.Second),
	}
	if cfg.TLS != nil {
		options = append(options, grpc.Creds(rpcCredentials(cfg.TLS)))
	}
	g := grpc.NewServer(options...)
	rpcv1.RegisterComputeServer(g, r)
	return g
}

// Addresses are where the server listens.
func (s *Server) Addresses() Addresses {
	address := func(l net.Listener) string {
		if l == nil {
			return ""
		}
		return l.Addr().String()
	}
	return Addresses{RESP: address(s.respListener), RPC: address(s.rpcListener), Metrics: address(s.httpListener)}
}

func (s *Server) closeListeners() {
	for _, l := range []net.Listener{s.respListener, s.rpcListener, s.httpListener} {
		if l != nil {
			_ = l.Close() // closed twice at most
		}
	}
}

// Run serves until ctx ends, then drains within Config.DrainLimit, and closes everything. It may be
// called once.
func (s *Server) Run(ctx context.Context) error {
	c := s.core
	followed := c.env.NewEvent()
	c.env.Go("engine", c.eng.run)
	c.env.Go("follow the map", func() { defer followed.Set(); c.follow(s.cfg.Maps) })
	var shells sync.WaitGroup
	failed := make(chan error, 2)
	if s.respListener != nil {
		shells.Go(func() { s.resp.accept(s.respListener) })
	}
	if s.rpcListener != nil {
		shells.Go(func() {
			if err := s.rpc.Serve(s.callers); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				failed <- fmt.Errorf("compute server: serve rpc.Compute: %w", err)
			}
		})
	}
	if s.httpListener != nil {
		shells.Go(func() {
			if err := s.http.Serve(s.httpListener); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("compute server: serve metrics: %w", err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.drainFor(s.cfg.DrainLimit)
	c.stopped.Store(true)
	c.stop.Set()
	s.closeListeners()
	_ = s.http.Close() // its connections are of no use any more
	s.stopRPC()
	s.peers.close()
	shells.Wait()
	c.eng.halt(s.cfg.Limit)
	if closer, ok := s.cfg.Maps.(interface{ Close() }); ok {
		closer.Close()
		followed.Wait(s.cfg.Limit)
	}
	return err
}

// stopRPC ends the gRPC server after the last words of its calls were sent, which drainFor had end;
// a call that did not end is cut.
func (s *Server) stopRPC() {
	ended := make(chan struct{})
	go func() { s.rpc.GracefulStop(); close(ended) }()
	patience := time.NewTimer(lastWords)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
		s.rpc.Stop()
		<-ended
	}
}

// drainFor drains once; later calls wait for that one. It returns how many connections had to be
// closed by force.
func (s *Server) drainFor(limit time.Duration) uint64 {
	s.stopOnce.Do(func() {
		s.core.log.Info("draining", "limit", limit)
		s.resp.beginDrain(limit)
		if s.respListener != nil {
			_ = s.respListener.Close() // nobody else is let in
		}
		var calls sync.WaitGroup
		if s.rpcListener != nil {
			calls.Go(func() { s.calls.drainCalls(limit) })
		}
		s.left = s.resp.drain(limit)
		calls.Wait()
		close(s.drained)
	})
	<-s.drained
	return uint64(s.left)
}
