package resp

import (
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestPipelineOfAnIndexThatIsAway: while the index cannot be opened, a pipeline waits for it once,
// whatever its commands are, and each of them is answered with the reason.
func TestPipelineOfAnIndexThatIsAway(t *testing.T) {
	const limit, commands = 100 * time.Millisecond, 100
	for name, with := range map[string]struct {
		routing string
		owned   bool
	}{"any": {config.RoutingAny, false}, "shared ranges": {config.RoutingOwner, false}, "owned ranges": {config.RoutingOwner, true}} {
		c := newCluster(t, with.routing, func(l *limits) { l.Away, l.Owned, l.Limit = true, with.owned, limit }, 1)
		c.split([]uint32{1})
		for _, command := range [][]string{{"GET", "k"}, {"SET", "k", "v"}, {"MGET", "k", "l"}, {"RANGE", "", ""}, {"SCAN", "0"}, {"DBSIZE"}} {
			r := c.raw(1)
			began := time.Now()
			r.Send(strings.Repeat(computeservertest.Command(command...), commands))
			for range commands {
				if got := r.Line(); !strings.HasPrefix(got, "-UNAVAILABLE ") && !strings.HasPrefix(got, "-TIMEOUT ") {
					t.Fatalf("%s: %q was answered %q", name, command, got)
				}
			}
			// half of what waits of each command would take: this machine may be slow
			if took := time.Since(began); took > commands*limit/2 {
				t.Errorf("%s: %d times %q were answered after %v; the limit is %v", name, commands, command, took, limit)
			}
		}
	}
}
