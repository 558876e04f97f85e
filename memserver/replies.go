//env:real gRPC runs each call on a goroutine of its own

package memserver

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that replyCodec extends
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// A caller that does not read makes gRPC keep its replies: a call ends for its handler when the reply is queued, and the queue of a
// connection has no bound but its streams. So a reply that is more than small is charged to its caller's identity from before it is
// encoded until gRPC frees its bytes: when it is written, its stream is reset, or the connection is closed. A reply for which there is no
// room waits for it, within its call's limit: a large map goes to all servers of an index at once, and a refusal would be wrong then.
// Small replies, as those of leases, never wait. Nobody waits for ever: a connection that leaves a reply for replyLimit is closed.

// large are the calls whose replies need much memory while they are built. Of an identity one is built at a time.
var large = map[string]bool{
	rpcv1.Memory_ListClients_FullMethodName:  true,
	rpcv1.Memory_AcquireRange_FullMethodName: true,
	rpcv1.Memory_ListHoldings_FullMethodName: true,
}

// reply is a reply that its caller has not taken. It is the pool that its bytes go back to.
type reply struct {
	proto.Message
	size       int
	connection *connection
	late       *time.Timer
}

// charged charges replies to their callers.
func charged(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	p, _ := peer.FromContext(ctx)
	caller, ok := p.AuthInfo.(callerInfo)
	if !ok {
		return nil, status.Error(codes.Internal, "the connection was not counted: this is a fault of the program, please report it")
	}
	if building := caller.connection.party.building; large[info.FullMethod] {
		if err := building.Acquire(ctx, 1); err != nil {
			return nil, caller.connection.noRoom(info.FullMethod, err)
		}
		defer building.Release(1)
	}
	out, err := next(ctx, request)
	if err != nil {
		return nil, err
	}
	message, ok := out.(proto.Message)
	if !ok || mem.IsBelowBufferPoolingThreshold(proto.Size(message)) {
		return out, nil
	}
	return caller.connection.owe(ctx, info.FullMethod, message)
}

// owe waits for room for a reply and charges it.
func (c *connection) owe(ctx context.Context, method string, message proto.Message) (*reply, error) {
	r := &reply{Message: message, size: proto.Size(message), connection: c}
	if r.size > maxOwed {
		return nil, status.Errorf(codes.ResourceExhausted, "the reply to %s has %d bytes; at most %d are possible", method, r.size, maxOwed)
	}
	if err := c.party.room.Acquire(ctx, int64(r.size)); err != nil {
		return nil, c.noRoom(method, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.party.room.Release(int64(r.size))
		return nil, status.Error(codes.Unavailable, "the connection is closed")
	}
	r.late = time.AfterFunc(c.callers.limit, func() {
		if c.end() {
			c.callers.log.Warn("a control connection is closed: its caller does not read its replies", "caller", c.who.String(),
				"address", c.RemoteAddr().String(), "method", method, "bytes", r.size)
		}
		c.Conn.Close()
	})
	c.owed[r] = struct{}{}
	return r, nil
}

func (c *connection) noRoom(method string, err error) error {
	return status.Errorf(codes.ResourceExhausted, "%s: connections of %v do not read their replies; this one found no room beside them, "+
		"ask again: %v", method, c.who, err)
}

// settleLocked charges a reply no more. c.mu is held.
func (c *connection) settleLocked(r *reply) {
	if _, owed := c.owed[r]; owed {
		delete(c.owed, r)
		r.late.Stop()
		c.party.room.Release(int64(r.size))
	}
}

// Get implements mem.BufferPool.
func (r *reply) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put implements mem.BufferPool: gRPC has written the reply, or dropped it.
func (r *reply) Put(*[]byte) {
	r.connection.mu.Lock()
	defer r.connection.mu.Unlock()
	r.connection.settleLocked(r)
}

// replyCodec is gRPC's codec, but for replies that are charged.
type replyCodec struct{ encoding.CodecV2 }

func newReplyCodec() replyCodec { return replyCodec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c replyCodec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*reply)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	b := make([]byte, 0, r.size)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, r.Message)
	if err != nil {
		r.Put(nil)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(&b, r)}, nil
}
