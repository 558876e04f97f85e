package verbs

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A memory server that several indexes share lets each connection reach only what is its index's:
// a few spans of the regions, which the index keeps as long as it is admitted, and the chunks that
// are granted to it, which come and go. A provider that executes requests itself checks each of
// them ([Reach.Allows]); one whose clients reach the memory by themselves cannot.
//
// # Taking a chunk away
//
// A request is checked, then executed, and its chunk may be taken away between the two. So a chunk
// that was taken away is not used for anything else at once:
//
//  1. The owner of the chunk becomes nobody (Chunks.Grant). Requests that are checked from now on
//     are refused.
//  2. [Checked.Settle] waits for all lists that may have been checked before.
//  3. The chunk is zeroed, and only then granted to another index.
//
// A session says that it checks before it loads an owner, and the server stores the owner before it
// looks which sessions check; both by atomics, which have one order. So either the session sees
// the new owner, or Settle sees the session.
//
// What an index has besides chunks is taken away only after its connections were cut.

// Span is a part of a region.
type Span struct {
	Region     RegionID
	First, End uint64 // offsets in bytes
}

// Chunks are the owners of the equal parts of the data region that are handed out. Safe for
// concurrent use.
type Chunks struct {
	first  uint64 // where the first one lies
	shift  int    // of the size, a power of two
	owners []atomic.Uint32
}

// NewChunks is of n chunks of so many bytes, a power of two, from first on. All are nobody's.
func NewChunks(first, bytes uint64, n int) *Chunks {
	return &Chunks{first, bits.TrailingZeros64(bytes), make([]atomic.Uint32, n)}
}

// Grant makes a chunk, counted from 0, that of an owner; 0 is nobody.
func (c *Chunks) Grant(n int, owner uint32) {
	if o := &c.owners[n]; o.Load() != owner {
		o.Store(owner)
	}
}

// Reach is what the requests of a connection may reach. Nil is all of the memory. It never changes,
// but the owners of its chunks do.
type Reach struct {
	chunks *Chunks
	owner  uint32
	spans  []Span
}

// NewReach reaches spans, and of chunks those of an owner; owner 0 reaches none.
func NewReach(chunks *Chunks, owner uint32, spans ...Span) *Reach {
	return &Reach{chunks, owner, spans}
}

// Allows reports whether length bytes at remote, which are within the region, may be reached.
func (r *Reach) Allows(region RegionID, remote uint64, length int) bool {
	if r == nil || length == 0 {
		return true
	}
	last := remote + uint64(length) - 1
	if region == RegionData && remote >= r.chunks.first {
		return r.owns(remote, last)
	}
	for i := range r.spans {
		if s := &r.spans[i]; s.Region == region && remote >= s.First && last < s.End {
			return true
		}
	}
	return false
}

// owns reports whether all chunks from first to last byte are the owner's.
func (r *Reach) owns(first, last uint64) bool {
	c := r.chunks
	for n := (first - c.first) >> c.shift; n <= (last-c.first)>>c.shift; n++ {
		if n >= uint64(len(c.owners)) || r.owner == 0 || c.owners[n].Load() != r.owner {
			return false
		}
	}
	return true
}

// Checked is a Server that checks each request by ServerOptions.Reach.
type Checked interface {
	// Settle returns nil once every request that was checked before has been executed or never will
	// be. ErrTimeout: that was not so within limit.
	Settle(limit time.Duration) error
}

// Answering is a Server that can say when what was executed has been answered.
type Answering interface {
	// Answered returns once whatever was read from clients before the call has been executed and
	// answered, or refused. A client that does not take its answers may make it fail.
	Answered(limit time.Duration) error
}
