package resp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// TestFlushSaysWhatItDid: a FLUSHALL that ends in the middle is UNKNOWN, with how many keys went.
func TestFlushSaysWhatItDid(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	r := c.raw(1)
	var fill strings.Builder
	for i := range 1500 {
		fill.WriteString(computeservertest.Command("SET", fmt.Sprintf("%04d", i), "v"))
	}
	r.Send(fill.String())
	r.Expect(strings.Repeat("+OK\r\n", 1500))
	c.store.BeforeOperation(func(key []byte) {
		if string(key) == "1200" {
			c.store.Fail(errors.New("a memory server is away"))
		}
	})
	r.Send(computeservertest.Command("FLUSHALL"))
	// Keys of a part are deleted side by side, so how many of the fifth one are gone differs.
	const four = 4 * flushPart
	got, left := r.Line(), c.store.Len()
	var deleted int
	var others string
	if _, err := fmt.Sscanf(got, "-UNKNOWN %d keys were deleted, the others %s", &deleted, &others); err != nil || deleted < four || deleted >= four+flushPart {
		t.Errorf("FLUSHALL gave %q: %v", got, err)
	}
	if exact := others == "were"; left == 0 || exact && left != 1500-deleted || !exact && left > 1500-deleted {
		t.Errorf("%d keys are left of 1500, and FLUSHALL gave %q", left, got)
	}
	if err := halfFlushed(engine.OutcomeOf(engine.ErrLate), 0, false); engine.CodeOf(err) != rpcv1.Outcome_TIMED_OUT {
		t.Errorf("a FLUSHALL that did nothing: %v", err)
	}
	if err := halfFlushed(&rpcv1.Outcome{Code: rpcv1.Outcome_UNKNOWN}, 0, true); strings.Contains(err.Error(), "were not") {
		t.Errorf("a FLUSHALL that may have deleted keys: %v", err)
	}
}

// TestRandomPlace: a random place is not below the first key, also where the keys have changed
// since the first one was read, so that the last one is below it.
func TestRandomPlace(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	conn := c.quiet(1)
	for _, ends := range [][2]string{{"b", "a"}, {"b", ""}, {"ab", "a"}, {"a", "a"}, {"a", "b"}, {"", "b"}, {"a", "ab"}, {"ab", "b"}} {
		for range 50 {
			if got := string(conn.randomBetween([]byte(ends[0]), []byte(ends[1]))); got < ends[0] {
				t.Errorf("from %q to %q: %q", ends[0], ends[1], got)
			}
		}
	}
}

// TestTrackingKeepsNothing: a client that asks for tracking is told behind each pipeline that
// touched the index that no key is valid. What would let others keep something is refused.
func TestTrackingKeepsNothing(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	r := c.raw(1)
	x := computeservertest.Command
	f := func(want string, commands ...string) {
		t.Helper()
		r.Send(strings.Join(commands, ""))
		r.Expect(want)
	}
	f("-ERR CLIENT TRACKING needs RESP3: send HELLO 3 before\r\n", x("CLIENT", "TRACKING", "ON"))
	r.Send(x("HELLO", "3") + x("ECHO", "end"))
	for line := ""; line != "end\r\n"; {
		line = r.Line()
	}
	const refused = "-ERR CLIENT TRACKING with BCAST, PREFIX or REDIRECT is not possible: a server is not told what others change\r\n"
	f(strings.Repeat(refused, 2)+"-ERR syntax error\r\n", x("CLIENT", "TRACKING", "ON", "BCAST"), x("CLIENT", "TRACKING", "ON", "REDIRECT", "7"), x("CLIENT", "TRACKING", "ON", "NOPE"))
	f("_\r\n", x("GET", "a"))
	f("+OK\r\n:0\r\n", x("CLIENT", "TRACKING", "on", "OPTIN"), x("CLIENT", "GETREDIR"))
	f("+OK\r\n+OK\r\n+OK\r\n$1\r\n1\r\n$1\r\n2\r\n"+invalidateAll, x("CLIENT", "CACHING", "YES"), x("SET", "a", "1"), x("SET", "x", "2"), x("GET", "a"), x("GET", "x"))
	f("+PONG\r\n", x("PING"))
	f("+OK\r\n_\r\n", x("CLIENT", "TRACKING", "OFF"), x("GET", "b"))
	f("+OK\r\n+RESET\r\n$1\r\n1\r\n", x("CLIENT", "TRACKING", "ON"), x("RESET"), x("GET", "a"))
}

// TestKill: CLIENT KILL ends the connections for which all that is said holds.
func TestKill(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	x := computeservertest.Command
	one, two, three := c.raw(1), c.raw(1), c.raw(1)
	for _, r := range []*computeservertest.Conn{one, two, three} {
		r.Send(x("PING"))
		r.Expect("+PONG\r\n")
	}
	address := two.NC.LocalAddr().String()
	one.Send(x("CLIENT", "KILL", "ADDR", address, "USER", "nobody") + x("CLIENT", "KILL", "ADDR", address, "USER", "default", "TYPE", "normal"))
	one.Expect(":0\r\n:1\r\n")
	two.ExpectEnd()
	one.Send(x("CLIENT", "KILL", three.NC.LocalAddr().String()))
	one.Expect("+OK\r\n")
	three.ExpectEnd()
	one.Send(x("CLIENT", "KILL", "SKIPME", "no") + x("PING"))
	if got := one.ExpectEnd(); got != ":1\r\n" {
		t.Errorf("a connection that ended itself was answered %q", got)
	}
}

// lineOf is what CLIENT LIST shows of a connection.
func lineOf(s *Server, r *computeservertest.Conn) (line string) {
	for _, of := range s.connections() {
		if of.who.address == r.NC.LocalAddr().String() {
			line = of.line()
		}
	}
	return line
}

// TestKillEndsTransactions: when a connection is ended, those scripts of its transaction that did
// not begin are not run.
func TestKillEndsTransactions(t *testing.T) {
	const scripts = 300 // of some milliseconds each
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	s, x := c.servers[1].resp, computeservertest.Command
	one, two := c.raw(1), c.raw(1)
	one.Send(x("PING"))
	one.Expect("+PONG\r\n")
	two.Send(x("MULTI") + strings.Repeat(x("EVAL", "for i = 1, 200000 do end", "0"), scripts))
	for range 1 + scripts {
		two.SkipReply()
	}
	done := &s.front.N[lookupCommand([]byte("eval")).slot][count.OK]
	queued := done.Load()
	two.Send(x("EXEC"))
	computeservertest.Await(t, "it runs", func() bool { return strings.Contains(lineOf(s, two), " cmd=exec ") })
	one.Send(x("CLIENT", "KILL", "ADDR", two.NC.LocalAddr().String()))
	one.Expect(":1\r\n")
	computeservertest.Await(t, "the connection is over", func() bool { return len(s.connections()) == 1 })
	if done.Load()-queued == scripts {
		t.Errorf("all %d scripts were run to the end", scripts)
	}
}

// TestPartOfValue: GETRANGE over all small ranges, beside what Redis' own rule says.
func TestPartOfValue(t *testing.T) {
	const value = "hello"
	n := int64(len(value))
	for start := -2 * n; start <= 2*n; start++ {
		for end := -2 * n; end <= 2*n; end++ {
			from, to, want := start, end, ""
			if from < 0 {
				from = max(from+n, 0)
			}
			if to < 0 {
				to = max(to+n, 0)
			}
			for i := from; i <= to && i < n && (start >= 0 || end >= 0 || start <= end); i++ {
				want += value[i : i+1]
			}
			if got := string(valuePart([]byte(value), start, end)); got != want {
				t.Errorf("%d to %d of %s is %q, want %q", start, end, value, got, want)
			}
		}
	}
}
