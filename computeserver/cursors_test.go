package computeserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/partition"
)

// scanStep asks for one step of a scan, and returns its keys and the next cursor, or the error.
func scanStep(t *testing.T, k *talk, cursor string, options ...string) (keys []string, next, failed string) {
	t.Helper()
	k.Send(computeservertest.Command(append([]string{"SCAN", cursor}, options...)...))
	reply := wholeReply(t, k.from)
	if reply[0] == '-' {
		return nil, "", reply
	}
	lines := strings.Split(reply, "\r\n") // *2, $n, cursor, *n, then $n and key by turns
	for i := 5; i < len(lines)-1; i += 2 {
		keys = append(keys, lines[i])
	}
	return keys, lines[2], ""
}

// TestCursorsOfEveryServer: each server goes on with a scan that another one began, whichever
// serves the keys. A cursor that nobody gave, of a server that is there or not, is refused.
func TestCursorsOfEveryServer(t *testing.T) {
	for _, routing := range []string{config.RoutingAny, config.RoutingOwner} {
		c := newCluster(t, routing, nil, 1, 2, 3)
		c.split([]uint32{1, 2, 3}, "k000200", "k000400")
		c.fill(600, 8)
		var talks []*talk
		for id := uint32(1); id <= 3; id++ {
			talks = append(talks, newTalk(c, id))
		}
		var all []string
		cursor, steps := "0", 0
		for ; steps == 0 || cursor != "0"; steps++ {
			keys, next, failed := scanStep(t, talks[steps%3], cursor, "COUNT", "50")
			if failed != "" {
				t.Fatalf("%s: step %d: %s", routing, steps, failed)
			}
			if again, _, _ := scanStep(t, talks[(steps+1)%3], cursor, "COUNT", "50"); !slices.Equal(again, keys) {
				t.Errorf("%s: step %d at another server: %q, want %q", routing, steps, again, keys)
			}
			all, cursor = append(all, keys...), next
		}
		if len(all) != 600 || !slices.IsSorted(all) || len(slices.Compact(all)) != 600 {
			t.Errorf("%s: %d keys in %d steps", routing, len(all), steps)
		}
		for _, made := range []uint64{1, 1<<37 | 5, 2<<37 | 5, 9<<37 | 5, 1<<64 - 1} {
			if _, _, failed := scanStep(t, talks[0], fmt.Sprint(made)); !strings.HasPrefix(failed, "-ERR invalid cursor: ") {
				t.Errorf("%s: cursor %d: %q", routing, made, failed)
			}
		}
	}
}

// TestCursorOfLostServer: a scan whose server cannot be reached may be asked again, and goes on
// when that is back, or ends when it has left the map.
func TestCursorOfLostServer(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1, 2)
	c.split([]uint32{1, 2}, "k000050")
	c.fill(100, 8)
	one := newTalk(c, 1)
	_, cursor, failed := scanStep(t, newTalk(c, 2), "0", "COUNT", "10")
	if failed != "" {
		t.Fatal(failed)
	}
	c.stop(2)
	if _, _, failed := scanStep(t, one, cursor); !strings.HasPrefix(failed, "-UNAVAILABLE ") {
		t.Errorf("a server that is away: %q", failed)
	}
	m, err := partition.ByBoundaries(computeservertest.Index, c.members(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Generation = 2
	c.publish(m)
	if _, _, failed := scanStep(t, one, cursor); !strings.HasPrefix(failed, "-ERR invalid cursor: ") {
		t.Errorf("a server that has left the map: %q", failed)
	}
}
