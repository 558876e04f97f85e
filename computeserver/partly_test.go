package computeserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// TestPartOfManyKeys: of a command on several keys some fail, since the owner of theirs is gone. A
// command that changed something is never answered as if nothing was done; one that changed nothing
// is.
func TestPartOfManyKeys(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) { cfg.Limit = time.Second }, 1, 2)
	c.split([]uint32{1, 2}, "m")
	r := c.raw(1)
	r.Send(computeservertest.Command("MSET", "a", "1", "b", "2", "z", "26"))
	r.Expect("+OK\r\n")
	c.stop(2)
	f := func(want, reason string, args ...string) {
		t.Helper()
		r.Send(computeservertest.Command(args...))
		got := r.Line()
		if !strings.HasPrefix(got, want) || !strings.Contains(got, reason) {
			t.Errorf("%q gave %q, want %q and %q", args, got, want, reason)
		}
	}
	const gone = `keys ["m", end) at server 2 (pod-2): `
	f("-UNKNOWN 1 of 2 keys were deleted, others were not: ", gone, "DEL", "z", "a")
	f("$-1\r\n", "", "GET", "a")
	f("-UNAVAILABLE ", gone, "DEL", "z", "a") // a is gone already: nothing was done
	f(":1\r\n", "", "UNLINK", "b", "b")
	f("-UNKNOWN 2 of 3 pairs were stored, others were not: ", gone, "MSET", "a", "3", "z", "4", "b", "5")
	f("$1\r\n", "", "GET", "b")
	r.Expect("5\r\n")
	f("-UNAVAILABLE ", gone, "MGET", "a", "z", "b")
	f("-UNAVAILABLE ", gone, "EXISTS", "a", "b", "z")
	f(":2\r\n", "", "EXISTS", "a", "b")

	long := strings.Repeat("k", 513)
	// a key that cannot be is found before anything is done
	for _, command := range []string{"DEL", "UNLINK", "MGET", "EXISTS"} {
		f("-ERR key is 513 bytes; this index takes at most 512\r\n", "", command, "a", "b", long)
	}
	f("-ERR value is 2049 bytes; this index takes at most 2048\r\n", "", "MSET", "a", "x", "b", strings.Repeat("v", 2049))
	f("*4\r\n", "", "RANGE", "", "m")
	r.Expect("$1\r\na\r\n$1\r\n3\r\n$1\r\nb\r\n$1\r\n5\r\n")

	// With more keys than one part has, parts behind the one that failed are not begun.
	all := []string{"MSET"}
	for i := range 3 * engine.MaxForward {
		all = append(all, fmt.Sprintf("c%04d", i), "")
	}
	all[1+2*engine.MaxForward/2] = "z"
	r.Send(computeservertest.Command(all...))
	if got := r.Line(); !strings.HasPrefix(got, fmt.Sprintf("-UNKNOWN %d of %d pairs were stored, others were not: ", engine.MaxForward-1, 3*engine.MaxForward)) {
		t.Errorf("MSET of %d pairs gave %q", 3*engine.MaxForward, got)
	}
}
