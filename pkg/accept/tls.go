package accept

import (
	"crypto/tls"
	"net"
)

// TLS is the server's end of a connection under TLS. It reads no more than its ration before it has
// shaken hands, and none of its calls waits for a farewell: Close closes the connection below, and
// sends nothing. One goroutine reads.
type TLS struct {
	*tls.Conn
	below  Rationed
	shaken bool
}

// NewTLS begins TLS on a connection. The first Read shakes hands, unless Handshake did.
func NewTLS(c net.Conn, config *tls.Config) *TLS {
	t := &TLS{below: Rationed{Conn: c, Left: MaxHandshake}}
	t.Conn = tls.Server(&t.below, config)
	return t
}

// Read implements net.Conn.
func (t *TLS) Read(b []byte) (int, error) {
	if !t.shaken {
		if err := t.Handshake(); err != nil {
			return 0, err
		}
	}
	t.below.Left = MaxAhead
	return t.Conn.Read(b)
}

// Handshake shakes hands, within the deadlines of the connection. Who reads calls it.
func (t *TLS) Handshake() error {
	err := t.Conn.Handshake()
	t.shaken = err == nil
	return err
}

// Close implements net.Conn.
func (t *TLS) Close() error { return t.below.Conn.Close() }

// NetConn is the connection below.
func (t *TLS) NetConn() net.Conn { return t.below.Conn }
