package resp

import (
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestOtherDatabase: after a refused SELECT no command touches the index until SELECT 0 or RESET,
// also of those that came in the same pipeline. What touches no index is answered.
func TestOtherDatabase(t *testing.T) {
	for _, routing := range []string{config.RoutingAny, config.RoutingOwner} {
		c := newCluster(t, routing, nil, 1)
		c.split([]uint32{1})
		conn, b := c.quiet(1), &batches{}
		x := computeservertest.Command
		if out, err := conn.feed([]byte(strings.Repeat(x("PING"), 3))); err != nil || string(out) != strings.Repeat("+PONG\r\n", 3) {
			t.Fatalf("%q, %v", out, err)
		}
		c.store.BeforeBatch(b.note)
		f := func(want string, commands ...string) {
			t.Helper()
			out, err := conn.feed([]byte(strings.Join(commands, "")))
			if err != nil || string(out) != want {
				t.Errorf("%s: %q, %v; want %q", routing, out, err, want)
			}
		}
		const (
			refused = "-ERR DB index is out of range; an index is one database, 0\r\n"
			other   = "-ERR nothing is done on this connection: it asked for database \"1\", and an index is one database, 0; SELECT 0 goes on\r\n"
		)
		f(refused+strings.Repeat(other, 9), x("SELECT", "1"), x("SET", "a", "1"), x("SET", "b", "1"), x("GET", "a"), x("GET", "b"), x("MSET", "a", "1", "b", "1"),
			x("DEL", "a"), x("RANGE", "", ""), x("SCAN", "0"), x("DBSIZE"))
		f(other+"+PONG\r\n", x("SET", "a", "1"), x("PING"))
		f(strings.ReplaceAll(refused+other, `"1"`, `"no\r\nx"`), x("SELECT", "no\r\nx"), x("SET", "a", "1"))
		if n := c.store.Len(); n != 0 || len(b.all) != 0 {
			t.Errorf("%s: %d keys are stored; looked ahead: %q", routing, n, b.all)
		}
		f("+OK\r\n+OK\r\n$1\r\n1\r\n", x("SELECT", "0"), x("SET", "a", "1"), x("GET", "a"))
		f(refused+other+"+RESET\r\n$1\r\n1\r\n", x("SELECT", "1"), x("GET", "a"), x("RESET"), x("GET", "a"))
	}
}

// TestOtherDatabaseStopsEveryCommand: each command of the table that touches the index is refused
// after a refused SELECT. The others are answered, and touch none.
func TestOtherDatabaseStopsEveryCommand(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, pairsExpire, 1)
	c.split([]uint32{1})
	conn, x := c.quiet(1), computeservertest.Command
	if out, err := conn.feed([]byte(x("SET", "key", "1") + x("SELECT", "1"))); err != nil || !strings.HasPrefix(string(out), "+OK\r\n-ERR DB index is out of range") {
		t.Fatalf("%q, %v", out, err)
	}
	touched := ""
	c.store.BeforeOperation(func([]byte) { touched += "." })
	refused := 0
	for name, k := range commands {
		args := []string{name}
		for len(args) < max(k.arity, -k.arity) {
			args = append(args, "key")
		}
		switch name { // these change what follows
		case "QUIT", "RESET", "MULTI", "MONITOR", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
			continue
		}
		out, err := conn.feed([]byte(x(args...)))
		stops := strings.HasPrefix(string(out), "-ERR nothing is done on this connection: ")
		if err != nil || stops != k.data || touched != "" {
			t.Errorf("%q after SELECT 1: %q, %v; the index was touched%s", args, out, err, touched)
		}
		if touched = ""; stops {
			refused++
		}
	}
	if n := c.store.Len(); n != 1 || refused < 50 {
		t.Errorf("%d keys are stored, %d commands were refused", n, refused)
	}
}
