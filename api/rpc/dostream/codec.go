package dostream

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec extends
	"google.golang.org/grpc/mem"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Codec is gRPC's codec of protocol buffers, but for batches and their answers. It writes and reads
// the very bytes of the generated code, with three allocations a message instead of three an
// operation: the operations, or outcomes, of a message that arrives are one slab, and their keys
// and values lie in one buffer. Each of them has the capacity of its length, so appending to one
// does not reach the next. Fields that this program does not know are dropped.
//
// A message with more than MaxCall operations or outcomes has so many elements after decoding, all
// nil. Nobody takes such a message, and it shall not cost its receiver a slab.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *rpcv1.DoRequest:
		return buffer(Size(m), func(dst []byte) []byte { return appendRequest(dst, m) }), nil
	case *rpcv1.DoReply:
		return buffer(sizeOfReply(m), func(dst []byte) []byte { return appendReply(dst, m) }), nil
	}
	return c.CodecV2.Marshal(v)
}

// buffer is a message of that size, in a buffer of gRPC's pool.
func buffer(size int, write func(dst []byte) []byte) mem.BufferSlice {
	if mem.IsBelowBufferPoolingThreshold(size) {
		return mem.BufferSlice{mem.SliceBuffer(write(make([]byte, 0, size)))}
	}
	pool := mem.DefaultBufferPool()
	b := pool.Get(size)
	*b = write((*b)[:0])
	return mem.BufferSlice{mem.NewBuffer(b, pool)}
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *rpcv1.DoRequest:
		return decodeRequest(data.Materialize(), m)
	case *rpcv1.DoReply:
		return decodeReply(data.Materialize(), m)
	}
	return c.CodecV2.Unmarshal(data, v)
}
