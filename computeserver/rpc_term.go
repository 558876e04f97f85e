//env:real a listener of the machine's network and its connections

package computeserver

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/peer"

	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/pkg/accept"
)

// termListener gives connections their terms and their places in the lobby, and knows those that
// are open. gRPC clients send nothing before the server has greeted them, so what waits to be
// accepted holds no requests.
type termListener struct {
	net.Listener
	eng  *engine.Sessions
	gate *gate

	mu   sync.Mutex
	open map[*termConn]struct{}
}

func newTermListener(l net.Listener, eng *engine.Sessions, gate *gate) *termListener {
	return &termListener{Listener: l, eng: eng, gate: gate, open: map[*termConn]struct{}{}}
}

// Accept implements net.Listener.
func (l *termListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	term, _ := l.eng.NewConnection()
	c := &termConn{Conn: nc, from: l, term: term, ration: accept.Rationed{Conn: nc}, admission: admission{gone: make(chan struct{})}, age: age{over: make(chan struct{})}}
	l.mu.Lock()
	l.open[c] = struct{}{}
	l.mu.Unlock()
	if l.gate.isOpen() {
		c.admit(nil)
	} else {
		c.enter(l.gate.lobby, nc.RemoteAddr(), func() { _ = c.Close() })
	}
	return c, nil
}

// openConns are the connections of this moment.
func (l *termListener) openConns() (all []*termConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		all = append(all, c)
	}
	return all
}

// closeAll closes all connections.
func (l *termListener) closeAll() {
	for _, c := range l.openConns() {
		_ = c.Close() // whatever it says, the connection is over
	}
}

// termConn is a connection whose remote address carries its term, which is how calls learn of it.
type termConn struct {
	net.Conn
	from   *termListener
	term   uint64
	ration accept.Rationed // of Read
	admission

	certificate *certificate // by which its calls are let in; nil = they show passwords
	age
}

func (c *termConn) RemoteAddr() net.Addr { return termAddr{c.Conn.RemoteAddr(), c} }

func (c *termConn) Read(b []byte) (int, error) { return c.ration.Read(b) }

func (c *termConn) Close() error {
	c.end()
	c.from.mu.Lock()
	delete(c.from.open, c)
	c.from.mu.Unlock()
	return c.Conn.Close()
}

type termAddr struct {
	net.Addr
	conn *termConn
}

// termOf is the term of a call's connection; 0 if it did not come through a termListener.
func termOf(ctx context.Context) uint64 {
	if c := connOf(ctx); c != nil {
		return c.term
	}
	return 0
}

// connOf is the connection of a call; nil if it did not come through a termListener.
func connOf(ctx context.Context) *termConn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(termAddr); ok {
			return a.conn
		}
	}
	return nil
}
