package preflight

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
)

// Again is how long to wait before the next attempt.
const Again = 5 * time.Second

// Ports are where a server that cannot start says why.
type Ports struct {
	GRPC string // host:port; every call fails with FAILED_PRECONDITION and the reason
	// host:port: /healthz is well, /readyz has the reason; empty = not served
	Metrics string
	TLS     *identity.Files // nil = without
}

// Unfit reports whether an error is the node's: somebody can change that while the server waits.
func Unfit(err error) bool {
	return errors.Is(err, ibv.ErrNoDevice) || errors.Is(err, ibv.ErrMemlock) || errors.Is(err, ibv.ErrNotBuilt) || errors.Is(err, errHugePages)
}

// Start looks for what is needed, then starts a server, and tries again every so often as long as
// the node is unfit; meanwhile the ports say why. It ends with the context, whose error it returns
// then, or with another error of start.
func Start[S any](ctx context.Context, check func() error, start func() (S, error), ports Ports, every time.Duration, log *slog.Logger) (server S, err error) {
	var says *reasons
	defer func() {
		if says != nil {
			says.stop()
		}
	}()
	for {
		if err = check(); err == nil {
			if says != nil { // the server wants its ports
				says.stop()
				says = nil
			}
			server, err = start()
		}
		if err == nil || !Unfit(err) {
			return server, err
		}
		switch {
		case says == nil:
			log.Error("this node is unfit; waiting for it to be changed", "err", err)
			if says, err = serve(ports, err.Error()); err != nil {
				return server, err
			}
		case says.get() != err.Error():
			log.Error("this node is unfit in another way", "err", err)
			says.set(err.Error())
		}
		select {
		case <-ctx.Done():
			return server, ctx.Err()
		case <-time.After(every):
		}
	}
}

// reasons answers with why a server cannot start.
type reasons struct {
	grpc    *grpc.Server
	http    *http.Server
	running sync.WaitGroup

	mu  sync.Mutex
	why string
}

func (r *reasons) set(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = why
}

func (r *reasons) get() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// maxConnections is how many connections each port has: anybody who reaches it may open them.
const maxConnections = 64

// serve opens the ports, both before it answers at one.
func serve(p Ports, why string) (*reasons, error) {
	l, err := net.Listen("tcp", p.GRPC)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	var m net.Listener
	if p.Metrics != "" {
		if m, err = net.Listen("tcp", p.Metrics); err != nil {
			l.Close()
			return nil, fmt.Errorf("listen: %w", err)
		}
	}
	r := &reasons{why: why}
	options := []grpc.ServerOption{
		grpc.ConnectionTimeout(10 * time.Second), // of the handshake
		grpc.MaxHeaderListSize(8 << 10), grpc.MaxConcurrentStreams(16), grpc.ReadBufferSize(4 << 10),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: time.Minute}),
	}
	if p.TLS != nil {
		options = append(options, grpc.Creds(p.TLS.ServerCredentials()))
	}
	r.grpc = grpc.NewServer(append(options, grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.FailedPrecondition, r.get())
	}))...)
	r.running.Go(func() { r.grpc.Serve(accept.AtMost(accept.Patiently(l, nil), maxConnections)) })
	if m == nil {
		return r, nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, r.get(), http.StatusServiceUnavailable) })
	r.http = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	r.running.Go(func() { r.http.Serve(accept.AtMost(accept.Patiently(m, nil), maxConnections)) })
	return r, nil
}

// stop closes the ports.
func (r *reasons) stop() {
	r.grpc.Stop()
	if r.http != nil {
		r.http.Close()
	}
	r.running.Wait()
}
