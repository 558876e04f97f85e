package accept

import (
	"container/list"
	"net"
	"sync"
)

// AtMost is l with at most so many connections open. Where there would be more, the oldest is
// closed for the new one: whoever asks something at once is answered, however many others open
// connections and say nothing. It suits servers whose callers ask again when a connection ends.
// Safe for concurrent use, as l is.
func AtMost(l net.Listener, most int) net.Listener { return &bounded{Listener: l, most: most} }

type bounded struct {
	net.Listener
	most int

	mu   sync.Mutex
	open list.List // of *conn, the oldest first
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	accepted, oldest := b.add(c)
	if oldest != nil {
		oldest.Close()
	}
	return accepted, nil
}

// add counts a connection, and returns the one that must end for it, if any.
func (b *bounded) add(c net.Conn) (accepted, oldest *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open.Len() >= b.most {
		oldest = b.open.Remove(b.open.Front()).(*conn)
	}
	accepted = &conn{Conn: c, of: b}
	accepted.place = b.open.PushBack(accepted)
	return accepted, oldest
}

// conn counts until it is closed.
type conn struct {
	net.Conn
	of    *bounded
	place *list.Element // guarded by of.mu; removing it twice does nothing
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	c.of.open.Remove(c.place)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
