package admission

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// counted is a connection that counts what is read from it.
type counted struct {
	net.Conn
	read int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read += n
	return n, err
}

// TestLongHandshakes: a connection that has not shown yet whose it is sends a bounded number of
// bytes.
func TestLongHandshakes(t *testing.T) {
	ca := identitytest.NewCA(t, "index")
	c := NewCallers(tlsFiles(t, ca, identity.Operator()), time.Hour, testLog(t))
	config := tlsFiles(t, ca, identity.Index("mine")).ClientConfig("localhost", "h2")
	config.Certificates[0].Certificate = append(config.Certificates[0].Certificate, make([]byte, 200<<10))
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		defer theirs.Close()
		tls.Client(theirs, config).Handshake()
	}()
	server := &counted{Conn: ours}
	_, _, err := c.ServerHandshake(server)
	ours.Close()
	if server.read > accept.MaxHandshake || !errors.Is(err, accept.ErrRation) {
		t.Errorf("a long handshake: %d bytes are read: %v", server.read, err)
	}
}

// greedy credentials return from no Read before all that they asked for has come, as TLS does when
// half of a message of its own has come.
type greedy struct {
	credentials.TransportCredentials
}

func (greedy) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return greedyConn{raw}, credentials.TLSInfo{}, nil
}

type greedyConn struct{ net.Conn }

func (c greedyConn) Read(b []byte) (int, error) { return io.ReadFull(c.Conn, b) }

// TestReadsAhead: whatever comes, TLS gets a bounded number of bytes for one Read.
func TestReadsAhead(t *testing.T) {
	c := NewCallers(nil, time.Hour, testLog(t))
	c.TransportCredentials = greedy{c.TransportCredentials}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		for {
			if _, err := theirs.Write(make([]byte, 1000)); err != nil {
				return
			}
		}
	}()
	conn, _, err := c.ServerHandshake(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		if n, err := conn.Read(make([]byte, accept.MaxAhead)); n != accept.MaxAhead || err != nil {
			t.Fatalf("a long Read: %d bytes, %v", n, err)
		}
	}
	if n, err := conn.Read(make([]byte, 2*accept.MaxAhead)); n > accept.MaxAhead || !errors.Is(err, accept.ErrRation) {
		t.Errorf("a Read that does not end: %d bytes, %v", n, err)
	}
}
