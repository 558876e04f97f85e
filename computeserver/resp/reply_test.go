package resp

import (
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestClientReply: replies that a client does not want are not sent, of commands for this server
// and for another one, errors too; and all others are, in their order.
func TestClientReply(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	r := c.raw(1)
	f := func(want string, commands ...[]string) {
		t.Helper()
		text := ""
		for _, command := range commands {
			text += computeservertest.Command(command...)
		}
		r.Send(text + computeservertest.Command("CLIENT", "REPLY", "ON") + computeservertest.Command("ECHO", "end"))
		r.Expect(want + "+OK\r\n$3\r\nend\r\n")
	}
	x := func(words ...string) []string { return words }
	on, off, skip := x("CLIENT", "REPLY", "ON"), x("CLIENT", "REPLY", "off"), x("CLIENT", "REPLY", "SKIP")
	const ok = "+OK\r\n"
	f(ok+ok, x("SET", "a", "1"), x("SET", "z", "1"), off, x("SET", "a", "2"), x("SET", "z", "2"), x("NOPE"), x("GET", "z"))
	f("$1\r\n2\r\n$1\r\n2\r\n", x("GET", "z"), x("GET", "a"))
	f("$1\r\n2\r\n$1\r\n3\r\n", x("GET", "z"), skip, x("SET", "z", "3"), x("GET", "z"))
	f("$1\r\n2\r\n", skip, x("NOPE"), skip, skip, x("GET", "z"), x("GET", "a"))
	f(ok, on)
	f("", skip, on)
	f("", off, skip, x("GET", "a"), x("GET", "a"))
	f("", skip, off, x("GET", "a"))
	f("-ERR syntax error: CLIENT REPLY 'MAYBE'; ON, OFF and SKIP are possible\r\n", x("CLIENT", "REPLY", "MAYBE"))
	f("+RESET\r\n", off, x("GET", "a"), x("RESET"))
	f(ok+"$1\r\n3\r\n", off, x("RANGE", "", ""), x("MGET", "a", "z"), on, x("GET", "z"))
}
