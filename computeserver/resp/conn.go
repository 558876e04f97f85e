//env:real a connection of the machine's network, with its deadlines

package resp

import (
	"net"
	"sync/atomic"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Buffers of a connection.
const (
	respBuffer  = 16 << 10 // for reading, to begin with
	respFlushAt = 64 << 10 // replies of a pipeline are sent when there are as many bytes
	// a buffer that grew beyond this is given back when the connection is quiet, and beyond the
	// double when it is sent
	respKeep = 64 << 10
	respArgs = 1 << 10 // arguments of a command; where there are more, they count as a buffer
	// replies whose session is not back yet; then it goes back, and another one is borrowed
	respProvisional = 1 << 10
)

// conn is one RESP connection. All of it belongs to the goroutine of serve, but for what CLIENT
// LIST shows.
//
// The commands of a pipeline run one after the other, in one borrowed session, and take effect at
// once. What several of them READ is READ side by side (window.go). A pipeline is what one read of
// the connection brings. Before its replies are sent the session is returned: that waits, once,
// until the log is durable up to all that the pipeline did and saw. What waits is bounded by
// respProvisional and respFlushAt. Commands whose keys belong to other servers are set aside and
// sent together at the end of the pipeline (forwards.go); their replies go to their places.
type conn struct {
	s   *Server
	nc  net.Conn
	id  uint64
	who clientInfo

	term uint64        // in which it was accepted
	time engine.Timing // that the changes have which were read together

	in    []byte // bytes read; in[:begin] are done
	begin int
	// until when the rest of a command has to be here of which some bytes are; zero if none are
	halfUntil time.Time
	// deadlines of reads and of writes, as serve last set them; zero = to be set anew
	readUntil, writeUntil time.Time
	frames                frames
	args                  [][]byte   // of the window's commands
	alone                 [1]pending // the window of who sends no pipelines
	window                *window    // nil before its first pipeline

	out     []byte // replies
	value   []byte // of outcome
	op      rpcv1.Operation
	list    []byte // the value of op, where that is made of several arguments
	outcome rpcv1.Outcome
	account account

	session     *engine.Session // nil when none is held
	worst       error           // of what it returned
	provisional []provisional   // replies from what it gave
	pinned      *partition.Map
	home        partition.Span // a range that homeBy, which never changes, gives to this server
	homeBy      *partition.Map
	forwards    forwardQueue

	// Of the way in. place is changed under s.mu.
	from      net.Addr
	wrong     int           // passwords that it showed, ever
	anonymous int           // bytes that were read before it authenticated
	place     *accept.Place // in the lobby; nil once it has authenticated
	gone      chan struct{} // closed when the connection lost its place

	// The pipeline waited for these in vain. It waits once: what comes behind is tried, and waits
	// for no more than is left of the limit, which counts from when the pipeline was read.
	unopened bool // a session; the commands behind are set aside, or answered at once
	waited   bool // a session, or a server that has some keys

	scripted bool // it is not a client's: a script calls commands with it (Call)

	divided bool // commands on one key are set aside, to be divided among sessions
	multi   transaction
	cursors ownCursors
	// Of CLIENT REPLY (reply.go): while muted, replies from mutedFrom on are dropped.
	replies   replies
	muted     bool
	mutedFrom int
	// database is what the last SELECT asked for, if it was refused: see cmdSelect.
	database string
	// Of CLIENT TRACKING (tracking.go): a command touched the index since the last flush.
	tracking, touched bool
	sub               *subscriber // nil without subscriptions
	heardAs           *users.User // whose rights to the subscriptions were looked at last
	execFrom          int         // in out, where EXEC replies, and one more; 0 = none does
	login             users.Login // nobody's before AUTH
	resp3             bool
	closing           bool        // after the replies so far
	ended             atomic.Bool // by others: no command is begun any more
	refuse            bool        // the commands of this pipeline: draining is nearly over
	tally             count.Tally
}

// serve runs the connection until it ends.
func (c *conn) serve() {
	defer c.end()
	var why error
	for why == nil && !c.closing {
		if why = c.readTurn(); why != nil {
			break
		}
		began := c.s.core.Env.Now()
		c.time = engine.NewTiming(began+c.s.core.Limit, c.s.core.Limit)
		c.unopened, c.waited = false, false
		why = c.run()
		c.settle()
		c.closing = c.closing || c.refuse
		took := c.s.core.Env.Now() - began
		if took >= c.s.limits.Load().SlowAfter {
			c.noteSlow(took, c.tally.Total())
		}
		c.tally.Publish(c.s.front, took)
		if why == nil && !c.closing {
			why = c.flush()
		}
	}
	c.hangUp(why)
}

// authed reports whether the client has logged in.
func (c *conn) authed() bool { return c.login.User() != nil }

// run runs the complete commands of the read buffer.
func (c *conn) run() error {
	for !c.closing && !c.ended.Load() {
		commands, broken := c.gather()
		for i := 0; i < len(commands) && !c.closing && !c.ended.Load(); i++ {
			c.lookAhead(commands, i)
			p := &commands[i]
			if c.replies != repliesOn {
				c.runQuietly(p)
			} else {
				c.dispatchAny(p)
			}
			if c.sub != nil {
				c.takePushes()
			}
			if err := c.boundReplies(); err != nil {
				return err
			}
		}
		if broken != nil || len(commands) == 0 {
			return broken
		}
	}
	return nil
}

// boundReplies returns the session, and sends replies, when there are many of them.
func (c *conn) boundReplies() error {
	if len(c.provisional) >= respProvisional {
		c.settle()
	}
	// Replies that are small are appended without a look at the budget. Where it has no room
	// for a larger buffer, the replies so far are sent, and with them the buffer goes.
	if len(c.out) > respFlushAt || !c.authed() && len(c.out) > anonymousFlushAt || int64(cap(c.out)) > c.account.bytes[holdOut] && c.account.set(holdOut, cap(c.out)) != nil {
		c.settle()
		return c.flush()
	}
	return nil
}

// dispatchAny runs a command of few or many arguments.
func (c *conn) dispatchAny(p *pending) {
	if len(p.args) > respArgs {
		c.dispatchMany(p)
	} else {
		c.dispatch(p)
	}
}

// dispatchMany runs a command of many arguments.
func (c *conn) dispatchMany(p *pending) {
	if err := c.account.set(holdArgs, cap(p.args)*argBytes); err != nil {
		c.tally.Slot = len(CommandNames) - 1
		c.fail(err)
	} else {
		c.dispatch(p)
	}
	p.args = nil
	c.args = nil
	c.account.force(holdArgs, 0)
}

// settle finishes what the commands so far left open: the session, and requests set aside. Neither
// waits for the other: what was set aside is sent while the session waits for the log. No key is in
// both, and to return the session nothing but a memory server is needed, so servers that forward to
// each other do not wait for each other's sessions.
func (c *conn) settle() {
	a := &c.forwards
	c.divided = false
	if len(a.ops) == 0 {
		c.release()
		return
	}
	sent := c.s.core.Begin(a.ops, false, c.timeLeft(a.changes), c.term)
	c.release()
	outcomes := sent.Wait() // within the limit
	c.noteWaits(outcomes)
	c.fillHoles(outcomes)
}

// holdSession borrows a session until settle, unless one is held. The error has been replied.
func (c *conn) holdSession() *engine.Session {
	if c.session == nil {
		if err := c.borrow(); err != nil {
			c.fail(err)
			return nil
		}
	}
	return c.session
}

// borrow borrows a session until settle. It waits for one, but once for all of the pipeline.
func (c *conn) borrow() error {
	limit := c.s.core.Limit
	if c.unopened {
		limit = 0
	}
	s, err := c.s.core.Sessions.Borrow(limit, c.term)
	if err != nil {
		c.unopened, c.waited = true, true
		return err
	}
	c.session = s
	return nil
}

// noteWaits notes whether some of what went through the engine waited in vain.
func (c *conn) noteWaits(outcomes []*rpcv1.Outcome) {
	for _, o := range outcomes {
		c.noteWait(o.Code)
	}
}

func (c *conn) noteWait(code rpcv1.Outcome_Code) {
	c.waited = c.waited || code == rpcv1.Outcome_UNAVAILABLE || code == rpcv1.Outcome_TIMED_OUT
}

// timeLeft is how much time commands have that go through the engine. Reads have all of the limit,
// as when they are made is nobody else's business, until something waited in vain.
func (c *conn) timeLeft(changes bool) time.Duration {
	if limit := c.s.core.Limit; !changes && !c.waited || c.time.Deadline == 0 {
		return limit
	}
	return env.Remaining(c.s.core.Env, c.time.Deadline)
}

// noteError notes what the held session returned; a dead one is given back at once.
func (c *conn) noteError(err error) {
	if engine.Kills(err) {
		c.worst = err
		c.release()
	}
}

// release gives the session back, which waits for the log once for all that it did. If that fails,
// or its client lost its leases, what it gave is not replied.
func (c *conn) release() {
	if c.session == nil {
		return
	}
	if why := c.s.core.Sessions.Repay(c.session, c.worst); why != nil {
		c.takeBack(why)
	}
	c.session, c.worst, c.provisional = nil, nil, c.provisional[:0]
	if c.window != nil {
		c.window.forget()
	}
}
