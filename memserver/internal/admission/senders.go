//env:real gRPC serves each connection on goroutines of its own

package admission

import "golang.org/x/net/http2"

// A caller can begin a request and not end it: gRPC keeps what has come of it, up to its window,
// and its goroutine. Neither windows nor the number of streams bound the sum: a window is at least
// 64 KiB, and gRPC opens a connection's window again whatever its streams keep. So a connection
// looks at the frames that pass through it. A request is charged from the frame that opens its
// stream, before gRPC sees that, until the frame that ends it, or until the stream is over (see
// stream). All memory of a request that is under way came through Read, so no request escapes.
//
// Nobody waits for room: that would delay leases. Where there is too much, the connection ends
// whose request is the oldest, of the identity that has most. A request that is sent at once is
// charged and settled within one Read, and is never the oldest.

// Bounds of requests that are under way.
const (
	maxRequests    = 1 << 20 // bytes of one identity
	maxRequestsAll = 4 << 20 // bytes of all identities but the operator
	// bytes of the operator: maps are its, and larger than all other requests
	maxRequestsOper = 3 << 20
)

const (
	// of a request of which nothing but its headers has come: a goroutine and what gRPC keeps of a
	// stream
	openCost  = 12 << 10
	frameCost = 256 // of a frame besides its bytes
)

// costOf is what a frame of data keeps until its request has ended. gRPC takes a buffer for it as
// soon as it sees the frame's header: of its size up to 1 KiB, and else of 4 or 16 KiB. It refuses
// frames of more than 16 KiB.
func costOf(length uint32) int {
	switch {
	case length <= 1<<10:
		return frameCost + int(length)
	case length <= 4<<10:
		return frameCost + 4<<10
	}
	return frameCost + 16<<10
}

// endsStream reports whether a frame is the last one that its sender sends on the stream.
func endsStream(h http2.FrameHeader) bool {
	switch h.Type {
	case http2.FrameHeaders, http2.FrameData:
		return h.Flags.Has(http2.FlagDataEndStream) // the same bit in both
	case http2.FrameRSTStream:
		return true
	}
	return false
}

// chargeLocked adds to the cost of a request, if that is under way. callers.mu is held, as in all
// that follows.
func (c *connection) chargeLocked(id uint32, cost int) {
	s, ok := c.streams[id]
	if !ok || s.ended {
		return
	}
	s.cost += cost
	c.streams[id] = s
	c.party.requests += cost
	if !c.party.operator {
		c.callers.mu.requests += cost
	}
}

// endRequestLocked charges a request no more.
func (c *connection) endRequestLocked(id uint32) {
	c.chargeLocked(id, -c.streams[id].cost)
	if s, ok := c.streams[id]; ok {
		s.ended = true
		c.streams[id] = s
	}
}

// boundRequestsLocked ends connections until the requests under way are few enough, of p and of
// all.
func (c *Callers) boundRequestsLocked(p *party) {
	limit := maxRequests
	if p.operator {
		limit = maxRequestsOper
	}
	for p.requests > limit {
		c.endOldestLocked(p)
	}
	for c.mu.requests > maxRequestsAll {
		c.endOldestLocked(c.mostLocked(func(p *party) int { return p.requests }))
	}
}

// endOldestLocked ends the connection of p with the oldest request that is under way. p has one.
func (c *Callers) endOldestLocked(p *party) {
	var oldest *connection
	var began uint64
	for conn := range p.connections { //env:real the least of all is the same in any order
		for _, s := range conn.streams { //env:real the least of all is the same in any order
			if !s.ended && (oldest == nil || s.began < began) {
				oldest, began = conn, s.began
			}
		}
	}
	c.warn("a control connection is closed: its caller does not end its requests", "caller", oldest.who.String(),
		"address", oldest.RemoteAddr().String(), "streams", len(oldest.streams))
	oldest.endStreamsLocked()
	oldest.raw.Close() // gRPC closes the rest of it
}
