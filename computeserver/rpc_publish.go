//env:real calls of a gRPC server

package computeserver

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/pubsub"
)

// arrivals knows which batches of other servers came last, so that one that is late, as its sender
// gave it up, does not come behind later ones. Safe for concurrent use.
type arrivals struct {
	mu   sync.Mutex
	last map[uint32]*arrival // by server, of which there are as many as maps ever had
}

// arrival is the last batch of a server. Its lock is held while a batch is delivered: batches of
// one server wait for each other, and for no other server's.
type arrival struct {
	mu              sync.Mutex
	process, number uint64
}

// mostSenders bounds arrivals; ids of servers are few and are used again.
const mostSenders = 4096

// inOrder runs deliver unless the batch is late.
func (a *arrivals) inOrder(req *rpcv1.PublishRequest, deliver func()) {
	was := a.arrivalOf(req.Server)
	was.mu.Lock()
	defer was.mu.Unlock()
	if was.process == req.Process && req.Number <= was.number {
		return
	}
	was.process, was.number = req.Process, req.Number
	deliver()
}

func (a *arrivals) arrivalOf(server uint32) *arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.last[server]
	if was == nil {
		if a.last == nil || len(a.last) >= mostSenders {
			a.last = map[uint32]*arrival{}
		}
		was = &arrival{}
		a.last[server] = was
	}
	return was
}

// errOfServers is what a program is told that calls Publish.
var errOfServers = status.Error(codes.PermissionDenied, "only servers of the index pass messages on; programs use PUBLISH")

// Publish gives messages of another server to the subscribers of this one. It goes on while the
// server drains, for those that still listen.
func (r *rpcServer) Publish(ctx context.Context, req *rpcv1.PublishRequest) (*rpcv1.PublishReply, error) {
	if !callerOf(ctx).isServer() { // the gate has refused it
		return nil, errOfServers
	}
	if len(req.Messages) > publishBatch {
		return nil, status.Errorf(codes.InvalidArgument, "a batch has %d messages; at most %d are possible", len(req.Messages), publishBatch)
	}
	for _, m := range req.Messages {
		if len(m.Channel) > pubsub.MaxName {
			return nil, status.Errorf(codes.InvalidArgument, "the name of a channel has %d bytes; at most %d are possible", len(m.Channel), pubsub.MaxName)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	r.arrivals.inOrder(req, func() {
		for _, m := range req.Messages {
			r.resp.Publish(&pubsub.Message{Channel: m.Channel, Payload: m.Payload, Sharded: m.Sharded})
		}
	})
	return &rpcv1.PublishReply{}, nil
}

// ListSubscriptions says to what connections of this server have subscribed.
func (r *rpcServer) ListSubscriptions(ctx context.Context, req *rpcv1.ListSubscriptionsRequest) (*rpcv1.ListSubscriptionsReply, error) {
	if !callerOf(ctx).isServer() {
		return nil, status.Error(codes.PermissionDenied, "only servers of the index ask for the subscriptions of each other; programs use PUBSUB")
	}
	return r.resp.Subscriptions(req), nil
}
