//env:real connections and their deadlines are of the machine

package mirror

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

// Protocol is what both sides name in the handshake of TLS (ALPN).
const Protocol = "dmindex-mirror"

// DefaultLimit is how long a source waits for its copy.
const DefaultLimit = 10 * time.Second

// Source is the server's end of a stream: the link of a journal.
type Source struct {
	conn  net.Conn
	limit time.Duration

	writeUntil, readUntil time.Time

	acks [64]byte
	have int // bytes of acks that make no whole position
}

var _ verbs.Link = &Source{}

// Dial connects to the sink at an address and offers it a stream. With config, the connection is
// under TLS, and the sink's certificate is the one that config asks for. A limit of 0 is
// DefaultLimit. ErrRefused: the sink does not take the stream.
func Dial(address string, config *tls.Config, h Hello, limit time.Duration) (*Source, error) {
	if limit == 0 {
		limit = DefaultLimit
	}
	s, err := dial(address, config, &h, limit)
	if err != nil {
		return nil, fmt.Errorf("send changes to the copy %s at %s: %w", h.To, address, err)
	}
	return s, nil
}

func dial(address string, config *tls.Config, h *Hello, limit time.Duration) (*Source, error) {
	if len(h.From) > MaxName || len(h.To) > MaxName {
		return nil, fmt.Errorf("names of %d and %d bytes: at most %d each", len(h.From), len(h.To), MaxName)
	}
	deadline := time.Now().Add(limit)
	socket, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Source{conn: over(socket), limit: limit}
	if config != nil {
		config = config.Clone()
		// of full size from the first on
		config.NextProtos, config.DynamicRecordSizingDisabled = []string{Protocol}, true
		s.conn = tls.Client(s.conn, config)
	}
	err = s.conn.SetDeadline(deadline)
	if err == nil {
		_, err = s.conn.Write(h.append(nil))
	}
	if err == nil {
		err = readAnswer(s.conn)
	}
	if err == nil {
		err = s.conn.SetDeadline(time.Time{})
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return s, nil
}

// over is what a stream goes over: a socket without calls that wait, and with probes that find a
// machine that is gone within half a minute.
func over(socket net.Conn) net.Conn {
	if t, ok := socket.(*net.TCPConn); ok {
		t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4})
	}
	return tcp.NewStream(socket)
}

// Send implements verbs.Link.
func (s *Source) Send(b []byte) error {
	if err := extend(&s.writeUntil, s.limit, s.conn.SetWriteDeadline); err != nil {
		return err
	}
	_, err := s.conn.Write(b)
	return err
}

// Receive implements verbs.Link. Of several positions that have arrived it takes the last.
func (s *Source) Receive() (verbs.Position, error) {
	if err := extend(&s.readUntil, s.limit, s.conn.SetReadDeadline); err != nil {
		return 0, err
	}
	for {
		n, err := s.conn.Read(s.acks[s.have:])
		if s.have += n; s.have < 8 {
			if err != nil {
				return 0, err
			}
			continue
		}
		whole := s.have &^ 7
		last := binary.LittleEndian.Uint64(s.acks[whole-8:])
		s.have = copy(s.acks[:], s.acks[whole:s.have])
		return verbs.Position(last), nil
	}
}

// extend moves a deadline to limit from now when half of it has gone by: setting one costs more
// than a short write.
func extend(until *time.Time, limit time.Duration, set func(time.Time) error) error {
	now := time.Now()
	if until.Sub(now) >= limit/2 {
		return nil
	}
	*until = now.Add(limit)
	return set(*until)
}

// Close ends the connection.
func (s *Source) Close() error {
	if c, ok := s.conn.(*tls.Conn); ok {
		return c.NetConn().Close() // TLS's own farewell could wait
	}
	return s.conn.Close()
}
