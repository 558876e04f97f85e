package tcp

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

const (
	postBuffer = 64 << 10 // of lists to be sent; grows up to outLimit
	// bytes that may wait to be sent; lists beyond it stay where they are until there is room
	outLimit  = 2 << 20
	maxYields = 4 // of a posting goroutine to others that may post too
	// writes that a posting goroutine does for others before it hands over to the flusher
	inlineRounds = 4
	closeLimit   = 5 * time.Second // for the server to answer a farewell
)

// conn is a verbs.Conn.
//
// Posting. Start encodes its list into out, under mu. If nobody is writing, it takes the role of
// the writer: it sends what is in out, and what others added meanwhile, without ever blocking. So
// one poster alone pays no switch of goroutines. If it is not alone it first yields: once, and a
// few times more while others that the last answers woke have not run yet. They are likely to post
// again, and all goes out in one call. Whoever staged several lists does not yield: it has
// gathered already. Most sessions stage one for each server, so a single staged list goes out as a
// started one does. When the socket takes no more, the role passes to the flusher goroutine, which
// may block. A list that would make out too long waits in queue, in its own buffers, and whoever
// writes encodes it as there is room.
//
// Answers. See answers.go.
type conn struct {
	socket  net.Conn
	raw     syscall.RawConn // nil = the stream has no descriptor to write to without blocking
	spill   *spill          // below TLS; nil = in the clear
	answer  *hello.Answer
	caps    verbs.Capabilities
	sizes   [verbs.RegionLocks + 1]uint64
	session hello.Session

	active atomic.Int32 // queue pairs with a list under way
	awake  atomic.Int32 // owners that the last answers woke and that have not posted since; a guess
	table  [MaxQPs]atomic.Pointer[qp]

	mu      sync.Mutex
	err     error // not nil once no list may be posted any more
	closing bool  // Close was called
	writing bool  // somebody has the role of the writer
	out     []byte
	lists   int   // posted since out was last collected
	queue   []*qp // lists that wait for room in out, first come first
	qps     int
	next    uint16         // where to look for a free place in table
	seqs    [MaxQPs]uint32 // the next sequence of each place, kept when its queue pair changes

	// Only the writer.
	sending []byte // being sent; sending[:sent] is out of our hands
	sent    int
	tried   error // what tryWrite met
	try     func(fd uintptr) bool

	// Only the reader: whoever has the role.
	in     inbox
	woken  []*qp // owners to wake
	served int   // how many the last read woke

	role    atomic.Bool   // somebody reads
	waiting atomic.Int32  // owners that are parked, or about to be
	appoint chan struct{} // the role passes to the background goroutine

	handOver chan struct{} // the role of the writer passes to the flusher
	dead     chan struct{} // closed when the connection has failed or was closed
	bye      chan struct{} // closed when the server answered the farewell
	unread   chan struct{} // closed when nothing reads the connection any more
	ended    sync.WaitGroup
	closeErr error // what Close returned; set before closed is
	closed   chan struct{}

	clock clock

	// Only watch.
	peek    func(fd uintptr) bool
	peeked  [1]byte
	arrived bool
}

func newConn(socket net.Conn, a *hello.Answer, session hello.Session) *conn {
	c := &conn{
		socket: newStream(socket), answer: a, caps: a.Capabilities, session: session,
		out: make([]byte, 0, postBuffer), sending: make([]byte, 0, postBuffer),
		in: newInbox(answerBuffer), woken: make([]*qp, 0, MaxQPs), appoint: make(chan struct{}, 1),
		handOver: make(chan struct{}, 1), dead: make(chan struct{}), bye: make(chan struct{}),
		unread: make(chan struct{}), closed: make(chan struct{}),
	}
	for _, r := range a.Regions {
		c.sizes[r.ID] = r.Size
	}
	if s, ok := socket.(*secureClient); ok {
		c.spill = &s.spill
	}
	if s, ok := socket.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn() // without it, the flusher does all writing
	}
	c.try, c.peek = c.tryWrite, c.tryPeek
	c.clock.init()
	c.ended.Go(c.background)
	if c.raw == nil { // watch cannot look without reading
		c.role.Store(true)
		c.appoint <- struct{}{}
	}
	c.ended.Go(c.flusher)
	c.ended.Go(c.watch)
	return c
}

func (c *conn) Capabilities() verbs.Capabilities { return c.caps }
func (c *conn) Incarnation() uint64              { return c.answer.Incarnation }

func (c *conn) Regions() []verbs.Region {
	return append([]verbs.Region(nil), c.answer.Regions...)
}

// NewQP implements verbs.Conn.
func (c *conn) NewQP(a *verbs.Arena) (verbs.QP, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	most := min(int(c.answer.MaxQPs), MaxQPs)
	if c.qps >= most {
		return nil, fmt.Errorf("tcp: connection has %d queue pairs already: %w", c.qps, verbs.ErrTooMany)
	}
	for c.table[c.next].Load() != nil {
		c.next = uint16((int(c.next) + 1) % most)
	}
	q := &qp{conn: c, arena: a, id: c.next, wake: make(chan struct{}, 1)}
	q.limit.Store(int64(verbs.DefaultLimit))
	c.qps++
	c.table[q.id].Store(q)
	c.next = uint16((int(c.next) + 1) % most)
	return q, nil
}

// post encodes the list of q, which is under way, or lets it wait for room. c.mu is held.
func (c *conn) post(q *qp) {
	c.lists++
	if len(c.queue) > 0 || !c.encode(q) {
		c.queue = append(c.queue, q)
	}
}

// encode moves as much of q's list to out as there is room for and reports whether that is all.
// c.mu is held.
func (c *conn) encode(q *qp) bool {
	for q.encoded < len(q.list) {
		part := q.list[q.encoded:]
		n, size := partOf(part)
		if len(c.out) > 0 && len(c.out)+size > outLimit {
			return false
		}
		h := header{size: uint32(size), qp: q.id, kind: frameList, count: uint8(n), seq: c.seqs[q.id]}
		c.seqs[q.id]++
		c.out = h.append(c.out)
		for i := range n {
			c.out = appendRequest(c.out, &part[i])
		}
		q.encoded += n
	}
	return true
}

// collect takes what is to be sent into sending; false = there is nothing, and the role of the
// writer is free. c.mu is held.
func (c *conn) collect() bool {
	for len(c.queue) > 0 && c.encode(c.queue[0]) {
		c.queue = append(c.queue[:0], c.queue[1:]...)
	}
	if len(c.out) == 0 {
		c.writing = false
		return false
	}
	c.out, c.sending, c.sent, c.lists = c.sending[:0], c.out, 0, 0
	return true
}

// pushStaged sends what was staged. c.mu is held, and released.
func (c *conn) pushStaged() {
	yields := 0
	if c.lists == 1 {
		yields = maxYields
	}
	c.push(yields)
}

// push sends what is in out unless somebody is writing already. Before that it yields at most so
// many times to others that may post too. c.mu is held, and released.
func (c *conn) push(yields int) {
	if c.writing || len(c.out) == 0 {
		c.mu.Unlock()
		return
	}
	c.writing = true
	for n := 0; n < yields && (c.awake.Load() > 0 || n == 0 && c.active.Load() > 1); n++ {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for round := 0; c.collect(); round++ {
		c.mu.Unlock()
		if c.raw == nil || round == inlineRounds {
			c.handOver <- struct{}{} // has room: there is one writer
			return
		}
		if err := c.writeSome(); err != nil {
			c.fail(hello.StreamError(err))
			return // and stay the writer: nobody else is to try
		}
		if c.sent < len(c.sending) || c.spill != nil && c.spill.left() {
			c.handOver <- struct{}{}
			return
		}
		c.mu.Lock()
	}
	c.mu.Unlock()
}

// writeSome sends what the socket takes at once. Under TLS all of sending is sent, and spill has
// what the socket did not take.
func (c *conn) writeSome() error {
	if c.spill == nil {
		err := c.raw.Write(c.try)
		return errors.Join(err, c.tried)
	}
	_, err := c.socket.Write(c.sending)
	c.sent = len(c.sending)
	return err
}

// writeRest sends what is left of sending, and waits until the socket has taken it.
func (c *conn) writeRest() error {
	if c.sent < len(c.sending) {
		if _, err := c.socket.Write(c.sending[c.sent:]); err != nil {
			return err
		}
		c.sent = len(c.sending)
	}
	if c.spill != nil {
		return c.spill.drain()
	}
	return nil
}

// tryWrite sends what the socket takes at once. It is called with the descriptor by the RawConn and
// never asks to wait.
func (c *conn) tryWrite(fd uintptr) bool {
	c.tried = nil
	for c.sent < len(c.sending) {
		n, err := transferOnce(unix.SYS_WRITE, fd, c.sending[c.sent:])
		switch err {
		case 0:
			c.sent += n
		case unix.EAGAIN:
			return true
		default:
			c.tried = &net.OpError{Op: "write", Net: "tcp", Err: err}
			return true
		}
	}
	return true
}

// flusher writes what posters could not, for as long as there is more.
func (c *conn) flusher() {
	for {
		select {
		case <-c.dead:
			return
		case <-c.handOver:
		}
		for {
			if err := c.writeRest(); err != nil {
				c.fail(hello.StreamError(err))
				return
			}
			c.mu.Lock()
			more := c.collect()
			c.mu.Unlock()
			if !more {
				break
			}
		}
	}
}

// fail ends the connection for a reason other than Close. The first reason counts.
func (c *conn) fail(err error) {
	err = fmt.Errorf("tcp: connection to %v: %w", c.socket.RemoteAddr(), err)
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		c.session.Broke()
	}
	c.mu.Unlock()
	if first {
		c.kill(err)
		close(c.dead)
	}
	c.socket.Close()
}

// kill kills every queue pair. c.err must have been set, so that there will be no new ones.
func (c *conn) kill(err error) {
	for i := range c.table {
		if q := c.table[i].Load(); q != nil {
			q.kill(err)
		}
	}
}
