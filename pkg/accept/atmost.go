package accept

import "net"

// AtMost is l with at most so many connections open. Where there would be more, one is closed for
// the new one: the oldest of the host with most (see Lobby). A client that asks something at once
// is answered, however many connections others open that say nothing. It suits servers whose
// clients ask again when a connection ends. Safe for concurrent use, as l is.
func AtMost(l net.Listener, most int) net.Listener { return &bounded{l, NewLobby(most, 0)} }

type bounded struct {
	net.Listener
	lobby *Lobby
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{c, b.lobby.Enter(c.RemoteAddr(), func() { c.Close() })}, nil
}

// conn counts until it is closed.
type conn struct {
	net.Conn
	place *Place
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.place.Leave()
	return c.Conn.Close()
}
