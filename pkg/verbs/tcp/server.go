package tcp

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
	"github.com/dmindex/dmindex/pkg/verbs/internal/serve"
)

// Limits of the server.
const (
	MaxQPs = 1024 // queue pairs of one connection

	writeLimit = 30 * time.Second // for a client to take what was answered; twice that at most
)

// Capabilities are those of every connection of this provider, besides Calls, which is the server's
// choice. The server executes a list in order, so READs are ordered, and it executes a frame only
// once it has all of it, so a WRITE is applied whole or not at all, whatever becomes of the client.
// Its own process may die within a copy.
func Capabilities() verbs.Capabilities {
	return verbs.Capabilities{OrderedReads: true, MaskedAtomics: true, WholeWrite: verbs.MaxTransfer}
}

// NewServer makes the memory server's half. Serve takes listeners of any stream; those of network
// "tcp" get keepalive probes.
//
// Where o has TLS, clients choose whether they come under TLS; see secure.go.
//
// A connection costs one goroutine and 144 KiB of buffers, under TLS 48 KiB more. Frames that are
// longer than that share buffers with those of all other connections; see [Budget].
//
// The server is a [verbs.Checked] one, and with a journal a [verbs.LocalAtomics].
func NewServer(o verbs.ServerOptions) (verbs.Server, error) { return newServer(o, newBuffers()) }

// server is the memory server's half.
type server struct {
	*serve.Server
	checking
}

func newServer(o verbs.ServerOptions, shared *buffers) (verbs.Server, error) {
	space, err := mapped.NewSpace(o.Memory)
	if err != nil {
		return nil, fmt.Errorf("tcp server: %w", err)
	}
	callers, caps := verbs.NewCallers(o), Capabilities()
	caps.Calls = callers.Any()
	s := &server{}
	s.Server, err = serve.New(o, serve.Provider{
		Capabilities: caps,
		MaxQPs:       MaxQPs,
		Records:      true,
		Regions:      space.Regions(),
		Begin:        func(c net.Conn) (net.Conn, *tls.ConnectionState, error) { return begin(c, o.TLS) },
		Answer:       sendAnswer,
		Run: func(c *serve.Session) {
			session := newSession(c, space, callers, shared)
			if session.journal = o.Journal; o.Journal != nil {
				session.waiter = o.Journal.NewWaiter()
				c.AtCut(session.waiter.Cut)
			}
			if o.Reach != nil {
				session.reach = o.Reach(c.Peer)
			}
			if session.checked = o.Reach != nil || o.Journal != nil; session.checked {
				s.checking.add(session)
				defer s.checking.remove(session)
			}
			session.run()
		},
		Cut: func(s *serve.Session) { s.Conn.Close() },
	})
	if err != nil || o.Journal == nil {
		return s, err
	}
	return &mirrored{s, space, o.Journal}, nil
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
	if s, ok := c.(*stream); ok {
		c = s.Conn
	}
	if t, ok := c.(*net.TCPConn); ok {
		t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4})
	}
}
