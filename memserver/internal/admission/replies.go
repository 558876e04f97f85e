//env:real gRPC runs each call on a goroutine of its own

package admission

import (
	"context"
	"fmt"
	"strings"
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

// A caller that does not read makes gRPC keep its replies: a call ends for its handler when the
// reply is queued, and the queue of a connection has no bound but its streams. So a reply that is
// more than small is charged to its caller's identity from before it is encoded until gRPC frees
// its bytes: when it is written, its stream is reset, or the connection is closed. A reply for
// which there is no room waits for it, within its call's limit: a large map goes to all servers of
// an index at once, and a refusal would be wrong then. Small replies, as those of leases, never
// wait. Nobody waits for ever: a connection that leaves a reply for replyLimit is closed. What is
// kept is the encoded reply alone: the message of a list takes ten times as much. An error is no
// reply and is not charged, so its message is cut.

// large are the calls whose replies need much memory while they are built. Their size is known only
// then, so one is built at a time, of all identities but the operator; each identity has one in
// that queue, so they take turns. It has left the queue again when it is encoded or dropped: a
// reply that finds no room is dropped, waits for room of its size, and is built once more. So a
// caller that does not read its replies holds up nobody else's. All of these calls may be repeated:
// three only read, and AcquireRange answers what is held already.
var large = map[string]bool{
	rpcv1.Memory_ListClients_FullMethodName:  true,
	rpcv1.Memory_AcquireRange_FullMethodName: true,
	rpcv1.Memory_ListHoldings_FullMethodName: true,
	rpcv1.Memory_ListServers_FullMethodName:  true,
}

// reply is an encoded reply that its caller has not taken. It is the pool that its bytes go back
// to.
type reply struct {
	bytes      []byte
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
	if caller.party.calls.TryAcquire(1) {
		if caller.isClosed() { // its party may be forgotten
			caller.endCall()
			return nil, nil, errClosed
		}
		return caller, caller.endCall, nil
	}
	return nil, nil, status.Errorf(codes.Unavailable, "%s: %d calls of %v are under way, and no more are possible; ask again", method, maxCalls, caller.who)
}

// errClosed is returned when nobody waits for a reply any more.
var errClosed = status.Error(codes.Unavailable, "the connection is closed")

// endCall counts a call no more. Some do not end with their connections, and are the last of their
// identity.
func (c *connection) endCall() {
	c.party.calls.Release(1)
	c.callers.mu.Lock()
	defer c.callers.mu.Unlock()
	c.callers.forgetLocked(c.who, c.party)
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
	release, err := caller.chargeRequest(info.FullMethod, request)
	if err != nil {
		return nil, err
	}
	defer release()
	if large[info.FullMethod] {
		out, err := caller.build(ctx, info.FullMethod, func() (any, error) { return next(ctx, request) })
		return out, shortened(err)
	}
	out, err := next(ctx, request)
	if err != nil {
		return nil, shortened(err)
	}
	message, ok := out.(proto.Message)
	if !ok || isSmall(proto.Size(message)) {
		return out, nil
	}
	size := proto.Size(message)
	if err := caller.acquire(ctx, info.FullMethod, size); err != nil {
		return nil, err
	}
	return caller.encodeReply(info.FullMethod, message, size)
}

// isSmall reports whether a reply of a size is not charged.
func isSmall(size int) bool { return mem.IsBelowBufferPoolingThreshold(size) }

// shortened is an error whose message has a bounded length: messages name what a caller sent, and a
// caller that does not read makes gRPC keep them.
func shortened(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok || len(s.Message()) <= maxMessage {
		return err
	}
	return status.Error(s.Code(), strings.ToValidUTF8(s.Message()[:maxMessage-3], "")+"...")
}

// chargeRequest charges a request that is more than small until its call ends: a call may wait, and
// gRPC has decoded its request by then. A list of numbers takes up to four times as much memory as
// on the wire.
func (c *connection) chargeRequest(method string, request any) (release func(), err error) {
	message, ok := request.(proto.Message)
	if _, isMap := request.(*rpcv1.SwapMapRequest); !ok || isMap {
		return func() {}, nil
	}
	size := int64(proto.Size(message))
	if size <= smallRequest {
		return func() {}, nil
	}
	if !c.party.held.TryAcquire(4 * size) {
		return nil, status.Errorf(codes.Unavailable, "%s: large requests of %v are under way, and one of %d bytes has no room beside them; ask again", method, c.who, size)
	}
	return func() { c.party.held.Release(4 * size) }, nil
}

// build makes the reply of a large call. room is what is charged for it: nothing at first, so that
// small replies never wait.
func (c *connection) build(ctx context.Context, method string, next func() (any, error)) (any, error) {
	if err := c.party.building.Acquire(ctx, 1); err != nil {
		return nil, c.noRoom(method, err)
	}
	defer c.party.building.Release(1)
	for room := 0; ; {
		out, size, err := c.buildOnce(ctx, method, room, next)
		if size == 0 {
			return out, err
		}
		c.release(room)
		if err := c.acquire(ctx, method, size); err != nil {
			return nil, err
		}
		room = size
	}
}

// buildOnce makes the reply in its turn. If room is too small and there is no more, it drops the
// reply and returns its size; otherwise room is used, or given back.
func (c *connection) buildOnce(ctx context.Context, method string, room int, next func() (any, error)) (out any, size int, err error) {
	if !c.party.operator {
		if err := c.callers.building.Acquire(ctx, 1); err != nil {
			c.release(room)
			return nil, 0, c.noRoom(method, err)
		}
		defer c.callers.building.Release(1)
	}
	out, err = next()
	message, ok := out.(proto.Message)
	if err != nil || !ok || isSmall(proto.Size(message)) {
		c.release(room)
		return out, 0, err
	}
	size = proto.Size(message)
	switch {
	case size > maxOwed:
		c.release(room)
		return nil, 0, tooLarge(method, size)
	case size < room:
		c.release(room - size)
	case size > room && !c.tryAcquire(size-room):
		return nil, size, nil
	}
	out, err = c.encodeReply(method, message, size)
	return out, 0, err
}

func tooLarge(method string, size int) error {
	return status.Errorf(codes.ResourceExhausted, "the reply to %s has %d bytes; at most %d are possible", method, size, maxOwed)
}

// acquire waits for room for a reply.
func (c *connection) acquire(ctx context.Context, method string, size int) error {
	if size > maxOwed {
		return tooLarge(method, size)
	}
	if err := c.party.room.Acquire(ctx, int64(size)); err != nil {
		return c.noRoom(method, err)
	}
	if !c.party.operator {
		if err := c.callers.room.Acquire(ctx, int64(size)); err != nil {
			c.party.room.Release(int64(size))
			return c.noRoom(method, err)
		}
	}
	return nil
}

// tryAcquire reports whether there was room at once.
func (c *connection) tryAcquire(size int) bool {
	if !c.party.room.TryAcquire(int64(size)) {
		return false
	}
	if !c.party.operator && !c.callers.room.TryAcquire(int64(size)) {
		c.party.room.Release(int64(size))
		return false
	}
	return true
}

// encodeReply encodes a reply, of which size is charged, and remembers it until gRPC has written
// it.
func (c *connection) encodeReply(method string, message proto.Message, size int) (*reply, error) {
	bytes, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, size), message)
	if err != nil {
		c.release(size)
		return nil, status.Errorf(codes.Internal, "%s: the reply cannot be encoded: %v", method, err)
	}
	r := &reply{bytes: bytes, size: size, connection: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.release(size)
		return nil, errClosed
	}
	r.late = time.AfterFunc(c.callers.limit, func() {
		if c.end() {
			c.callers.warn("a control connection is closed: its caller does not read its replies", "caller", c.who.String(),
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
		c.release(r.size)
	}
}

// release gives back room of replies.
func (c *connection) release(size int) {
	c.party.room.Release(int64(size))
	if !c.party.operator {
		c.callers.room.Release(int64(size))
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

// controlCodec is gRPC's codec, but for replies that are charged and for requests that are larger
// than such requests are.
type controlCodec struct{ encoding.CodecV2 }

func newControlCodec() controlCodec { return controlCodec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c controlCodec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*reply)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	b := r.bytes
	r.bytes = nil // gRPC has them: a reply that it has freed is not kept by what is owed
	return mem.BufferSlice{mem.NewBuffer(&b, r)}, nil
}

// Unmarshal implements encoding.CodecV2. A request lives as long as its call, which may wait; so it
// is small, and fields that this server does not know are dropped.
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
