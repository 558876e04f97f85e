package servers

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Connections are kept from one look at a server to the next: a handshake costs both sides more
// than what is asked. One that failed is not used again: gRPC would wait ever longer before it
// tries to connect, and the operator shall see at its next look that a server is back.
const (
	keepIdle = 2 * time.Minute // that nobody used
	mostKept = 1024            // connections in all; those beyond are closed after their use
)

// connKey is what a connection is of: a server, and the certificates of both sides.
type connKey struct{ uid, address, name, authority, certificate string }

// sharedConn is a connection and who has it. Its fields are protected by GRPC.mu.
type sharedConn struct {
	*grpc.ClientConn
	users  int
	used   time.Time // when its last user gave it back
	broken bool      // nobody gets it any more; it is closed after its use

	refused atomic.Bool // the address refused the newest attempt to connect; not protected
}

// connect is how a connection is made.
func (c *sharedConn) connect(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	c.refused.Store(errors.Is(err, syscall.ECONNREFUSED))
	return conn, err
}

// refusal is the error of a call whose address refused the connection. It is ErrRefused, and has
// the status of the call.
type refusal struct{ error }

func (refusal) Is(target error) bool { return target == ErrRefused }

func (r refusal) GRPCStatus() *status.Status { return status.Convert(r.error) }

// borrow returns the connection of a key, and makes it with dial if there is none.
func (g *GRPC) borrow(key connKey, dial func(...grpc.DialOption) (*grpc.ClientConn, error)) (*sharedConn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for k, c := range g.conns {
		if c.users == 0 && now.Sub(c.used) > keepIdle {
			g.dropLocked(k, c)
		}
	}
	if c := g.conns[key]; c != nil {
		c.users++
		return c, nil
	}
	c := &sharedConn{users: 1}
	conn, err := dial(grpc.WithContextDialer(c.connect), grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, conn, o...)
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Unauthenticated:
			g.failed(key, c)
		}
		if status.Code(err) == codes.Unavailable && c.refused.Load() {
			return refusal{err}
		}
		return err
	}))
	if err != nil {
		return nil, err
	}
	c.ClientConn = conn
	if c.broken = len(g.conns) >= mostKept; !c.broken {
		g.conns[key] = c
	}
	return c, nil
}

// giveBack ends a use of a connection.
func (g *GRPC) giveBack(c *sharedConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.users--
	c.used = g.now()
	if c.broken && c.users == 0 {
		_ = c.Close() // nothing runs on it
	}
}

// failed says that a connection is of no use any more.
func (g *GRPC) failed(key connKey, c *sharedConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropLocked(key, c)
}

// dropLocked forgets a connection, and closes it unless somebody has it. Under mu.
func (g *GRPC) dropLocked(key connKey, c *sharedConn) {
	if g.conns[key] == c {
		delete(g.conns, key)
	}
	if c.broken = true; c.users == 0 {
		_ = c.Close()
	}
}
