package computeserver

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestMachineClockIsSet: a machine's clock that jumps takes no pair away. The server says that it
// was set, and goes by it when it opens the index again.
func TestMachineClockIsSet(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { expires(&off)(cfg); cfg.trustsClock = false }, 1)
	k := newTalk(c, 1)
	ask := func(args ...string) string {
		k.Send(computeservertest.Command(args...))
		return wholeReply(t, k.from)
	}
	ask("SET", "k", "1", "EX", "100")
	off[1].Store(mostOff)
	if got := ask("GET", "k"); got != "$1\r\n1\r\n" {
		t.Errorf("when the machine's clock had jumped k was %q", got)
	}
	if got := ask("TTL", "k"); got != ":100\r\n" && got != ":99\r\n" {
		t.Errorf("then it lasted %q", got)
	}
	// 86,400 and less
	if _, got := c.servers[1].get(t, "/metrics"); !strings.Contains(got, "dmindex_compute_clock_off_seconds 86") {
		t.Errorf("the metrics do not say that the clock is off: %s", got)
	}
	c.store.Lapse("the test says so")
	computeservertest.Await(t, "the index is open again, and k has expired", func() bool { return ask("EXISTS", "k") == ":0\r\n" })
}
