package computeserver

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestMSetEx: all pairs are stored, with one deadline, or none is, as Redis 8.4 says, which is not
// here to be compared with. At the owner of the keys, and at another server.
func TestMSetEx(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	k := newTalk(c, 1)
	ask := func(command, want string) {
		t.Helper()
		k.Send(computeservertest.Command(words(command)...))
		if got := wholeReply(t, k.from); got != want {
			t.Errorf("%.80s gave %q, want %q", command, got, want)
		}
	}
	const all, none, syntax, pairs = ":1\r\n", ":0\r\n", "-ERR syntax error\r\n", "-ERR wrong number of key-value pairs\r\n"
	for _, key := range []string{"a", "x"} {
		f := func(command, want string) {
			t.Helper()
			ask(strings.ReplaceAll(command, "%", key), want)
		}
		f("GET %", "$-1\r\n") // then servers know what their sessions can do
		f("MSETEX 2 %1 A %2 B", all)
		f("MGET %1 %2", "*2\r\n$1\r\nA\r\n$1\r\nB\r\n")
		f("TTL %1", ":-1\r\n")
		f("MSETEX 2 %1 C %3 D NX", none)
		f("MSETEX 2 %1 C %3 D XX EX 100", none)
		f("MGET %1 %2 %3", "*3\r\n$1\r\nA\r\n$1\r\nB\r\n$-1\r\n")
		f("MSETEX 2 %3 C %4 D nx ex 100", all)
		f("TTL %3", ":100\r\n")
		f("MSETEX 3 %1 E %2 F %3 G KEEPTTL XX", all)
		f("MGET %1 %2 %3", "*3\r\n$1\r\nE\r\n$1\r\nF\r\n$1\r\nG\r\n")
		f("TTL %3", ":100\r\n")
		f("TTL %1", ":-1\r\n")
		f("MSETEX 1 %3 H PXAT 33000000000123", all)
		f("PEXPIRETIME %3", ":33000000000123\r\n")
		f("MSETEX 1 %3 I", all)
		f("TTL %3", ":-1\r\n")
		f("MSETEX 2 %1 J %1 K XX", all)
		f("GET %1", "$1\r\nK\r\n")
		f("MSETEX 0 %1 A", "-ERR invalid numkeys value\r\n")
		f("MSETEX x %1 A", "-ERR invalid numkeys value\r\n")
		f("MSETEX 9223372036854775807 %1 A", pairs)
		f("MSETEX 2 %1 A %2", pairs)
		f("MSETEX 1 %1 A %2", syntax)
		f("MSETEX 1 %1 A NX XX", syntax)
		f("MSETEX 1 %1 A EX", syntax)
		f("MSETEX 1 %1 A EX 1 KEEPTTL", syntax)
		f("MSETEX 1 %1 A GET", syntax)
		f("MSETEX 1 %1 A EX 0", "-ERR invalid expire time in 'msetex' command\r\n")
		f("MSETEX 1 %1 A EX y", "-ERR value is not an integer or out of range\r\n")
		f("MSETEX 1 %1 "+strings.Repeat("v", 3000), "-ERR value is 3000 bytes; this index takes at most 2048\r\n")
		f("COMMAND GETKEYS MSETEX 2 %1 A %2 B NX", "*2\r\n$2\r\n"+key+"1\r\n$2\r\n"+key+"2\r\n")
		f("GET %1", "$1\r\nK\r\n")
		f("DEL %1 %2 %3 %4", ":4\r\n")
	}
	k.Send(computeservertest.Command(append([]string{"MSETEX", "513"}, strings.Fields(strings.Repeat("a v ", 513))...)...))
	if got := wholeReply(t, k.from); got != "-ERR MSETEX has at most 512 keys, and nothing was done; divide it\r\n" {
		t.Errorf("513 pairs gave %q", got)
	}
	if n := c.store.Len(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// TestRenamesSideBySide: a pair that some move between two keys, while others count in it wherever
// it is, is always at one of them, and loses nothing.
func TestRenamesSideBySide(t *testing.T) {
	const each = 150
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	ctx := t.Context()
	// then servers know what their sessions can do
	for key, id := range map[string]uint32{"a": 1, "x1": 2} {
		if err := c.redis(id).Set(ctx, key, 0, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	count := redis.NewScript("for _, key in ipairs(KEYS) do if redis.call('EXISTS', key) == 1 then return redis.call('INCR', key) end end return redis.error_reply('it is nowhere')")
	var all sync.WaitGroup
	var moved atomic.Int64
	for id := range c.servers {
		r := c.redis(id)
		all.Go(func() {
			for range each {
				if err := count.Run(ctx, r, []string{"x1", "x2"}).Err(); err != nil {
					t.Error(err)
				}
			}
		})
		for _, keys := range [][2]string{{"x1", "x2"}, {"x2", "x1"}} {
			all.Go(func() {
				for range each {
					switch err := r.Rename(ctx, keys[0], keys[1]).Err(); {
					case err == nil:
						moved.Add(1)
					case err.Error() != "ERR no such key":
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	got, err := c.redis(1).MGet(ctx, "x1", "x2").Result()
	if err != nil || !(got[0] == nil && got[1] == "300" || got[0] == "300" && got[1] == nil) || moved.Load() == 0 {
		t.Errorf("the keys have %v after %d renames: %v", got, moved.Load(), err)
	}
}
