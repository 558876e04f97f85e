package client

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/api/rpc/dostream"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/partition"
)

const maxMessage = 16 << 20

// links are the connections to servers, by address. Safe for concurrent use.
type links struct {
	o     Options
	creds func(serverName string) credentials.TransportCredentials

	mu     sync.Mutex
	byAddr map[string]*link
	ended  bool
}

// link is a connection to one server, with its stream of operations.
type link struct {
	address string
	conn    *grpc.ClientConn
	client  rpcv1.ComputeClient
	limit   time.Duration            // of an attempt
	ops     atomic.Pointer[indexOps] // nil before the first operation
	mu      sync.Mutex               // held while ops changes
	closed  bool
	// until when (Unix nanoseconds) other servers are preferred, since this one did not answer or
	// refused
	avoid atomic.Int64
}

// indexOps is the stream of operations for an index.
type indexOps struct {
	index  string
	stream *dostream.Stream
}

// streamFor is the stream of operations for an incarnation of the index. That of an earlier one
// ends some time later: what is under way may still be answered. The error says that there is a
// later one.
func (l *link) streamFor(index string) (*dostream.Stream, error) {
	if o := l.ops.Load(); o != nil && o.index == index {
		return o.stream, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.ops.Load()
	switch {
	case l.closed:
		return nil, dostream.ErrClosed
	case o != nil && o.index == index:
		return o.stream, nil
	case o != nil && madeAnew(index, o.index):
		return nil, anewError{o.index}
	case o != nil:
		time.AfterFunc(2*l.limit, o.stream.Close)
	}
	o = &indexOps{index, dostream.New(l.client, dostream.Options{Limit: l.limit, Index: index, KnowsDenied: true})}
	l.ops.Store(o)
	return o.stream, nil
}

// avoidFor is how long a server that failed is left alone where another one will do.
const avoidFor = time.Second

func (l *link) failed()       { l.avoid.Store(time.Now().Add(avoidFor).UnixNano()) }
func (l *link) avoided() bool { return time.Now().UnixNano() < l.avoid.Load() }

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	o := l.ops.Load()
	l.mu.Unlock()
	if o != nil {
		o.stream.Close()
	}
	_ = l.conn.Close() // nothing of it is needed any more
}

func newLinks(o Options) (*links, error) {
	ls := &links{o: o, byAddr: map[string]*link{}}
	if o.Insecure {
		ls.creds = func(string) credentials.TransportCredentials { return insecure.NewCredentials() }
		return ls, nil
	}
	if _, err := o.tlsConfig(); err != nil {
		return nil, err
	}
	ls.creds = func(serverName string) credentials.TransportCredentials { return newDialCredentials(o, serverName) }
	return ls, nil
}

// linkTo is the link to an address; it is dialled when it is first used.
func (ls *links) linkTo(address, serverName string) (*link, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ended {
		return nil, ErrClosed
	}
	if l := ls.byAddr[address]; l != nil {
		return l, nil
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(ls.creds(serverName)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithNoProxy(),
		grpc.WithStaticStreamWindowSize(dostream.StreamWindow), grpc.WithStaticConnWindowSize(dostream.ConnWindow),
	}
	if ls.o.User != "" || ls.o.Password != "" || ls.o.PasswordFile != "" {
		options = append(options, grpc.WithPerRPCCredentials(login{ls.o}))
	}
	conn, err := grpc.NewClient("dns:///"+address, options...)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", address, err)
	}
	l := &link{address: address, conn: conn, client: rpcv1.NewComputeClient(conn), limit: ls.o.Attempt}
	ls.byAddr[address] = l
	return l, nil
}

// retain closes the links to servers that are gone, some time later: what is under way may still be
// answered.
func (ls *links) retain(servers []partition.Server, endpoints []string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	stays := map[string]bool{}
	for _, s := range servers {
		stays[s.RPC] = true
	}
	for _, e := range endpoints {
		stays[e] = true
	}
	for address, l := range ls.byAddr {
		if !stays[address] {
			delete(ls.byAddr, address)
			time.AfterFunc(2*ls.o.Attempt, l.close)
		}
	}
}

func (ls *links) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.ended = true
	for address, l := range ls.byAddr {
		l.close()
		delete(ls.byAddr, address)
	}
}

// login shows a user's password with every call.
type login struct{ o Options }

// GetRequestMetadata implements credentials.PerRPCCredentials. A user of whom every password is
// right (nopass) may have none.
func (l login) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	password := l.o.Password
	if password == "" && l.o.PasswordFile != "" {
		text, err := os.ReadFile(l.o.PasswordFile)
		if err != nil {
			return nil, status.Errorf(codes.Unauthenticated, "read the password: %v", err)
		}
		password = identity.TrimPassword(string(text))
	}
	// In base64, since a header of its own takes no other bytes than those of ASCII that print.
	both := cmp.Or(l.o.User, defaultUser) + ":" + password
	return map[string]string{"authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(both))}, nil
}

// defaultUser is who shows a password and no name.
const defaultUser = "default"

// RequireTransportSecurity keeps the password off connections without TLS, unless the options say
// so.
func (l login) RequireTransportSecurity() bool { return !l.o.Insecure }

// wordRPC words an error of a call.
func wordRPC(address string, err error) error {
	s, _ := status.FromError(err)
	switch s.Code() {
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("server %s: %w: %s", address, ErrUnauthorized, s.Message())
	}
	return fmt.Errorf("server %s: %w", address, err)
}
