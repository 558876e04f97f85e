package tcp

import (
	"errors"
	"net"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

// TestSecondFarewell: a memory server that answers a farewell twice does not end the process of the
// client.
func TestSecondFarewell(t *testing.T) {
	socket, far := net.Pipe()
	c := newConn(socket, &hello.Answer{}, hello.Session{Earlier: new(hello.Earlier)})
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	for range 2 {
		if err := c.dispatch(&header{size: headerSize, kind: frameBye}, nil); !errors.Is(err, errBye) {
			t.Errorf("a farewell: %v", err)
		}
	}
	far.Close()
	<-c.unread
	c.socket.Close()
	c.ended.Wait()
}
