package accept

import (
	"fmt"
	"net"
)

// crypto/tls collects the messages of a handshake before it looks at them: of 256 KiB for a
// certificate, when it does not know yet whose the connection is, and of 64 KiB at any time after.
// So a connection has a ration below TLS: of bytes for its handshake, and for each Read of what is
// encrypted.
const (
	MaxHandshake = 32 << 10 // a certificate and its chain take some 6 KiB
	// a record takes 17 KiB; crypto/tls reads up to 40 KiB ahead
	MaxAhead = 48 << 10
)

// Rationed is a connection that may read so many bytes. Not safe for concurrent use of Read and
// Left.
type Rationed struct {
	net.Conn
	Left int
}

// Read implements net.Conn.
func (r *Rationed) Read(b []byte) (int, error) {
	if r.Left == 0 {
		return 0, ErrRation
	}
	n, err := r.Conn.Read(b[:min(len(b), r.Left)])
	r.Left -= n
	return n, err
}

// ErrRation is returned when a connection sends too much that is nobody's data.
var ErrRation = fmt.Errorf("a handshake of more than %d bytes, or messages to TLS of more than %d: shorten the chain of certificates", MaxHandshake, MaxAhead)
