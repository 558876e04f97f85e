package computeserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// inspecting are commands that say something of a pair other than its value, with %s for their key.
var inspecting = []string{
	"TYPE %s", "STRLEN %s", "GETRANGE %s 0 -1", "SUBSTR %s 0 5", "TOUCH %s", "OBJECT ENCODING %s", "OBJECT IDLETIME %s", "OBJECT REFCOUNT %s", "OBJECT FREQ %s", "MEMORY USAGE %s",
	"SET %s hello", "TYPE %s", "STRLEN %s", "TOUCH %s %s", "TYPE %s x", "STRLEN %s x", "TYPE", "TOUCH", "OBJECT ENCODING %s", "OBJECT IDLETIME %s", "OBJECT REFCOUNT %s", "OBJECT FREQ %s",
	"GETRANGE %s 0 -1", "GETRANGE %s 1 3", "GETRANGE %s -3 -1", "GETRANGE %s -1 -3", "GETRANGE %s 3 1", "GETRANGE %s 3 100", "GETRANGE %s 5 5", "GETRANGE %s 4 4", "GETRANGE %s -100 2", "GETRANGE %s -100 -100", "GETRANGE %s -100 -99", "GETRANGE %s 0 -100", "GETRANGE %s 9223372036854775807 9223372036854775807",
	"GETRANGE %s -9223372036854775808 9223372036854775807", "GETRANGE %s -9223372036854775808 -9223372036854775808", "GETRANGE %s 9223372036854775808 1", "GETRANGE %s x 1", "GETRANGE %s 1 x", "GETRANGE %s 1", "SUBSTR %s 1 3", "SUBSTR %s x 3",
	"SET %s ''", "STRLEN %s", "GETRANGE %s 0 -1", "GETRANGE %s 0 0", "OBJECT ENCODING %s",
	"SET %s 12345678901234567", "OBJECT ENCODING %s", "SET %s 012", "OBJECT ENCODING %s", "SET %s 12345678901234567890", "OBJECT ENCODING %s",
	"SET %s aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "OBJECT ENCODING %s", "SET %s aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "OBJECT ENCODING %s",
	"MSETNX %s 1", "MSETNX %s", "MSETNX %s 1 %s", "DEL %s", "MSETNX %s 1", "GET %s", "MEMORY USAGE %s SAMPLES x", "MEMORY USAGE %s SAMPLES -1", "COMMAND GETKEYS GET %s", "COMMAND GETKEYS MSET %s 1 b 2", "COMMAND GETKEYS DEL %s b c", "COMMAND GETKEYS NOPE %s", "COMMAND GETKEYS GET %s 1", "COMMAND GETKEYS PING", "COMMAND GETKEYS PING x",
	"COMMAND GETKEYS OBJECT ENCODING %s", "SCAN 0 TYPE", "ROLE", "FLUSHALL x", "FLUSHDB SYNC x", "CLIENT CACHING YES", "CLIENT GETREDIR", "CLIENT KILL 1.2.3.4:5", "CLIENT KILL ID 0", "CLIENT KILL ID x", "CLIENT KILL ID 99999999", "CLIENT KILL ADDR 1.2.3.4:5 SKIPME yes LADDR 1.2.3.4:6", "CLIENT KILL TYPE nope", "CLIENT KILL TYPE pubsub", "CLIENT KILL SKIPME maybe",
	"CLIENT TRACKING maybe", "CLIENT TRACKING OFF",
}

// TestInspectingAgainstRedis: what is said of a pair is what a real redis-server says, byte by
// byte, at the owner of the key and at another server, in RESP2 and RESP3, alone and in a pipeline.
func TestInspectingAgainstRedis(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	for _, protocol := range []string{"2", "3"} {
		newPair(t, c, protocol).askOnKeys(inspecting)
	}
}

// TestEveryKey: KEYS, RANDOMKEY, SCAN with a type, INFO keyspace and FLUSHALL are about the keys of
// all servers.
func TestEveryKey(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	k := newTalk(c, 1)
	ask := func(args ...string) string {
		t.Helper()
		k.Send(computeservertest.Command(args...))
		return wholeReply(t, k.from)
	}
	if got := ask("RANDOMKEY") + ask("KEYS", "*") + ask("FLUSHALL") + ask("INFO", "keyspace"); got != "$-1\r\n*0\r\n+OK\r\n$12\r\n# Keyspace\r\n\r\n" {
		t.Errorf("an empty index: %q", got)
	}
	const keys = 2500 // more than two parts
	pairs := []string{"MSET"}
	for i := range keys {
		pairs = append(pairs, fmt.Sprintf("%c%04d", "ax"[i%2], i), "v")
	}
	ask(pairs...)
	if got, want := ask("KEYS", "?000[0-3]"), "*4\r\n$5\r\na0000\r\n$5\r\na0002\r\n$5\r\nx0001\r\n$5\r\nx0003\r\n"; got != want {
		t.Errorf("KEYS gave %q", got)
	}
	if got := ask("KEYS", "*"); !strings.HasPrefix(got, "*2500\r\n") {
		t.Errorf("KEYS * gave %.40q", got)
	}
	for typed, want := range map[string]string{"string": "*2\r\n$1\r\n0\r\n*2500\r\n", "STRING": "*2\r\n$1\r\n0\r\n*2500\r\n", "zset": "*2\r\n$1\r\n0\r\n*0\r\n"} {
		if got := ask("SCAN", "0", "COUNT", "5000", "TYPE", typed); !strings.HasPrefix(got, want) {
			t.Errorf("SCAN TYPE %s gave %.40q", typed, got)
		}
	}
	var some []string
	for range 30 {
		key := ask("RANDOMKEY")
		if !slices.Contains(pairs, strings.Split(key, "\r\n")[1]) {
			t.Fatalf("RANDOMKEY gave %q", key)
		}
		some = append(some, key)
	}
	slices.Sort(some)
	if n := len(slices.Compact(some)); n < 10 {
		t.Errorf("30 random keys of %d are %d", keys, n)
	}
	computeservertest.Await(t, "the last count is old", func() bool {
		return strings.Contains(ask("INFO", "keyspace"), "\r\ndb0:keys=2500,expires=0,avg_ttl=0\r\n")
	})
	if got := ask("INFO"); !strings.Contains(got, "\r\ndb0:keys=2500,") || !strings.Contains(got, "\r\nrole:master\r\n") || !strings.Contains(got, "\r\nused_memory:") {
		t.Errorf("INFO gave %q", got)
	}
	if got := ask("MSETNX", "q", "1", "r", "2"); !strings.HasPrefix(got, "-ERR "+engine.ErrNoGroups.Error()) {
		t.Errorf("MSETNX of two gave %q", got)
	}
	if got := ask("FLUSHDB", "ASYNC"); got != "+OK\r\n" || c.store.Len() != 0 {
		t.Errorf("FLUSHDB gave %q and left %d keys", got, c.store.Len())
	}
}
