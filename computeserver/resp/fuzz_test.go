package resp

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// sink is the network of a connection whose replies are kept.
type sink struct {
	net.Conn
	got []byte
}

func (s *sink) Write(b []byte) (int, error)      { s.got = append(s.got, b...); return len(b), nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

// replies are those of a new connection to a stream of bytes that arrives in portions.
func (c *cluster) replies(stream []byte, portion int) string {
	s := &sink{}
	conn := c.quiet(1)
	conn.nc = s
	conn.in = make([]byte, 0, respBuffer)
	for len(stream) > 0 && !conn.closing {
		conn.trim()
		for len(conn.in) == cap(conn.in) {
			if conn.grow() != nil {
				return "no room"
			}
		}
		n := min(len(stream), portion, cap(conn.in)-len(conn.in))
		conn.in = append(conn.in, stream[:n]...)
		stream = stream[n:]
		err := conn.run()
		conn.settle()
		if err != nil {
			conn.out = append(conn.out, err.Error()...)
		}
		_ = conn.flush() // a sink takes everything
		if err != nil {
			break
		}
		conn.tally.Publish(conn.s.front, 0)
	}
	conn.unsubscribeAll()
	conn.account.close()
	return string(s.got)
}

// FuzzConnection runs arbitrary bytes as what a client sends, on two servers: on one they arrive at
// once, on the other in portions. Both answer the same, and no memory stays taken.
func FuzzConnection(f *testing.F) {
	for _, stream := range []string{
		computeservertest.Command("SET", "a", "1") + computeservertest.Command("GET", "a") + "GET b\r\n" + computeservertest.Command("MGET", "a", "b", "a") + computeservertest.Command("DEL", "a", "b"),
		computeservertest.Command("MULTI") + computeservertest.Command("SET", "a", "1") + computeservertest.Command("EXEC") + computeservertest.Command("NOPE") + computeservertest.Command("EXEC") + computeservertest.Command("RESET"),
		computeservertest.Command("MSET", "a", "1", "z", "", "", "x") + computeservertest.Command("RANGE", "", "") + computeservertest.Command("RANGE", "a", "zz", "REV", "LIMIT", "1") + computeservertest.Command("EXISTS", "a", "z"),
		computeservertest.Command("AUTH", "default", "x") + computeservertest.Command("SELECT", "1") + computeservertest.Command("CONFIG", "GET", "save") + computeservertest.Command("COMMAND", "COUNT") + computeservertest.Command("QUIT"),
		computeservertest.Command("HELLO", "3") + computeservertest.Command("SUBSCRIBE", "a", "b") + computeservertest.Command("PSUBSCRIBE", "a*") + computeservertest.Command("PUBLISH", "a", "x") + computeservertest.Command("UNSUBSCRIBE") + computeservertest.Command("PUBLISH", "a", "y"),
		computeservertest.Command("SUBSCRIBE", "a") + computeservertest.Command("GET", "a") + computeservertest.Command("PING") + computeservertest.Command("RESET") + computeservertest.Command("MULTI") + computeservertest.Command("SSUBSCRIBE", "s") + computeservertest.Command("SPUBLISH", "s", "x") + computeservertest.Command("EXEC") + computeservertest.Command("SUNSUBSCRIBE", "s"),
		"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET a 1\r\n", "*2\r\n$4\r\nECHO\r\n$20000\r\n" + strings.Repeat("x", 20000) + "\r\nPING \"a\\x00\"\r\n",
	} {
		f.Add([]byte(stream), uint16(7))
	}
	c := [2]*cluster{}
	for i := range c {
		// nothing may be logged to f meanwhile
		c[i] = newCluster(f, config.RoutingOwner, func(cfg *limits) { cfg.Logger = slog.New(slog.DiscardHandler) }, 1)
		c[i].split([]uint32{1})
	}
	f.Fuzz(func(t *testing.T, stream []byte, portion uint16) {
		whole := c[0].replies(bytes.Clone(stream), len(stream))
		parts := c[1].replies(bytes.Clone(stream), int(portion)+1)
		for _, c := range c {
			if used := c.servers[1].resp.budget.used.Load(); used != 0 {
				t.Errorf("%q leaves %d bytes of the budget taken", stream, used)
			}
		}
		lower := strings.ToLower(string(stream))
		// clocks, numbers and cursors; any name in escapes
		for _, differs := range []string{"time", "info", "client", "scan", "hello", "dbsize", "\\x"} {
			if strings.Contains(lower, differs) {
				return
			}
		}
		if whole != parts {
			t.Errorf("%q in one portion gave\n%q\nin portions of %d\n%q", stream, whole, int(portion)+1, parts)
		}
	})
}
