package resp

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestMonitorLine: a line is bounded, whatever the command, and says what it left out.
func TestMonitorLine(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_042)
	line := func(args ...string) string {
		var all [][]byte
		for _, a := range args {
			all = append(all, []byte(a))
		}
		return string(appendMonitored(nil, at, "127.0.0.1:1", nil, all))
	}
	const head = "+1700000000.000042 [0 127.0.0.1:1] "
	if got, want := line("SET", "k", "v"), head+"\"SET\" \"k\" \"v\"\r\n"; got != want {
		t.Errorf("%q", got)
	}
	if got := line("SET", "k", strings.Repeat("x", monitorBytes)); !strings.HasSuffix(got, "xx... (6 more bytes)\"\r\n") {
		t.Errorf("%q", got[len(got)-60:])
	}
	if got := line(append([]string{"DEL"}, make([]string, 100_000)...)...); !strings.HasSuffix(got, ` "" "... (83620 more arguments)"`+"\r\n") {
		t.Errorf("%q", got[len(got)-60:])
	}
	if got := line(append([]string{"MSET"}, strings.Split(strings.Repeat("\xff,", 100_000), ",")...)...); len(got) > 5*monitorBytes {
		t.Errorf("a line has %d bytes", len(got))
	}
	if got := appendMonitored(nil, at, "", nil, [][]byte{bytes.Repeat([]byte{0}, 1<<20)}); len(got) > 5*monitorBytes {
		t.Errorf("a line has %d bytes", len(got))
	}
}

// TestMonitorsAreBounded: a server has so many monitors, one that ends makes room, and when all are
// gone commands are shown to nobody.
func TestMonitorsAreBounded(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	s := c.servers[1].resp
	var all []*computeservertest.Conn
	for range maxMonitors {
		r := c.raw(1)
		r.Send(computeservertest.Command("MONITOR"))
		r.Expect("+OK\r\n")
		all = append(all, r)
	}
	last := c.raw(1)
	const many = "-ERR this server has as many monitors as possible, which is 16; end one of them\r\n"
	last.Send(computeservertest.Command("MONITOR"))
	last.Expect(many)
	all[0].Send(computeservertest.Command("RESET"))
	all[0].Expect("+RESET\r\n")
	last.Send(computeservertest.Command("MONITOR"))
	last.Expect("+OK\r\n")
	all[1].NC.Close()
	computeservertest.Await(t, "one that left is none any more", func() bool { return len(*s.monitors.all.Load()) == maxMonitors-1 })
	for _, r := range append(all[2:], last) {
		r.Send(computeservertest.Command("QUIT"))
	}
	computeservertest.Await(t, "there are no monitors any more", func() bool { return s.monitors.all.Load() == nil && s.budget.used.Load() == 0 })
	all[0].Send(computeservertest.Command("SET", "k", "v"))
	all[0].Expect("+OK\r\n")
}

// TestMonitorDoesNotRead: a monitor that does not take its lines is cut, and the commands that it
// would be shown do not wait for it. The budget is whole then.
func TestMonitorDoesNotRead(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, func(l *limits) { l.MaxBuffers = 8 << 20 }, 1)
	c.split([]uint32{1})
	s := c.servers[1].resp
	stuck, works := c.raw(1), c.raw(1)
	stuck.Send(computeservertest.Command("MONITOR"))
	stuck.Expect("+OK\r\n")
	text := strings.Repeat("x", 10<<10)
	sent := 0
	for ; s.core.Count.SubscribersCut.Load() == 0 && sent < 10_000; sent++ {
		works.Send(computeservertest.Command("ECHO", text))
		if got := works.SkipReply(); got != "$10240\r\n" {
			t.Fatalf("%.60q came", got)
		}
	}
	if sent < 100 || sent == 10_000 {
		t.Errorf("the monitor was cut after %d commands", sent)
	}
	computeservertest.Await(t, "the monitor is gone, and all that it held", func() bool { return s.monitors.all.Load() == nil && s.budget.used.Load() == 0 })
}
