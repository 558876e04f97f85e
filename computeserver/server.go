//env:real listeners, shutdown and their order

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

	"github.com/dmindex/dmindex/api/rpc/dostream"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/resp"
	"github.com/dmindex/dmindex/computeserver/users"
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
	keepalivePolicy = keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}
)

func serverKeepalive(age time.Duration) keepalive.ServerParameters {
	return keepalive.ServerParameters{
		MaxConnectionIdle: 15 * time.Minute, MaxConnectionAge: age, MaxConnectionAgeGrace: ageGrace,
		Time: 20 * time.Second, Timeout: 10 * time.Second,
	}
}

// Server is a compute server. Make it with New.
type Server struct {
	cfg   Config
	core  *engine.Engine
	peers *grpcPeers
	users *users.Directory

	publisher *publisher

	resp  *resp.Server
	calls *rpcServer
	rpc   *grpc.Server
	http  *http.Server
	pages *pages

	respListener, rpcListener, httpListener net.Listener

	gate    *gate         // of rpcListener
	callers *termListener // on rpcListener

	stopOnce sync.Once
	drained  chan struct{} // closed when drainFor is over
	left     int           // RESP connections that drainFor closed by force
}

// Addresses are where a server listens; empty for a front end that is off.
type Addresses struct{ RESP, RPC, Metrics string }

// New makes a server and binds its addresses. Nothing is answered before Run.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Users == (users.Config{}) && !cfg.AllowNoPassword {
		return nil, errors.New("compute server: there is no password; name a file with one, or allow access without password on purpose")
	}
	directory, err := users.Open(cfg.Users)
	if err != nil {
		return nil, fmt.Errorf("compute server: %w", err)
	}
	c := engine.New(engine.Options{SortedSets: true,
		Env: cfg.Env, Index: cfg.Index, Self: cfg.ID, SharesAll: cfg.SharesAll, DivideAlways: cfg.divideAlways, Open: cfg.Open, Clock: cfg.Clock, TrustsClock: cfg.trustsClock, Limit: cfg.Limit,
		MaxSessions: cfg.MaxSessions, MaxWaiting: cfg.MaxWaiting, Log: cfg.Logger,
	})
	peers := &grpcPeers{files: cfg.TLS, users: directory, limit: cfg.Limit, byID: map[uint32]*peerLink{}}
	c.Peers = peers
	messages := newPublisher(c, peers)
	peers.keeps = messages.retain
	logins := accept.NewLogins(c.Env.Now, accept.Penalty)
	m, hider := newMetrics(c, logins, cfg.TLS), newHider(cfg.KeySalt)
	s := &Server{cfg: cfg, core: c, peers: peers, users: directory, publisher: messages, drained: make(chan struct{})}
	s.resp = resp.New(resp.Config{
		Engine: c, Users: directory, Front: &m.resp, Batches: &m.rpc, Version: cfg.Version, Logins: logins, TLS: cfg.RESPTLS,
		Hide:   func(message string) string { return hider().Texts(message) },
		Limits: cfg.limitsNow(), AuthLimit: cfg.AuthLimit,
		WriteLimit: cfg.WriteLimit, MaxReply: cfg.MaxReply, MaxBuffers: cfg.MaxBuffers, AskCursor: peers.Cursor,
		Relay: messages.relay, AskSubscriptions: messages.askSubscriptions,
	})
	s.calls = &rpcServer{core: c, metrics: m, resp: s.resp, drain: s.drainFor, describe: s.describe, users: directory, files: cfg.TLS, hider: hider, cut: make(chan struct{}), mostParked: rpcParked}
	s.gate = newGate(&cfg, directory, logins)
	s.rpc = newRPC(s.gate, &cfg, s.calls)
	m.ofRESP, m.ofRPC = s.resp.Anonymous, s.gate.strangers
	s.pages = &pages{core: c, metrics: m, peers: peers, slow: s.resp.Slow, describe: s.describe, hider: hider}
	s.http = newHTTP(c, m, s.pages, s.describe, hider, cfg.Pprof)
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
			c.Log.Warn("accept a connection: trying again", "address", listener.Addr(), "error", err)
		})
	}
	if s.httpListener != nil {
		s.httpListener = accept.AtMost(s.httpListener, maxMetrics)
	}
	if s.rpcListener != nil {
		s.callers = newTermListener(s.rpcListener, c.Sessions, s.gate)
	}
	c.Sessions.OnStandstill = s.cutAll
	if cfg.OnNews != nil {
		cfg.OnNews(c.Sessions.RetryOpen)
	}
	return s, nil
}

// cutAll closes all connections of programs and of other servers: the process stood still, see
// engine/terms.go.
func (s *Server) cutAll() {
	s.core.Log.Error("this process stood still for longer than its leases; all connections are cut")
	s.resp.Cut()
	if s.callers != nil {
		s.callers.closeAll()
	}
}

const (
	// lastWords is how long the answers of calls that have ended may take to be sent.
	lastWords = 5 * time.Second
	// partLimit is how long the index may take to be closed: what it holds is written back and
	// given to others, and its client parts from all memory servers. With the default DrainLimit a
	// pod has ended before its grace period of 60 s is over.
	partLimit = 30 * time.Second
)

func newRPC(g *gate, cfg *Config, r *rpcServer) *grpc.Server {
	server := grpc.NewServer(
		grpc.Creds(g.credentials(cfg.TLS)), grpc.InTapHandle(g.tap), grpc.StatsHandler(g),
		grpc.ForceServerCodecV2(newRPCCodec()),
		grpc.MaxRecvMsgSize(rpcMaxMessage), grpc.MaxSendMsgSize(rpcMaxMessage), grpc.MaxConcurrentStreams(rpcMaxStreams),
		grpc.MaxHeaderListSize(rpcMaxHeaders),
		grpc.StaticStreamWindowSize(dostream.StreamWindow), grpc.StaticConnWindowSize(dostream.ConnWindow),
		grpc.KeepaliveParams(serverKeepalive(cfg.ConnectionAge)), grpc.KeepaliveEnforcementPolicy(keepalivePolicy),
		grpc.ConnectionTimeout(g.limit), // of the handshake
	)
	rpcv1.RegisterComputeServer(server, r)
	return server
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
	followed := c.Env.NewEvent()
	c.Env.Go("engine", c.Sessions.Run)
	c.Env.Go("follow the map", func() { defer followed.Set(); c.Follow(s.cfg.Maps) })
	if s.cfg.Index.Expires() && !s.cfg.stays {
		c.Env.Go("sweep", c.Sweep)
		c.Env.Go("collect sorted sets", c.CollectSets)
	}
	var shells sync.WaitGroup
	failed := make(chan error, 2)
	if s.respListener != nil {
		shells.Go(func() { s.resp.Accept(streams{s.respListener}) })
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
	looking, stopLooking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLooking()
	if s.httpListener != nil {
		shells.Go(func() { s.pages.sample(looking) })
	}
	if s.users.Required() {
		shells.Go(func() { s.followUsers(looking) })
	}
	if s.cfg.Settings != nil {
		shells.Go(func() { s.cfg.Settings.Follow(looking, s.core.Log, s.applySettings) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.drainFor(s.cfg.DrainLimit)
	c.End()
	s.closeListeners()
	_ = s.http.Close() // its connections are of no use any more
	s.publisher.end()
	s.stopRPC()
	s.peers.close()
	stopLooking()
	shells.Wait()
	if !c.Sessions.Halt(partLimit) {
		c.Log.Error("the index is not closed: others wait for the lease of this client", "after", partLimit)
	}
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
		s.core.Log.Info("draining", "limit", limit)
		s.resp.BeginDrain(limit)
		if s.respListener != nil {
			_ = s.respListener.Close() // nobody else is let in
		}
		var calls sync.WaitGroup
		if s.rpcListener != nil {
			calls.Go(func() { s.calls.drainCalls(limit) })
		}
		s.left = s.resp.Drain(limit)
		calls.Wait()
		close(s.drained)
	})
	<-s.drained
	return uint64(s.left)
}
