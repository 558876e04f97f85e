// Package accept keeps a server accepting: while its listener fails, and while connections are
// opened that nobody has authenticated.
package accept

import (
	"errors"
	"net"
	"sync"
	"time"
)

// How long Accept waits after a failure: twice as long after each, from first to longest.
const (
	first   = 5 * time.Millisecond
	longest = time.Second
)

// Patiently is l with an Accept that fails only once the listener is closed. A process without
// descriptors, a host without memory and a network that is down fail Accept for a moment
// (accept(2)). A server that ends for that costs its clients what it holds, so Accept waits and
// tries again. report is told of the first failure of a row; nil = nobody is told. Safe for
// concurrent use, as l is.
func Patiently(l net.Listener, report func(error)) net.Listener {
	return &patient{Listener: l, report: report, closed: make(chan struct{})}
}

type patient struct {
	net.Listener
	report func(error)
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener. Errors: net.ErrClosed.
func (p *patient) Accept() (net.Conn, error) {
	for wait := time.Duration(0); ; {
		c, err := p.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		if wait == 0 && p.report != nil {
			p.report(err)
		}
		wait = min(max(2*wait, first), longest)
		select {
		case <-p.closed:
			return nil, net.ErrClosed
		case <-time.After(wait):
		}
	}
}

// Close implements net.Listener.
func (p *patient) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Listener.Close()
}
