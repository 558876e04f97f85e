//env:real a listener of the machine's network and its connections

package computeserver

import (
	"context"
	"net"
	"sync"

	"github.com/dmindex/dmindex/computeserver/engine"
	"google.golang.org/grpc/peer"
)

// termListener gives connections their terms, and knows those that are open. gRPC clients send
// nothing before the server has greeted them, so what waits to be accepted holds no requests.
type termListener struct {
	net.Listener
	eng *engine.Sessions

	mu   sync.Mutex
	open map[*termConn]struct{}
}

func newTermListener(l net.Listener, eng *engine.Sessions) *termListener {
	return &termListener{Listener: l, eng: eng, open: map[*termConn]struct{}{}}
}

// Accept implements net.Listener.
func (l *termListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	term, _ := l.eng.NewConnection()
	c := &termConn{Conn: nc, from: l, term: term}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
	return c, nil
}

// cut closes all connections.
func (l *termListener) cut() {
	l.mu.Lock()
	var all []*termConn
	for c := range l.open {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // whatever it says, the connection is over
	}
}

// termConn is a connection whose remote address carries its term, which is how calls learn of it.
type termConn struct {
	net.Conn
	from *termListener
	term uint64
}

func (c *termConn) RemoteAddr() net.Addr { return termAddr{c.Conn.RemoteAddr(), c.term} }

func (c *termConn) Close() error {
	c.from.mu.Lock()
	delete(c.from.open, c)
	c.from.mu.Unlock()
	return c.Conn.Close()
}

type termAddr struct {
	net.Addr
	term uint64
}

// termOf is the term of a call's connection; 0 if it did not come through a termListener.
func termOf(ctx context.Context) uint64 {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(termAddr); ok {
			return a.term
		}
	}
	return 0
}
