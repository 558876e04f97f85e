package computeserver

import (
	"net"

	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

// streams accepts connections whose system calls the scheduler is not told of (tcp.NewStream): a
// command that comes alone costs little beside its read and its write.
type streams struct{ net.Listener }

// Accept implements net.Listener.
func (l streams) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tcp.NewStream(c), nil
}
