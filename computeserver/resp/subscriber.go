//env:real a connection of the machine's network, and the goroutine that pushes

package resp

import (
	"slices"
	"sync"
	"time"

	"github.com/tidwall/redcon"

	"github.com/dmindex/dmindex/computeserver/pubsub"
)

// subscriber is what a connection has beside while it has subscriptions, or monitors: a buffer into
// which any goroutine pushes messages, and a goroutine that sends them while the connection waits
// for commands.
//
//	read ──► turn.Lock ──► commands, each followed by takePushes ──► flush ──► turn.Unlock
//	push ──► turn.Lock ──► write ──► turn.Unlock
//
// The connection's own goroutine has the turn but while it reads, so a message is never sent inside
// of a reply, nor before the confirmation of its subscription. What comes while commands run is
// sent behind the reply of the command.
//
// A client that does not take its messages is cut at mostPushes, or where the budget has no room,
// as leaving one out would not be seen.
type subscriber struct {
	c *conn

	// Of the connection's goroutine.
	names    [pubsub.Kinds]map[string]struct{}
	bytes    int  // of the names, and some for each
	monitors bool // see MONITOR

	turn sync.Mutex // to write to the connection
	wake chan struct{}
	done chan struct{} // closed by part

	mu struct {
		sync.Mutex
		resp3   bool
		pending []byte
		sending int  // capacity of what is being sent
		wanted  bool // the connection's goroutine waits for the turn, and has it next
		account account
		ended   bool // nothing is taken any more
	}
}

// mostPushes is how many bytes wait for a client at most, as Redis has it.
const mostPushes = 32 << 20

// leastPushes is how many bytes the buffer of messages begins with.
const leastPushes = 1 << 10

// subscribes makes the connection one that may have subscriptions, or monitor. It has the turn.
func (c *conn) subscribes() *subscriber {
	if c.sub == nil {
		s := &subscriber{c: c, wake: make(chan struct{}, 1), done: make(chan struct{})}
		s.mu.resp3 = c.resp3
		s.mu.account.of = &c.s.budget
		s.mu.account.belong(text(&c.who.user))
		s.turn.Lock()
		c.sub = s
		go s.push()
	}
	return c.sub
}

// count is how many subscriptions there are, of channels and patterns, or of shards.
func (s *subscriber) count(sharded bool) int {
	switch {
	case s == nil:
		return 0
	case sharded:
		return len(s.names[pubsub.Shards])
	}
	return len(s.names[pubsub.Channels]) + len(s.names[pubsub.Patterns])
}

// listens reports whether there are subscriptions.
func (s *subscriber) listens() bool { return s.count(true)+s.count(false) > 0 }

// Push implements pubsub.Subscriber.
func (s *subscriber) Push(kind pubsub.Kind, name string, m *pubsub.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.roomLocked(pushBytes(name, m)) {
		s.mu.pending = appendMessage(s.mu.pending, s.mu.resp3, kind, name, m)
		s.c.s.core.Count.Delivered.Add(1)
		s.wakeLocked()
	}
}

// roomLocked makes room for so many bytes. It reports false if there is none, and cuts the client,
// or if nothing is taken any more.
func (s *subscriber) roomLocked(bytes int) bool {
	p := &s.mu
	if p.ended {
		return false
	}
	if need := len(p.pending) + bytes; need > cap(p.pending) {
		room := max(need, min(2*cap(p.pending), mostPushes), leastPushes)
		if need+p.sending > mostPushes || p.account.set(holdOut, room+p.sending) != nil {
			s.endLocked()
			s.c.s.core.Count.SubscribersCut.Add(1)
			s.c.abandon()
			return false
		}
		p.pending = append(make([]byte, 0, room), p.pending...)
	}
	return true
}

// wakeLocked wakes the goroutine that sends.
func (s *subscriber) wakeLocked() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// pushBytes is how many bytes a message has at most as it is sent.
func pushBytes(name string, m *pubsub.Message) int {
	return 64 + len(name) + len(m.Channel) + len(m.Payload)
}

// appendMessage appends a message as a client gets it.
func appendMessage(b []byte, resp3 bool, kind pubsub.Kind, name string, m *pubsub.Message) []byte {
	if kind == pubsub.Patterns {
		b = redcon.AppendBulkString(appendPushHead(b, resp3, 4), "pmessage")
		b = redcon.AppendBulkString(b, name)
	} else {
		b = redcon.AppendBulkString(appendPushHead(b, resp3, 3), kindPrefix[kind]+"message")
	}
	return redcon.AppendBulk(redcon.AppendBulk(b, m.Channel), m.Payload)
}

func appendPushHead(b []byte, resp3 bool, n int) []byte {
	if resp3 {
		return append(b, '>', byte('0'+n), '\r', '\n')
	}
	return append(b, '*', byte('0'+n), '\r', '\n')
}

// push sends messages until the connection has no subscriptions any more, and does not monitor.
func (s *subscriber) push() {
	for {
		select {
		case <-s.done:
			return
		case <-s.wake:
		}
		s.turn.Lock()
		err := s.write(s.begin())
		s.noteSent()
		s.turn.Unlock()
		if err != nil {
			s.c.abandon()
			return
		}
	}
}

// begin is what is to be sent. Nothing is while the connection's goroutine waits for the turn: it
// may find that a right is gone.
func (s *subscriber) begin() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.wanted {
		return nil
	}
	b := s.mu.pending
	s.mu.pending, s.mu.sending = nil, cap(b)
	return b
}

// noteSent notes that what begin gave is sent.
func (s *subscriber) noteSent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.sending = 0
	if !s.mu.ended {
		s.mu.account.force(holdOut, cap(s.mu.pending))
	}
}

// write sends messages, in portions each of which has the time of a reply, until nothing is taken
// any more: readTurn may set a deadline between two of them.
func (s *subscriber) write(b []byte) error {
	c := s.c
	for len(b) > 0 && !s.hasEnded() {
		n := min(len(b), respFlushAt)
		if err := c.limitWrite(); err != nil {
			return err
		}
		if _, err := c.nc.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// takePushes appends the messages so far to the replies. Those that come while EXEC replies stand
// before its reply, as it is one.
func (c *conn) takePushes() {
	s := c.sub
	s.mu.Lock()
	b := s.takeLocked()
	s.mu.Unlock()
	if at := c.execFrom - 1; at >= 0 && !c.muted {
		c.out = slices.Insert(c.out, at, b...)
		c.execFrom += len(b)
		return
	}
	c.appendPush(b)
}

// takeLocked returns the messages so far. Nothing is being sent.
func (s *subscriber) takeLocked() []byte {
	b := s.mu.pending
	if len(b) > 0 {
		s.mu.pending = nil
		s.mu.account.force(holdOut, 0)
	}
	return b
}

// appendPush appends what is sent also where replies are not wanted.
func (c *conn) appendPush(b []byte) {
	if !c.muted || len(b) == 0 {
		c.out = append(c.out, b...)
		return
	}
	c.settle()
	c.dropMuted()
	c.out = append(c.out, b...)
	c.mutedFrom = len(c.out)
}

// readTurn reads, while messages are sent. A connection that is over waits for no client to take
// its messages. One whose client takes them slowly may wait for its turn for longer than the rights
// last by which it read: it looks at them again before it runs or sends anything.
func (c *conn) readTurn() error {
	s := c.sub
	if s == nil {
		why := c.read()
		if why == nil && c.revoked() {
			why = errRevoked
		}
		return why
	}
	s.turn.Unlock()
	why := c.read()
	if why != nil {
		s.end()
		_ = c.nc.SetWriteDeadline(time.Now()) // ends the write that may be under way
	}
	s.want(true)
	s.turn.Lock()
	s.want(false)
	switch {
	case why != nil:
		c.writeUntil = time.Time{}
	case c.revoked():
		why = errRevoked
		s.end()
	}
	return why
}

// want notes whether the connection's goroutine waits for the turn. What was not sent meanwhile is
// sent when the goroutine reads again.
func (s *subscriber) want(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.wanted = is; !is && len(s.mu.pending) > 0 {
		s.wakeLocked()
	}
}

func (s *subscriber) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ended
}

// end drops what has not been sent.
func (s *subscriber) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
}

func (s *subscriber) endLocked() {
	if !s.mu.ended {
		s.mu.ended, s.mu.pending = true, nil
		s.mu.account.close()
	}
}

// endSubscribing ends what the connection has while it has subscriptions, or monitors. It does not
// any more, and has the turn.
func (s *subscriber) endSubscribing() {
	s.end()
	close(s.done)
	s.turn.Unlock()
	s.c.sub = nil
}

// setProtocol sets the protocol of messages from now on; those before stand before what is said
// next.
func (s *subscriber) setProtocol(resp3 bool) {
	s.mu.Lock()
	s.mu.resp3 = resp3
	b := s.takeLocked()
	s.mu.Unlock()
	s.c.appendPush(b)
}

// belong makes what waits the user's of this name.
func (s *subscriber) belong(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.ended {
		s.mu.account.belong(name)
	}
}

// abandon ends the connection of a client that does not take what it is sent, without waiting. It
// may be called by any goroutine.
func (c *conn) abandon() {
	if socket := socketOf(c.nc); socket != nil {
		_ = socket.SetLinger(0) // as flush does
	}
	c.cut()
}
