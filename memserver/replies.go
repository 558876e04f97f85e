//env:real gRPC runs each call on a goroutine of its own

package memserver

import (
	"context"
	"fmt"
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

// called counts a call of its caller until end.
func called(ctx context.Context, method string) (caller *connection, end func(), err error) {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(callerInfo)
	if !ok {
		return nil, nil, status.Error(codes.Internal, "the connection was not counted: this is a fault of the program, please report it")
	}
	caller = info.connection
	if calls := caller.party.calls; calls.TryAcquire(1) {
		return caller, func() { calls.Release(1) }, nil
	}
	return nil, nil, status.Errorf(codes.Unavailable, "%s: %d calls of %v are under way, and no more are possible; ask again", method, maxCalls, caller.who)
}

// chargedStream counts streams.
func chargedStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	_, end, err := called(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer end()
	return next(srv, stream)
}

// charged counts calls and charges replies to their callers.
func charged(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	caller, end, err := called(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer end()
	if building := caller.party.building; large[info.FullMethod] {
		if err := building.Acquire(ctx, 1); err != nil {
			return nil, caller.noRoom(info.FullMethod, err)
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
	return caller.owe(ctx, info.FullMethod, message)
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
	if !c.party.operator {
		if err := c.callers.room.Acquire(ctx, int64(r.size)); err != nil {
			c.party.room.Release(int64(r.size))
			return nil, c.noRoom(method, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.release(r)
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
	return status.Errorf(codes.ResourceExhausted, "%s: connections of %v, or of others, do not read their replies; this one found no room beside them, "+
		"ask again: %v", method, c.who, err)
}

// settleLocked charges a reply no more. c.mu is held.
func (c *connection) settleLocked(r *reply) {
	if _, owed := c.owed[r]; owed {
		delete(c.owed, r)
		r.late.Stop()
		c.release(r)
	}
}

// release gives back the room of a reply.
func (c *connection) release(r *reply) {
	c.party.room.Release(int64(r.size))
	if !c.party.operator {
		c.callers.room.Release(int64(r.size))
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

// controlCodec is gRPC's codec, but for replies that are charged and for requests that are larger than such requests are.
type controlCodec struct{ encoding.CodecV2 }

func newControlCodec() controlCodec { return controlCodec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c controlCodec) Marshal(v any) (mem.BufferSlice, error) {
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

// Unmarshal implements encoding.CodecV2. A request lives as long as its call, which may wait; so it is small, and fields that this
// server does not know are dropped.
func (c controlCodec) Unmarshal(data mem.BufferSlice, v any) error {
	request, ok := v.(proto.Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if _, large := v.(*rpcv1.SwapMapRequest); !large && data.Len() > maxRequest {
		return fmt.Errorf("a request of %d bytes; at most %d are possible but for maps", data.Len(), maxRequest)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(buffer.ReadOnlyData(), request)
}
