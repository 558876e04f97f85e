//env:real gRPC serves each connection on goroutines of its own

package admission

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/net/http2"

	"github.com/dmindex/dmindex/pkg/accept"
)

// A call keeps memory for as long as its stream is open, whether it waits, or is over and its
// caller does not take the answer: small replies and errors are not charged, and a stream without a
// window keeps its reply, its headers and what follows it. A connection has few streams; but there
// are many connections. So streams are counted from the frame that opens them until the server
// writes their last one, or resets them: gRPC has freed them by then. A stream that its caller
// resets may have something in the queue of a connection of which a Write stands still; it counts
// until that Write has returned.
//
// Where there are too many, a connection ends, as for requests (see senders.go): the one with most
// streams, of the identity that has most. So a caller that has a call or two on each of its
// connections loses none of them by what others open.

// maxStreams is how many streams are open at once: of all identities but the operator, and of the
// operator. It is more than the calls that are refused without an end of their connection: of one
// identity (maxCalls), or for waiting too many for maps (maxMapWaiters).
const maxStreams = maxCalls + 512

// stream is a stream that is open. Its request is under way until it has ended.
type stream struct {
	cost  int // of the request
	ended bool
	reset bool   // by the caller, while a Write was under way
	began uint64 // in the order of callers.mu.began
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	c.raw.Left = accept.MaxAhead
	n, err := c.Conn.Read(b)
	if n > 0 {
		if refused := c.received(b[:n]); refused != nil {
			return 0, refused
		}
	}
	return n, err
}

// Write implements net.Conn. It ends the connection if its caller does not take b in time: until
// then, gRPC keeps what is queued behind it, and does not look whether the caller is there as long
// as that sends. What ends a stream here ends its request too, whether or not that was complete.
func (c *connection) Write(b []byte) (int, error) {
	c.beginWrite(b)
	c.Conn.SetWriteDeadline(time.Now().Add(c.callers.limit))
	n, err := c.Conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.callers.warn("a control connection is closed: its caller reads nothing", "caller", c.who.String(), "address", c.RemoteAddr().String())
	}
	if err != nil {
		c.raw.Close() // gRPC's reader would not hear of it
	}
	c.endWrite()
	return n, err
}

func (c *connection) beginWrite(b []byte) {
	c.callers.mu.Lock()
	defer c.callers.mu.Unlock()
	c.writing = true
	for h, rest, ok := c.out.Next(b); ok; h, rest, ok = c.out.Next(rest) {
		if endsStream(h) {
			c.endStreamLocked(h.StreamID)
		}
	}
}

func (c *connection) endWrite() {
	c.callers.mu.Lock()
	defer c.callers.mu.Unlock()
	c.writing, c.unread = false, 0
	for _, id := range c.reset {
		c.endStreamLocked(id)
	}
	c.reset = c.reset[:0]
}

// maxFrame is how many bytes a frame that is not of data may have: gRPC keeps a buffer of the
// largest one for as long as its connection lasts. Headers are the largest that it knows.
const maxFrame = 2 * maxHeaders

// errFrame is returned when a caller sends a frame that is of no use.
var errFrame = fmt.Errorf("a frame of more than %d bytes that is not of data", maxFrame)

// gRPC answers some frames, or keeps them until it has written what came before: up to 10,000 of
// them, of a connection whose caller does not read. So what comes while a Write stands still is
// bounded.
const (
	maxUnread  = 64 << 10 // bytes of such frames during one Write
	unreadCost = 64       // of a frame besides its settings, which take twice their bytes
)

// errUnread is returned when a caller sends frames that are to be answered and reads no answers.
var errUnread = fmt.Errorf("frames that take more than %d bytes until they are answered, and their sender does not read", maxUnread)

// controlLocked charges a frame that is kept until a Write has returned. Errors: errUnread.
func (c *connection) controlLocked(h http2.FrameHeader) error {
	switch h.Type {
	case http2.FrameData, http2.FrameHeaders:
		return nil // they are charged as requests and streams
	}
	if !c.writing {
		return nil
	}
	if c.unread += unreadCost + 2*int(h.Length); c.unread > maxUnread {
		return errUnread
	}
	return nil
}

// received counts and charges what came. Errors: errFrame, errUnread.
func (c *connection) received(b []byte) error {
	c.callers.mu.Lock()
	defer c.callers.mu.Unlock()
	for h, rest, ok := c.in.Next(b); ok; h, rest, ok = c.in.Next(rest) {
		if h.Type != http2.FrameData && h.Length > maxFrame {
			return errFrame
		}
		if err := c.controlLocked(h); err != nil {
			return err
		}
		switch h.Type {
		case http2.FrameHeaders:
			c.beginStreamLocked(h.StreamID)
		case http2.FrameData:
			c.chargeLocked(h.StreamID, costOf(h.Length))
		case http2.FrameRSTStream:
			c.resetStreamLocked(h.StreamID)
		}
		if endsStream(h) {
			c.endRequestLocked(h.StreamID)
		}
	}
	c.callers.boundRequestsLocked(c.party)
	c.callers.boundStreamsLocked(c.party)
	return nil
}

// beginStreamLocked counts a stream, unless it is open, or the connection counts no more.
// callers.mu is held, as in all that follows.
func (c *connection) beginStreamLocked(id uint32) {
	if _, is := c.streams[id]; is || c.streams == nil {
		return
	}
	c.callers.mu.began++
	c.streams[id] = stream{began: c.callers.mu.began}
	c.party.streams++
	if !c.party.operator {
		c.callers.mu.streams++
	}
	c.chargeLocked(id, openCost)
}

// resetStreamLocked counts a stream no more that its caller has reset: at once, or when nothing of
// it is queued.
func (c *connection) resetStreamLocked(id uint32) {
	s, is := c.streams[id]
	switch {
	case is && !c.writing:
		c.endStreamLocked(id)
	case is && !s.reset:
		s.reset = true
		c.streams[id] = s
		c.reset = append(c.reset, id)
	}
}

// endStreamLocked counts a stream no more, and ends its request.
func (c *connection) endStreamLocked(id uint32) {
	c.endRequestLocked(id)
	if _, is := c.streams[id]; !is {
		return
	}
	delete(c.streams, id)
	c.party.streams--
	if !c.party.operator {
		c.callers.mu.streams--
	}
}

// endStreamsLocked counts the streams of a connection no more, nor any later ones.
func (c *connection) endStreamsLocked() {
	for id := range c.streams { //env:real all of them, in any order
		c.endStreamLocked(id)
	}
	c.streams = nil
}

// boundStreamsLocked ends connections until few enough streams are open: of p if it is the
// operator, else of all others.
func (c *Callers) boundStreamsLocked(p *party) {
	for p.operator && p.streams > maxStreams {
		c.endFullestLocked(p)
	}
	for c.mu.streams > maxStreams {
		c.endFullestLocked(c.mostLocked(func(p *party) int { return p.streams }))
	}
}

// endFullestLocked ends the connection of p with most streams; of several, the newest.
func (c *Callers) endFullestLocked(p *party) {
	var fullest *connection
	for conn := range p.connections { //env:real the greatest of all is the same in any order
		if fullest == nil || len(conn.streams) > len(fullest.streams) ||
			len(conn.streams) == len(fullest.streams) && conn.number > fullest.number {
			fullest = conn
		}
	}
	c.warn("a control connection is closed: too many calls are open, and it has most", "caller", fullest.who.String(),
		"address", fullest.RemoteAddr().String(), "streams", len(fullest.streams), "of_its_caller", p.streams)
	fullest.endStreamsLocked()
	fullest.raw.Close() // gRPC closes the rest of it
}
