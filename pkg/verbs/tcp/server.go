package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
	"github.com/dmindex/dmindex/pkg/verbs/internal/serve"
)

// Limits of the server.
const (
	MaxQPs = 1024 // queue pairs of one connection

	flushAt    = 256 << 10        // bytes of answers that are sent although more requests wait
	readBuffer = 64 << 10         // bytes read at once; grows to a frame where one is longer
	writeLimit = 30 * time.Second // for a client to take what was answered; twice that at most
)

// Capabilities are those of every connection of this provider, besides Calls, which is the server's choice. The server executes a list in order, so READs are ordered, and
// it executes a frame only once it has all of it, so a WRITE is applied whole or not at all, whatever becomes of the client.
func Capabilities() verbs.Capabilities {
	return verbs.Capabilities{OrderedReads: true, MaskedAtomics: true, WholeWrite: verbs.MaxTransfer}
}

// NewServer makes the memory server's half. Serve takes listeners of any stream; those of network "tcp" get keepalive probes.
//
// A connection costs one goroutine and up to about 2.5 MiB of buffers if its client uses the largest transfers, about 128 KiB
// if it does not.
func NewServer(o verbs.ServerOptions) (verbs.Server, error) {
	space, err := mapped.NewSpace(o.Memory)
	if err != nil {
		return nil, fmt.Errorf("tcp server: %w", err)
	}
	callers, caps := verbs.NewCallers(o), Capabilities()
	caps.Calls = callers.Any()
	return serve.New(o, serve.Provider{
		Capabilities: caps,
		MaxQPs:       MaxQPs,
		Regions:      space.Regions(),
		Answer:       sendAnswer,
		Run:          func(s *serve.Session) { newSession(s, space, callers).run() },
		Cut:          func(s *serve.Session) { s.Conn.Close() },
	})
}

func sendAnswer(s *serve.Session, answer []byte) error {
	keepAlive(s.Conn)
	_, err := s.Conn.Write(answer)
	return err
}

// keepAlive lets a connection to a machine that is gone end within half a minute.
func keepAlive(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4})
	}
}

// session executes the lists of one connection, in the order they arrive, on one goroutine: so every list of a queue pair
// is in order, and when run returns nothing of the session takes effect any more. A client that does not take its answers
// stops being read, so what it can make the server hold is bounded by the two buffers.
type session struct {
	conn    net.Conn
	peer    verbs.Peer
	space   *mapped.Space
	callers *verbs.Callers

	in       inbox
	out      []byte // answers not yet sent
	reqs     [verbs.MaxList]request
	deadline time.Time // for writes, as last set
}

func newSession(c *serve.Session, space *mapped.Space, callers *verbs.Callers) *session {
	return &session{conn: newStream(c.Conn), peer: c.Peer, space: space, callers: callers, in: newInbox(readBuffer), out: make([]byte, 0, readBuffer)}
}

// errBye ends a session whose client said farewell.
var errBye = errors.New("bye")

func (s *session) run() {
	for {
		err := s.in.fill(s.conn)
		if e := s.execute(); e != nil {
			s.flush() // an error frame or the farewell; whoever is gone misses nothing
			return
		}
		if s.flush() != nil || err != nil {
			return
		}
	}
}

// execute executes every whole frame that has arrived and appends the answers.
func (s *session) execute() error {
	for {
		h, frame, err := s.in.next()
		if err != nil {
			return s.fail(&h, codeMalformed, err)
		}
		if frame == nil {
			return nil
		}
		switch h.kind {
		case frameList:
			err = s.list(&h, frame)
		case frameBye:
			s.out = (&header{size: headerSize, kind: frameBye}).append(s.out)
			err = errBye
		default:
			err = s.fail(&h, codeMalformed, fmt.Errorf("frame of kind %d: %w", h.kind, errFrame))
		}
		if err == nil && len(s.out) >= flushAt {
			err = s.flush()
		}
		if err != nil {
			return err
		}
	}
}

// fail answers with an error frame, the last of the session.
func (s *session) fail(h *header, code uint32, err error) error {
	s.out = (&header{size: headerSize, kind: frameError, qp: h.qp, seq: h.seq, code: code}).append(s.out)
	return err
}

// list executes one list frame: nothing of it unless all of it is right.
func (s *session) list(h *header, frame []byte) error {
	list, answer, err := decodeList(h, frame, &s.reqs)
	if err != nil {
		return s.fail(h, codeMalformed, err)
	}
	if list[0].Op == verbs.Call {
		if !s.callers.Any() {
			return s.fail(h, codeMalformed, verbs.ErrUnsupported)
		}
		s.call(h, &list[0])
		return nil
	}
	at := len(s.out)
	s.out = slices.Grow(s.out, answer)[:at+answer]
	(&header{size: uint32(answer), qp: h.qp, kind: frameList, count: h.count, seq: h.seq}).put(s.out[at:])
	at += headerSize
	for i := range list {
		r := &list[i]
		if r.Op != verbs.Write {
			r.Local = s.out[at : at+r.length : at+r.length]
			clear(s.out[at+r.length : at+pad(r.length)])
			at += pad(r.length)
		}
		if !s.space.InRange(&r.Request) {
			s.out = s.out[:len(s.out)-answer]
			return s.fail(h, codeOutOfRange, verbs.ErrOutOfRange)
		}
	}
	pending := false
	var old uint64
	for i := range list {
		r := &list[i].Request
		old, pending = s.space.Apply(r, pending)
		if r.Op.Atomic() {
			binary.LittleEndian.PutUint64(r.Local, old)
		}
	}
	if pending {
		mapped.Barrier() // what the answer reports is seen by everybody (G3)
	}
	return nil
}

// flush sends the answers. The deadline is moved only when half of it has gone by: setting one costs more than a small write.
func (s *session) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	if now := time.Now(); s.deadline.Sub(now) < writeLimit {
		s.deadline = now.Add(2 * writeLimit)
		s.conn.SetWriteDeadline(s.deadline)
	}
	_, err := s.conn.Write(s.out)
	s.out = s.out[:0]
	return err
}
