//env:real connections of a gRPC server, and certificates on the machine's clock

package computeserver

import (
	"crypto/tls"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/metadata"

	"github.com/dmindex/dmindex/api/rpc/dostream"
	"github.com/dmindex/dmindex/pkg/identity"
)

// A connection does not outlive what it was admitted with by much, and no request notices when it
// ends:
//
//  1. After Config.ConnectionAge, give or take a tenth, gRPC sends GOAWAY. The caller begins no
//     more on this connection. What it began counts on.
//  2. When GOAWAY was written, Do streams end as they do when the server drains: what they took is
//     answered, and the rest is not done. The trailer dostream.TrailerAgain says that the caller
//     goes on by another stream. That is on a new connection, since GOAWAY came first.
//  3. Scans and other calls go on. After ageGrace the connection is closed. Scans that this cuts go
//     on behind the last key that arrived.
//
// What admitted a caller may be gone before: a password (users.Login), or a certificate that has
// ended or whose authority is not trusted any more. Its Do streams end before the next batch as in
// step 2, and its next calls are refused: nothing of them was done. Another compute server connects
// anew then, with the certificate that it has by now (grpcPeers), and so does the operator. The
// refused connection ends by its age. So an index is used through an old connection for
// certificateEvery at most, and the connection is there for 1.1 times its age and ageGrace.

const (
	// ageGrace is how long calls that are no batches may go on after GOAWAY.
	ageGrace = 30 * time.Second
	// certificateEvery is how often a certificate is looked at again.
	certificateEvery = time.Second
)

// age is what a connection knows of its end.
type age struct {
	over chan struct{} // closed when GOAWAY was written
	once sync.Once
}

// Write implements net.Conn. gRPC calls it from one goroutine.
func (c *rpcConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	for h, rest, ok := c.out.Next(b[:n]); ok; h, rest, ok = c.out.Next(rest) {
		if h.Type == http2.FrameGoAway {
			c.raw.once.Do(func() { close(c.raw.over) })
		}
	}
	return n, err
}

// ending is closed when the connection takes no more calls. A nil connection takes them for ever.
func (c *termConn) ending() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.over
}

// certificate is by what a connection was admitted. Safe for concurrent use.
type certificate struct {
	files *identity.Files
	state tls.ConnectionState

	mu   sync.Mutex
	seen time.Time // when err was found
	err  error
}

func newCertificate(files *identity.Files, state tls.ConnectionState) *certificate {
	return &certificate{files: files, state: state, seen: time.Now()}
}

// refused is why the certificate would not be accepted now. A nil certificate is of a connection
// without.
func (c *certificate) refused() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.seen) >= certificateEvery {
		c.err, c.seen = c.files.Readmit(c.state), time.Now()
	}
	return c.err
}

// againTrailer is the trailer of a stream whose caller goes on by another one.
func againTrailer() metadata.MD { return metadata.Pairs(dostream.TrailerAgain, "1") }
