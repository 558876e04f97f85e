package resp

import (
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestReasonReachesClient: a client whose connection ends is told why, also while it still sends.
func TestReasonReachesClient(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, func(l *limits) { l.MaxBuffers = 1 << 20 }, 1)
	c.split([]uint32{1})
	rest := strings.Repeat("x", 4<<20) // which a slow machine takes well within partLimit
	for head, want := range map[string]string{
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16777216\r\n": "-ERR Protocol error: invalid bulk length\r\n",
		"*65537\r\n": "-ERR Protocol error: invalid multibulk length\r\n",
		// the buffers have no room for as much
		"*20\r\n" + strings.Repeat("$1048576\r\n"+rest[:1<<20]+"\r\n", 3): errBudgetText,
		computeservertest.Command("QUIT"):                                 "+OK\r\n",
	} {
		r := c.raw(1)
		r.Send(head + rest)
		if got := r.ExpectEnd(); got != want {
			t.Errorf("%.50q: got %q, want %q", head, got, want)
		}
		_ = r.NC.Close()
	}
	s := c.servers[1].resp
	computeservertest.Await(t, "the connections are gone", func() bool { return len(s.connections()) == 0 })
	if used := s.budget.used.Load(); used != 0 {
		t.Errorf("%d bytes of the budget are taken", used)
	}
}

const errBudgetText = "-UNAVAILABLE the buffers of all connections, or of those of this user, are full; send less at once, or ask for less with LIMIT\r\n"

// TestHalfCommandEnds: a connection that does not send the rest of a command ends, however it
// dawdles. One that sends nothing between commands stays.
func TestHalfCommandEnds(t *testing.T) {
	const limit = 200 * time.Millisecond
	c := newCluster(t, config.RoutingOwner, func(l *limits) { l.WriteLimit = limit }, 1)
	c.split([]uint32{1})
	silent, half := c.raw(1), c.raw(1)
	silent.Send(computeservertest.Command("PING"))
	silent.Expect("+PONG\r\n")
	began := time.Now()
	half.Send(computeservertest.Command("PING") + "*2\r\n$4\r\nECHO\r\n$1000\r\n")
	half.Expect("+PONG\r\n")
	ended := make(chan string)
	go func() { ended <- half.ExpectEnd() }()
	got := ""
	for tick := time.NewTicker(limit / 10); got == ""; {
		select {
		case got = <-ended:
			tick.Stop()
		case <-tick.C:
			_, _ = half.NC.Write([]byte("x")) // it ends at any moment
		}
		if time.Since(began) > 20*limit {
			t.Fatal("half a command was kept")
		}
	}
	if want := "-ERR Protocol error: the rest of the command did not arrive in time\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	silent.Send(computeservertest.Command("PING"))
	silent.Expect("+PONG\r\n")
}
