package verbstest

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

// Network lies between clients and a server. It breaks connections as a network does: the client's
// end is over, the server knows nothing of it, and what was on its way arrives later. A connection
// is named by the token that admitted it.
type Network interface {
	// Address is where clients reach the server.
	Address() string
	// Hold keeps back what the client sends on c from now on.
	Hold(c verbs.Conn, t verbs.Token)
	// Break ends c for its client, which finds out by itself.
	Break(c verbs.Conn, t verbs.Token)
	// Deliver lets arrive what was kept back of c, which is broken and closed. It returns when the
	// server has done with it whatever it does.
	Deliver(c verbs.Conn, t verbs.Token) error
}

// network is the Network of the providers that shake hands over a stream. What the requests of shm
// and ibv do is not on its way there, so of them it keeps back only the end of the connection.
type network struct {
	listener           net.Listener
	to                 net.Addr
	toClient, toServer func(net.Conn) net.Conn

	mu    sync.Mutex
	ways  map[verbs.Token]*way
	conns []net.Conn // all, for close
	ended bool
}

// NewNetwork makes a Network before the server at address, a path of a Unix socket or host:port. It
// goes with the test.
func NewNetwork(t testing.TB, address string) Network {
	t.Helper()
	return newNetwork(t, address, func(c net.Conn) net.Conn { return c }, func(c net.Conn) net.Conn { return c })
}

// NewTLSNetwork is NewNetwork of a server that speaks TLS. It answers clients as server says, and
// connects as client says.
func NewTLSNetwork(t testing.TB, address string, server, client *tls.Config) Network {
	t.Helper()
	return newNetwork(t, address, func(c net.Conn) net.Conn { return tls.Server(c, server) },
		func(c net.Conn) net.Conn { return tls.Client(c, client) })
}

func newNetwork(t testing.TB, address string, toClient, toServer func(net.Conn) net.Conn) Network {
	t.Helper()
	var to, mine net.Addr = &net.UnixAddr{Net: "unix", Name: address}, &net.UnixAddr{Net: "unix", Name: address + "-network"}
	if !filepath.IsAbs(address) {
		tcp, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		to, mine = tcp, &net.TCPAddr{IP: tcp.IP}
	}
	l, err := net.Listen(mine.Network(), mine.String())
	if err != nil {
		t.Fatal(err)
	}
	n := &network{listener: l, to: to, toClient: toClient, toServer: toServer, ways: map[verbs.Token]*way{}}
	var running sync.WaitGroup
	running.Go(func() { n.accept(&running) })
	t.Cleanup(func() {
		n.close()
		running.Wait()
	})
	return n
}

func (n *network) close() {
	n.listener.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	for _, c := range n.conns {
		c.Close()
	}
}

func (n *network) accept(running *sync.WaitGroup) {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(n.to.Network(), n.to.String())
		if err != nil { // nobody listens there any more
			client.Close()
			continue
		}
		client, server = n.toClient(client), n.toServer(server)
		n.mu.Lock()
		n.conns = append(n.conns, client, server)
		ended := n.ended
		n.mu.Unlock()
		if ended {
			client.Close()
			server.Close()
			return
		}
		w := &way{client: client.(stream), server: server.(stream), sent: make(chan struct{}), answered: make(chan struct{})}
		running.Go(func() { w.answers() })
		running.Go(func() {
			defer close(w.sent)
			var greeting bytes.Buffer
			if h, err := hello.ReadHello(io.TeeReader(client, &greeting)); err == nil {
				n.mu.Lock()
				n.ways[h.Token] = w
				n.mu.Unlock()
			}
			w.requests(greeting.Bytes())
		})
	}
}

func (n *network) way(t verbs.Token) *way {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ways[t]
}

// Address implements Network.
func (n *network) Address() string { return n.listener.Addr().String() }

// Hold implements Network.
func (n *network) Hold(_ verbs.Conn, t verbs.Token) {
	w := n.way(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = true
}

// Break implements Network.
func (n *network) Break(c verbs.Conn, t verbs.Token) {
	n.Hold(c, t) // the end of the stream, at least
	n.way(t).client.CloseWrite()
}

// Deliver implements Network.
func (n *network) Deliver(_ verbs.Conn, t verbs.Token) error {
	w := n.way(t)
	limit := time.NewTimer(soon)
	defer limit.Stop()
	select {
	case <-w.sent:
	case <-limit.C:
		return fmt.Errorf("the client has not closed a broken connection within %v", soon)
	}
	w.mu.Lock()
	w.server.Write(w.held) // the server may have ended the connection
	w.held, w.holds = nil, false
	w.server.CloseWrite()
	w.mu.Unlock()
	select {
	case <-w.answered:
	case <-limit.C:
		return fmt.Errorf("the server has not ended a connection within %v of its client's end", soon)
	}
	return nil
}

// stream is a TCP connection or a Unix one.
type stream interface {
	net.Conn
	CloseWrite() error
}

// way is one connection, in two halves.
type way struct {
	client, server stream
	sent           chan struct{} // closed when the client has ended its half
	answered       chan struct{} // closed when the server has ended its half

	mu    sync.Mutex
	holds bool
	held  []byte
	over  [2]bool // the client's half has ended, the server's half has
}

// requests carries what the client sends, after its greeting, which was read already.
func (w *way) requests(greeting []byte) {
	b := make([]byte, 64<<10)
	n, err := copy(b, greeting), error(nil)
	for {
		w.mu.Lock()
		if w.holds {
			w.held = append(w.held, b[:n]...)
		} else {
			w.server.Write(b[:n]) // an error shows at the other half
		}
		w.mu.Unlock()
		if err != nil {
			w.end(0)
			return
		}
		n, err = w.client.Read(b)
	}
}

// answers carries what the server sends, with descriptors.
func (w *way) answers() {
	defer close(w.answered)
	b := make([]byte, 64<<10)
	for {
		n, rights, err := receive(w.server, b)
		send(w.client, b[:n], rights) // a client that is gone misses nothing
		if n == 0 || err != nil {
			w.client.CloseWrite()
			w.end(1)
			return
		}
	}
}

// end is the end of a half. The end of the client's half is kept back as its bytes are, unless the
// server has ended the other one: then it waits for nothing but this.
func (w *way) end(half int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over[half] = true
	switch {
	case w.over[0] && w.over[1]:
		w.server.Close()
		w.client.Close()
	case w.over[0] && !w.holds:
		w.server.CloseWrite()
	}
}

// receive reads once, with the descriptors that come along. They are closed by send.
func receive(c net.Conn, b []byte) (n int, rights []int, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		n, err = c.Read(b)
		return n, nil, err
	}
	oob := make([]byte, unix.CmsgSpace(8*4))
	n, oobn, _, _, err := u.ReadMsgUnix(b, oob)
	if n < 0 {
		return 0, nil, err
	}
	messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			rights = append(rights, fds...)
		}
	}
	return n, rights, err
}

func send(c net.Conn, b []byte, rights []int) {
	if u, ok := c.(*net.UnixConn); ok && len(rights) > 0 {
		u.WriteMsgUnix(b, unix.UnixRights(rights...), nil)
		for _, fd := range rights {
			unix.Close(fd)
		}
		return
	}
	c.Write(b)
}
