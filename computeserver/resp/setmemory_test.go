package resp

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestManyMembersTakeLittle: a command on many members takes no more beside its arguments than
// steps of some members each, and the pairs of ZADD, for which the budget is asked.
func TestManyMembersTakeLittle(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, func(l *limits) { l.Expiry, l.SortedSets = config.ExpiryEnabled, true }, 1)
	c.split([]uint32{1})
	conn := c.quiet(1)
	conn.nc = &sink{}
	const members = 30_000
	scored, named := []string{"ZADD", "none", "XX"}, []string{"", "none"}
	for i := range members {
		scored, named = append(scored, "1", fmt.Sprint(i)), append(named, fmt.Sprint(i))
	}
	const full = "-UNAVAILABLE the buffers of all connections, or of those of this user, are full"
	for _, row := range []struct {
		name string
		args []string
		want string
		most int // bytes for each member, many of them garbage of a step
	}{
		{"ZADD", scored, ":0\r\n", 200},
		{"ZREM", named, ":0\r\n", 10},
		{"ZMSCORE", named, "", 190}, // the reply, too
	} {
		allocates := func(name, want string) int {
			row.args[0] = name
			pipeline := []byte(computeservertest.Command(row.args...))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			out, err := conn.feed(pipeline)
			runtime.ReadMemStats(&after)
			if err != nil || !strings.HasPrefix(string(out), want) {
				t.Fatalf("%s gave %.100q, %v; want %q", name, out, err, want)
			}
			return int(after.TotalAlloc - before.TotalAlloc)
		}
		read := allocates("NOCOMMAND", "-ERR unknown command")
		got, most := allocates(row.name, row.want)-read, row.most*members
		t.Logf("%s of %d members allocates %d bytes, beside %d to read it", row.name, members, got, read)
		if got > most {
			t.Errorf("%s of %d members allocates %d bytes, want %d at most", row.name, members, got, most)
		}
		conn.trim()
	}
	budget := &conn.s.budget
	budget.limit = int64(len(scored)*argBytes + members*pairBytes/2)
	if out, err := conn.feed([]byte(computeservertest.Command(scored...))); err != nil || !strings.HasPrefix(string(out), full) {
		t.Errorf("ZADD without room for its pairs gave %.100q, %v", out, err)
	}
	conn.account.close()
	if used := budget.used.Load(); used != 0 {
		t.Errorf("%d bytes of the budget are still taken", used)
	}
}
