//go:build ibv

package ibv

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

// Limits of the client.
const (
	pairLimit  = 5 * time.Second // for the server to make its half of a pair
	closeLimit = 5 * time.Second // for the server to answer a farewell
)

// conn is a verbs.Conn. One goroutine reads the bootstrap connection; its end is the end of all
// queue pairs.
type conn struct {
	device  *device
	hca     *hca   // of its queue pairs
	owner   uint64 // of them: they end together
	socket  net.Conn
	answer  *hello.Answer
	caps    verbs.Capabilities
	regions [verbs.RegionLocks + 1]remoteRegion
	session hello.Session

	asking  sync.Mutex // held while the server is asked for something: one at a time
	seq     uint32     // of the last question
	answers chan frame // the last one, to this or an earlier question

	writing sync.Mutex
	making  sync.WaitGroup // a member for each NewQP; added to under mu, as long as err is nil

	mu      sync.Mutex
	err     error // not nil once no queue pair may be made any more
	closing bool  // Close was called
	count   int
	next    int // where to look for a free slot
	used    [MaxQPs]bool
	qps     map[*qp]struct{}

	dead     chan struct{} // closed when the bootstrap connection has ended
	bye      chan struct{} // closed when the server answered the farewell
	ended    sync.WaitGroup
	closeErr error // what Close returned; set before closed is
	closed   chan struct{}
}

func newConn(d *device, h *hca, socket net.Conn, a *hello.Answer, regions [verbs.RegionLocks + 1]remoteRegion, session hello.Session) *conn {
	c := &conn{
		device: d, hca: h, socket: socket, answer: a, caps: a.Capabilities, regions: regions, session: session, answers: make(chan frame, 1),
		qps: map[*qp]struct{}{}, dead: make(chan struct{}), bye: make(chan struct{}), closed: make(chan struct{}),
	}
	// Capabilities of both sides: the path's MTU is the smaller one, and a raw entry needs a NIC
	// here that takes it.
	c.caps.WholeWrite = min(c.caps.WholeWrite, mtuBytes(uint8(h.about.mtu)))
	c.caps.MaskedAtomics = c.caps.MaskedAtomics && h.raw
	c.caps.Calls = regions[verbs.RegionData].calls
	c.ended.Go(c.read)
	c.owner = h.owns(c.lose)
	return c
}

func (c *conn) Capabilities() verbs.Capabilities { return c.caps }
func (c *conn) Incarnation() uint64              { return c.answer.Incarnation }

func (c *conn) Regions() []verbs.Region {
	return append([]verbs.Region(nil), c.answer.Regions...)
}

// read hands on what the server says, until the end.
func (c *conn) read() {
	defer close(c.dead)
	for {
		f, err := readFrame(c.socket)
		if err == nil && f.kind == frameDrop {
			err = errFrame // the server asks for nothing
		}
		if err != nil {
			if !errors.Is(err, errFrame) {
				err = verbs.ErrDisconnected
			}
			c.fail(fmt.Errorf("ibv: connection to %v: %w", c.socket.RemoteAddr(), err))
			return
		}
		if f.kind == frameBye {
			close(c.bye)
			return
		}
		c.hand(f)
	}
}

// hand hands an answer to whoever asked. One that nobody took was to a question that was given up,
// since the server answers in order: the newer one takes its place. Only read calls it.
func (c *conn) hand(f frame) {
	for {
		select {
		case c.answers <- f:
			return
		default:
		}
		select {
		case <-c.answers:
		default: // it was taken meanwhile
		}
	}
}

// lose ends the connection, since the NIC ended one of its queue pairs or is gone. The server hears
// of it by the end of the bootstrap connection.
func (c *conn) lose(reason error) {
	c.fail(fmt.Errorf("ibv: connection to %v: %w", c.socket.RemoteAddr(), reason))
	c.socket.Close()
}

// fail ends all queue pairs. The first reason counts.
func (c *conn) fail(reason error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = reason
		if !errors.Is(reason, verbs.ErrClosed) {
			c.session.Broke() // before anybody sees it, and connects anew
		}
	}
	reason = c.err
	list := make([]*qp, 0, len(c.qps))
	for q := range c.qps {
		// of all before the first is destroyed, which takes a while: none answers meanwhile
		q.reason.CompareAndSwap(nil, &reason)
		list = append(list, q)
	}
	c.mu.Unlock()
	together(len(list), func(i int) { list[i].kill(reason) })
}

// send writes a frame to the server.
func (c *conn) send(f *frame) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.socket.SetWriteDeadline(time.Now().Add(pairLimit))
	if _, err := c.socket.Write(f.append(nil)); err != nil {
		c.socket.Close() // half a frame may be out
		return hello.StreamError(err)
	}
	return nil
}

// NewQP implements verbs.Conn. It takes a round trip to the server's process: ErrTimeout if that
// does not answer.
func (c *conn) NewQP(a *verbs.Arena) (verbs.QP, error) {
	lkey, ok := c.device.key(a)
	if !ok {
		return nil, fmt.Errorf("ibv: new queue pair: the arena is not of this device: %w", verbs.ErrNotRegistered)
	}
	slot, err := c.reserve()
	if err != nil {
		return nil, err
	}
	defer c.making.Done()
	r, err := c.hca.newRequester(c.owner)
	if err != nil {
		c.free(slot)
		return nil, fmt.Errorf("ibv: %w", err)
	}
	if err := c.pair(r, slot); err != nil {
		r.destroy()
		c.send(&frame{kind: frameDrop, slot: slot})
		c.free(slot)
		return nil, fmt.Errorf("ibv: new queue pair with %v: %w", c.socket.RemoteAddr(), err)
	}
	r.encoder.lkey, r.encoder.regions = lkey, c.regions
	q := &qp{conn: c, arena: a, slot: slot, r: r}
	q.limit.Store(int64(verbs.DefaultLimit))
	c.mu.Lock()
	err = c.err
	c.qps[q] = struct{}{}
	c.mu.Unlock()
	if err != nil { // it ended meanwhile, and did not see q
		q.kill(err)
		q.Close()
		return nil, err
	}
	return q, nil
}

// reserve takes a slot.
func (c *conn) reserve() (slot uint16, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	most := min(int(c.answer.MaxQPs), MaxQPs)
	if c.count >= most {
		return 0, fmt.Errorf("ibv: connection has %d queue pairs already: %w", c.count, verbs.ErrTooMany)
	}
	for c.used[c.next] {
		c.next = (c.next + 1) % most
	}
	slot = uint16(c.next)
	c.used[slot] = true
	c.count++
	c.making.Add(1)
	c.next = (c.next + 1) % most
	return slot, nil
}

func (c *conn) free(slot uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used[slot] = false
	c.count--
}

// pair lets the server make a queue pair for r and connects the two. Where it fails the server may
// have made one.
func (c *conn) pair(r *requester, slot uint16) error {
	mine := c.hca.endpoint(r.c.qp.qp_num)
	f, err := c.ask(frame{kind: framePair, slot: slot, endpoint: mine})
	if err != nil {
		return err
	}
	if f.code != codeOK {
		return codeErr(f.code)
	}
	return r.connect(&mine, &f.endpoint)
}

// ask sends a frame and waits for its answer.
func (c *conn) ask(question frame) (answer frame, err error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	c.seq++
	question.seq = c.seq
	if err := c.send(&question); err != nil {
		return answer, err
	}
	limit := time.NewTimer(pairLimit)
	defer limit.Stop()
	for {
		select {
		case f := <-c.answers:
			if f.seq == question.seq && f.slot == question.slot && f.kind == question.kind {
				return f, nil
			}
		case <-c.dead:
			return answer, verbs.ErrDisconnected
		case <-limit.C:
			return answer, verbs.ErrTimeout
		}
	}
}

// drop gives up the slot of q, which is dead.
func (c *conn) drop(q *qp) {
	c.send(&frame{kind: frameDrop, slot: q.slot}) // before the slot is free for another
	c.mu.Lock()
	delete(c.qps, q)
	c.mu.Unlock()
	c.free(q.slot)
}

// Close implements verbs.Conn. See the package comment for what it promises.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		<-c.closed
		return c.closeErr
	}
	c.closing = true
	broken := c.err
	c.mu.Unlock()
	if c.closeErr = broken; broken == nil {
		left := c.session.Leave()
		c.closeErr = c.farewell()
		left()
	}
	c.socket.Close()
	c.ended.Wait()
	c.making.Wait()
	c.hca.ownsNoMore(c.owner)
	c.device.forget(c)
	close(c.closed)
	return c.closeErr
}

// farewell ends the queue pairs, and waits until the server has ended its own.
func (c *conn) farewell() (err error) {
	c.fail(fmt.Errorf("ibv: connection to %v: %w", c.socket.RemoteAddr(), verbs.ErrClosed))
	if err = c.send(&frame{kind: frameBye}); err == nil {
		limit := time.NewTimer(closeLimit)
		defer limit.Stop()
		select {
		case <-c.bye:
			return nil
		case <-c.dead:
			err = verbs.ErrDisconnected
		case <-limit.C:
			err = verbs.ErrTimeout
		}
	}
	select {
	case <-c.bye: // dead is closed with it
		return nil
	default:
	}
	c.session.Broke()
	return fmt.Errorf("ibv: close the connection to %v: its last requests may still take effect: %w", c.socket.RemoteAddr(), err)
}
