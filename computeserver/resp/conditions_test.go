package resp

import (
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestConditionsOnValues: SET and DELEX compare what the key has with a value in the same step, as
// Redis 8.4 and Valkey 9 say: a missing key is not equal to anything, so IFEQ does nothing, and SET
// with IFNE makes it. Here, and at the owner of the key.
func TestConditionsOnValues(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	const ok, null, syntax = "+OK\r\n", "$-1\r\n", "-ERR syntax error\r\n"
	long := strings.Repeat("v", 3000)
	for _, key := range []string{"a", "x"} {
		r := c.raw(1)
		for _, turn := range []struct{ command, want string }{
			{"SET % 1 IFEQ 1", null}, {"EXISTS %", ":0\r\n"}, {"SET % 1 IFEQ 1 GET", null}, {"EXISTS %", ":0\r\n"},
			{"SET % 1 IFNE 1", ok}, {"GET %", "$1\r\n1\r\n"}, {"SET % 2 IFNE 1", null}, {"SET % 2 IFNE 1 GET", "$1\r\n1\r\n"}, {"GET %", "$1\r\n1\r\n"},
			{"SET % 2 IFEQ 1", ok}, {"SET % 3 ifeq 1", null}, {"SET % 3 IFEQ 1 GET", "$1\r\n2\r\n"}, {"GET %", "$1\r\n2\r\n"},
			{"SET % 3 GET IFEQ 2", "$1\r\n2\r\n"}, {"SET % 4 IFNE 2 GET", "$1\r\n3\r\n"}, {"GET %", "$1\r\n4\r\n"},
			{"SET % 5 IFEQ", syntax}, {"SET % 5 IFEQ 4 NX", syntax}, {"SET % 5 XX IFNE 4", syntax}, {"SET % 5 IFEQ 4 IFEQ 4", syntax}, {"SET % 5 IFEQ 4 IFNE 4", syntax},
			{"SET % 5 IFEQ " + long, "-ERR value is 3000 bytes; this index takes at most 2048\r\n"}, {"SET % " + long + " IFEQ 4", "-ERR value is 3000 bytes; this index takes at most 2048\r\n"},
			{"SET % 6 IFEQ 4 EX 10", "-ERR pairs of this index do not expire, and nothing was done: its spec.expiry is Disabled, for good; use an index with spec.expiry: Enabled\r\n"}, {"GET %", "$1\r\n4\r\n"},
			{"DELIFEQ % 3", ":0\r\n"}, {"DELIFEQ % 4", ":1\r\n"}, {"DELIFEQ % 4", ":0\r\n"}, {"DELIFEQ %", "-ERR wrong number of arguments for 'delifeq' command\r\n"},
			{"DELEX %", ":0\r\n"}, {"DELEX % IFNE 1", ":0\r\n"}, {"SET % 1", ok}, {"DELEX % IFEQ 2", ":0\r\n"}, {"DELEX % IFNE 1", ":0\r\n"}, {"GET %", "$1\r\n1\r\n"},
			{"DELEX % IFEQ", "-ERR wrong number of arguments for 'delex' command\r\n"}, {"DELEX % IFDEQ 1", "-ERR syntax error: DELEX with 'IFDEQ'; IFEQ and IFNE are possible\r\n"},
			{"DELEX % IFNE 2", ":1\r\n"}, {"SET % 1", ok}, {"DELEX % ifeq 1", ":1\r\n"}, {"SET % 1", ok}, {"DELEX %", ":1\r\n"}, {"EXISTS %", ":0\r\n"},
			{"APPEND % " + long, "-ERR value is 3000 bytes; this index takes at most 2048\r\n"}, {"SETRANGE % 2048 x", "-ERR value is 2049 bytes; this index takes at most 2048\r\n"},
			{"SETRANGE % 2047 x", ":2048\r\n"}, {"APPEND % x", "-ERR value is 2049 bytes; this index takes at most 2048\r\n"}, {"SETRANGE % 9223372036854775807 x", "-ERR value is 9223372036854775808 bytes; this index takes at most 2048\r\n"}, {"DEL %", ":1\r\n"},
		} {
			r.Send(computeservertest.Command(strings.Fields(strings.ReplaceAll(turn.command, "%", key))...))
			if got := r.Line(); got != turn.want && !strings.HasPrefix(turn.want, "$1") {
				t.Errorf("%.60q gave %q, want %q", turn.command, got, turn.want)
			} else if strings.HasPrefix(got, "$1") {
				if got += r.Line(); got != turn.want {
					t.Errorf("%.60q gave %q, want %q", turn.command, got, turn.want)
				}
			}
		}
	}
}
