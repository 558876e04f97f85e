//env:real connections to other servers

package computeserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/api/rpc/dostream"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/partition"
)

// grpcPeers reaches other compute servers: one connection and one pipelined stream each, made when
// they are first needed.
type grpcPeers struct {
	files *identity.Files // nil = no TLS
	users *users.Directory
	limit time.Duration

	keeps func(servers []partition.Server) // is told what Keep is told, unless nil

	mu    sync.Mutex
	byID  map[uint32]*peerLink
	ended bool
}

// peerLink is the way to one server under one address.
type peerLink struct {
	address string
	conn    *grpc.ClientConn
	client  rpcv1.ComputeClient
	stream  *dostream.Stream
	since   time.Time
}

func (l *peerLink) close() {
	l.stream.Close()
	_ = l.conn.Close() // nothing of it is needed any more
}

func (p *grpcPeers) link(to partition.Server) (*peerLink, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil, engine.ErrStopped
	}
	if l := p.byID[to.ID]; l != nil {
		if l.address == to.RPC {
			return l, nil
		}
		l.close()
		delete(p.byID, to.ID)
	}
	options := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(rpcMaxMessage), grpc.MaxCallSendMsgSize(rpcMaxMessage)),
		grpc.WithConnectParams(quickReconnect),
		grpc.WithKeepaliveParams(clientKeepalive),
		grpc.WithNoProxy(),
		grpc.WithStaticStreamWindowSize(dostream.StreamWindow), grpc.WithStaticConnWindowSize(dostream.ConnWindow),
	}
	if p.files != nil {
		options = append(options, grpc.WithTransportCredentials(p.files.PeerCredentials()))
	} else {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if p.users.Required() {
			options = append(options, grpc.WithPerRPCCredentials(bearerOf{p.users}))
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+to.RPC, options...)
	if err != nil {
		return nil, err
	}
	client := rpcv1.NewComputeClient(conn)
	l := &peerLink{to.RPC, conn, client, dostream.New(client, dostream.Options{Forwarded: true, Limit: p.limit}), time.Now()}
	p.byID[to.ID] = l
	return l, nil
}

// refused says that a server refused who calls: the certificate that the connection was made with
// counts no more. The next request connects anew, with the present one.
func (p *grpcPeers) refused(to partition.Server, l *peerLink, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil || status.Code(err) != codes.Unauthenticated || p.byID[to.ID] != l || time.Since(l.since) < certificateEvery {
		return
	}
	delete(p.byID, to.ID)
	time.AfterFunc(2*p.limit, l.close) // what is under way may still be answered
}

func (p *grpcPeers) Do(ctx context.Context, to partition.Server, ops []*rpcv1.Operation, limit time.Duration, early func(some []*rpcv1.Outcome)) ([]*rpcv1.Outcome, error) {
	l, err := p.link(to)
	if err != nil {
		return nil, unreachable(to, err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := l.stream.DoEarly(ctx, ops, early)
	if err != nil {
		return nil, p.failure(to, l, err, limit)
	}
	return reply.Outcomes, nil
}

// failure is how a call to a server ended that got no reply.
func (p *grpcPeers) failure(to partition.Server, l *peerLink, err error, limit time.Duration) error {
	p.refused(to, l, errors.Unwrap(err))
	var broken *dostream.Error
	switch {
	case errors.As(err, &broken) && broken.Sent:
		return &engine.Failure{Code: rpcv1.Outcome_UNKNOWN, Message: fmt.Sprintf("it did not answer, and whether it did what was asked is not known: %v", broken.Err)}
	case errors.Is(err, context.DeadlineExceeded):
		return &engine.Failure{Code: rpcv1.Outcome_TIMED_OUT, Message: fmt.Sprintf("%s took nothing within %v", to.RPC, limit)}
	}
	return unreachable(to, err)
}

// peerCall is a call of Start.
type peerCall struct {
	p     *grpcPeers
	to    partition.Server
	link  *peerLink
	call  *dostream.Call // nil: it failed at once, with err
	limit time.Duration
	err   error
}

func (p *grpcPeers) Start(to partition.Server, ops []*rpcv1.Operation, limit time.Duration, ended engine.Waker) engine.Started {
	l, err := p.link(to)
	if err != nil {
		ended.Set()
		return &peerCall{err: unreachable(to, err)}
	}
	c := &peerCall{p: p, to: to, link: l, limit: limit}
	if c.call, err = l.stream.Start(ops, time.Now().Add(limit), ended); err != nil {
		ended.Set()
		c.err = p.failure(to, l, err, limit)
	}
	return c
}

// Take implements engine.Started.
func (c *peerCall) Take(giveUp bool) ([]*rpcv1.Outcome, error, bool) {
	if c.call == nil {
		return nil, c.err, true
	}
	reply, err, over := c.call.Reply()
	if !over && giveUp {
		reply, err = c.call.GiveUp(context.DeadlineExceeded)
		over = true
	}
	if err != nil {
		err = c.p.failure(c.to, c.link, err, c.limit)
	}
	return reply.Outcomes, err, over
}

func (p *grpcPeers) Scan(ctx context.Context, to partition.Server, r engine.ScanRange, limit time.Duration, visit engine.Visit, between func() error) error {
	l, err := p.link(to)
	if err != nil {
		return unreachable(to, err)
	}
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A server that sends nothing for as long as the limit is as good as away. The other side sends
	// no more than a window ahead of what is taken here, and no session is held on either side
	// while between waits.
	watchdog := time.AfterFunc(limit, cancel)
	defer watchdog.Stop()
	stream, err := l.client.Scan(callCtx, &rpcv1.ScanRequest{
		Start: r.Start, End: r.End, Limit: r.Limit, Reverse: r.Reverse, KeysOnly: r.KeysOnly, Forwarded: true, Types: true,
	})
	for err == nil {
		var reply *rpcv1.ScanReply
		if reply, err = stream.Recv(); err != nil {
			break
		}
		watchdog.Stop()
		for _, pair := range reply.Pairs {
			if !visit(pair.Key, pair.Value, expiry.Mark{Deadline: pair.Deadline, Type: expiry.Type(pair.Type)}) {
				return nil
			}
		}
		if reply.Error != nil {
			return engine.FailureOf(reply.Error)
		}
		if err := between(); err != nil {
			return err
		}
		watchdog.Reset(limit)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	if gone := ctx.Err(); gone != nil {
		return gone // nobody wants more: that says nothing about the server
	}
	p.refused(to, l, err)
	return unreachable(to, err)
}

// Describe asks a server how it fares.
func (p *grpcPeers) Describe(ctx context.Context, to partition.Server) (*rpcv1.DescribeComputeReply, error) {
	l, err := p.link(to)
	if err != nil {
		return nil, unreachable(to, err)
	}
	reply, err := l.client.Describe(ctx, &rpcv1.DescribeComputeRequest{})
	if err != nil {
		p.refused(to, l, err)
		return nil, unreachable(to, err)
	}
	return reply, nil
}

// Cursor asks the server that gave a cursor of SCAN from which key on the scan goes on; false if it
// does not know the cursor.
func (p *grpcPeers) Cursor(to partition.Server, cursor uint64, limit time.Duration) (key []byte, found bool, err error) {
	l, err := p.link(to)
	if err != nil {
		return nil, false, unreachable(to, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	reply, err := l.client.GetCursor(ctx, &rpcv1.GetCursorRequest{Cursor: cursor})
	switch {
	case err == nil:
		return reply.Key, reply.Found, nil
	case status.Code(err) == codes.Unimplemented: // of a version whose cursors are its own
		return nil, false, nil
	}
	p.refused(to, l, err)
	return nil, false, unreachable(to, err)
}

func (p *grpcPeers) Keep(servers []partition.Server) {
	if p.keeps != nil {
		p.keeps(servers)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	stays := map[uint32]bool{}
	for _, s := range servers {
		stays[s.ID] = true
	}
	for id, l := range p.byID {
		if !stays[id] {
			delete(p.byID, id)
			time.AfterFunc(2*p.limit, l.close) // what is under way may still be answered
		}
	}
}

// close ends all connections; requests that wait for them fail.
func (p *grpcPeers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for id, l := range p.byID {
		l.close()
		delete(p.byID, id)
	}
}

// unreachable is the failure of a request that a server did not take: nothing was done.
func unreachable(to partition.Server, err error) error {
	code := rpcv1.Outcome_UNAVAILABLE
	if s, ok := status.FromError(errors.Unwrap(err)); ok && s.Code() == codes.InvalidArgument {
		code = rpcv1.Outcome_INVALID
	}
	return &engine.Failure{Code: code, Message: fmt.Sprintf("%s cannot be reached: %v", to.RPC, err)}
}

// bearerOf shows the index's password.
type bearerOf struct{ users *users.Directory }

func (b bearerOf) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.users.Password()}, nil
}

// RequireTransportSecurity is false: this is for servers that were told to go without TLS.
func (bearerOf) RequireTransportSecurity() bool { return false }

var _ credentials.PerRPCCredentials = bearerOf{}
