package mirror_test

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dmindex/dmindex/memserver/mirror"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// socket is one end of a connection: a stream of bytes each way, which arrives in order, late, and
// cut anywhere when the connection breaks.
type socket struct {
	w    *world
	p    *simenv.Process
	name string // of the pod
	peer *socket
	more env.Event

	in       []byte
	way      [][]byte      // what has not arrived at the other end
	flying   int           // bytes that have not been read at the other end
	last     time.Duration // when the newest of them arrive
	broken   bool
	complete bool // the other end closed, and all has come
}

const (
	moment = 20 * time.Millisecond
	inFly  = 48 << 10 // bytes that a connection holds
)

var errReset = errors.New("connection reset by the simulated network")

// dial connects a process to another pod, whose process serves the connection.
func (w *world) dial(from *server, to volumes.Proc) (mirror.Conn, error) {
	d := w.pod(to.Pod)
	from.process.Sleep(w.latency(from.pod.name, d.name))
	if d.server == nil || d.server.sink == nil || w.isCut(from.pod.name, d.name) || w.isCut(d.name, from.pod.name) {
		from.process.Sleep(w.UpTo(30 * time.Millisecond))
		return nil, fmt.Errorf("connect to %v: %w", to, errReset)
	}
	s := d.server
	a := &socket{w: w, p: from.process, name: from.pod.name, more: from.process.NewEvent()}
	b := &socket{w: w, p: s.process, name: d.name, more: s.process.NewEvent(), peer: a}
	a.peer = b
	w.sockets = append(w.sockets, a)
	if s.sink.Applied() > 0 {
		w.counts.resumed++
	}
	s.process.Go("serve", func() { s.sink.Serve(b) })
	return a, nil
}

func (w *world) latency(from, to string) time.Duration {
	d := 20*time.Microsecond + w.UpTo(200*time.Microsecond)
	if late := w.slow[wire{from, to}]; late > 0 {
		d += w.UpTo(late)
	}
	return d
}

// reset breaks the connection at both ends. What is in flight is lost.
func (c *socket) reset() {
	c.broken, c.peer.broken = true, true
	c.more.Set()
	c.peer.more.Set()
}

func (c *socket) dead() bool { return c.p.Dead() || c.peer.p.Dead() }

// Read implements mirror.Conn.
func (c *socket) Read(p []byte) (int, error) {
	for waited := false; ; waited = true {
		switch {
		case len(c.in) > 0 && !c.broken:
			n := copy(p, c.in)
			c.in = c.in[n:]
			c.peer.flying -= n
			c.peer.more.Set()
			return n, nil
		case c.complete:
			return 0, io.EOF
		case c.broken || c.dead():
			return 0, errReset
		case waited:
			return 0, nil
		}
		c.more.Wait(moment)
	}
}

// Write implements mirror.Conn.
func (c *socket) Write(p []byte) (int, error) {
	for until := c.p.Now() + moment; c.flying == inFly && !c.broken && !c.dead() && c.p.Now() < until; {
		c.p.Sleep(time.Millisecond)
	}
	if c.broken || c.dead() {
		return 0, errReset
	}
	n := min(len(p), inFly-c.flying)
	if n > 1 && c.w.OneIn(4) {
		n = 1 + c.w.Random.IntN(n)
	}
	to := c.peer
	c.way = append(c.way, append([]byte(nil), p[:n]...))
	c.flying += n
	c.last = max(c.last, c.w.Now()+c.w.latency(c.name, to.name))
	c.w.After(c.last-c.w.Now(), to.p, c.arrive)
	return n, nil
}

// arrive takes what is next to the other end.
func (c *socket) arrive() {
	to := c.peer
	if c.w.isCut(c.name, to.name) {
		c.w.After(10*time.Millisecond, to.p, c.arrive) // it is sent again
		return
	}
	b := c.way[0]
	if c.way = c.way[1:]; to.broken {
		return
	}
	to.in = append(to.in, b...)
	to.more.Set()
}

// Close implements mirror.Conn.
func (c *socket) Close() error {
	c.broken = true
	c.w.After(c.w.latency(c.name, c.peer.name), c.peer.p, func() {
		c.peer.complete = true
		c.peer.more.Set()
	})
	return nil
}

// wire is one direction between two pods.
type wire struct{ from, to string }

func (w *world) isCut(from, to string) bool { return w.cuts[wire{from, to}] > 0 }
