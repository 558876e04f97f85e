package computeserver

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/pkg/partition"
)

// sorting are commands on sorted sets, and what other commands say of one, with %s for their key.
var sorting = []string{
	"ZSCORE %s a", "ZMSCORE %s a b", "ZCARD %s", "ZCOUNT %s 0 1", "ZREM %s a", "ZRANK %s a", "ZREVRANK %s a", "ZRANGE %s 0 -1", "ZREVRANGE %s 0 -1", "ZRANGEBYSCORE %s -inf inf", "ZPOPMIN %s", "ZPOPMAX %s 2", "ZREMRANGEBYSCORE %s 0 1", "ZSCAN %s 0", "ZSCAN %s 0 NOPE", "ZADD %s XX 1 a", "ZADD %s XX INCR 1 a", "EXISTS %s", "TYPE %s",
	"ZADD %s 1 a", "ZADD %s 1 a", "ZADD %s 2 a 3 b", "ZADD %s CH 2 a 4 b 5 c", "ZRANGE %s 0 -1 WITHSCORES", "TYPE %s", "EXISTS %s %s", "TOUCH %s", "OBJECT REFCOUNT %s",
	"ZADD %s NX 9 a 6 d", "ZADD %s XX 2.5 a 6 e", "ZADD %s GT CH 1 a 9 b", "ZADD %s LT CH 9 a 1 b", "ZADD %s GT 7 f", "ZADD %s XX GT CH 8 f", "ZADD %s NX XX 1 a", "ZADD %s GT LT 1 a", "ZADD %s NX GT 1 a", "ZADD %s INCR 1 a 2 b", "ZADD %s INCR 1 a", "ZADD %s NX INCR 1 a", "ZADD %s GT INCR -1 a", "ZADD %s 1", "ZADD %s 1 a 2", "ZADD %s", "ZADD %s x a", "ZADD %s '' a", "ZADD %s nan a", "ZADD %s 1 a x b", "ZADD %s CH", "ZADD %s 1 x 2 x", "ZSCORE %s x", "ZREM %s x x y",
	"ZRANGE %s 0 -1 WITHSCORES", "ZADD %s inf i -inf j", "ZADD %s INCR -inf i", "ZINCRBY %s inf j", "ZINCRBY %s -inf i", "ZADD %s 1e400 a", "ZADD %s 1e-400 a", "ZADD %s 0x10 h", "ZADD %s +1.5 h", "ZADD %s 5e1 h", "ZADD %s -0 z 0 y", "ZSCORE %s z", "ZRANGEBYSCORE %s 0 0 WITHSCORES", "ZREM %s z y",
	"ZRANGE %s 0 -1 WITHSCORES", "ZRANGE %s 1 2", "ZRANGE %s 1 100", "ZRANGE %s -2 -1", "ZRANGE %s -100 1", "ZRANGE %s 1 -2", "ZRANGE %s 2 1", "ZRANGE %s 100 200", "ZRANGE %s -1 -2", "ZRANGE %s -3 3", "ZRANGE %s 0 9223372036854775807", "ZRANGE %s -9223372036854775808 -1", "ZRANGE %s 9223372036854775807 9223372036854775807", "ZRANGE %s -1 -9223372036854775808", "ZRANGE %s -9223372036854775808 9223372036854775807", "ZRANGE %s 0 0 WITHSCORES", "ZRANGE %s 0 -1 REV", "ZRANGE %s 1 2 REV WITHSCORES", "ZRANGE %s -2 -1 REV", "ZREVRANGE %s 0 1", "ZREVRANGE %s 0 1 WITHSCORES", "ZREVRANGE %s -3 -2", "ZREVRANGE %s 0 1 REV", "ZRANGE %s 0 1 REV REV",
	"ZRANGE %s 0 5 BYSCORE", "ZRANGE %s 5 0 BYSCORE REV", "ZRANGE %s (1 5 BYSCORE", "ZRANGE %s -inf +inf BYSCORE LIMIT 1 2", "ZRANGE %s +inf -inf BYSCORE REV LIMIT 1 2 WITHSCORES", "ZRANGE %s -inf inf BYSCORE LIMIT 0 -1", "ZRANGE %s -inf inf BYSCORE LIMIT -1 2", "ZRANGE %s -inf inf BYSCORE LIMIT 0 0", "ZRANGE %s -inf inf BYSCORE LIMIT 100 1", "ZRANGE %s 0 1 LIMIT 0 1", "ZRANGE %s 0 1 LIMIT 0 -1", "ZRANGE %s 0 1 LIMIT x 1", "ZRANGE %s 0 1 LIMIT 1", "ZRANGE %s x 1", "ZRANGE %s 0 x BYSCORE", "ZRANGE %s (nan 1 BYSCORE", "ZRANGE %s 0 1 NOPE", "ZRANGE %s 0 1 BYSCORE BYLEX", "ZRANGE %s 0",
	"ZRANGEBYSCORE %s 1 5", "ZRANGEBYSCORE %s (1 (5 WITHSCORES", "ZRANGEBYSCORE %s 5 1", "ZRANGEBYSCORE %s (5 (5", "ZRANGEBYSCORE %s 5 5", "ZRANGEBYSCORE %s -inf inf LIMIT 1 1", "ZRANGEBYSCORE %s 1 5 REV", "ZRANGEBYSCORE %s x 5", "ZREVRANGEBYSCORE %s 5 1 WITHSCORES", "ZREVRANGEBYSCORE %s inf -inf LIMIT 0 2", "ZREVRANGEBYSCORE %s (5 -inf", "ZCOUNT %s -inf inf", "ZCOUNT %s (1 5", "ZCOUNT %s 5 1", "ZCOUNT %s x 1", "ZCARD %s",
	"ZRANK %s a", "ZRANK %s b", "ZREVRANK %s a", "ZREVRANK %s j", "ZRANK %s none", "ZMSCORE %s a none b", "ZMSCORE %s", "ZSCORE %s none", "ZSCORE %s",
	"ZSCAN %s 0", "ZSCAN %s 0 MATCH [a-c]", "ZSCAN %s 0 COUNT 0", "ZSCAN %s x", "ZSCAN %s 0 MATCH", "ZSCAN %s 0 NOPE 1",
	"ZPOPMIN %s", "ZPOPMAX %s", "ZPOPMIN %s 0", "ZPOPMIN %s -1", "ZPOPMIN %s x", "ZPOPMIN %s 1 2", "ZPOPMAX %s 2", "ZREMRANGEBYSCORE %s (2 3", "ZREMRANGEBYSCORE %s x 3", "ZRANGE %s 0 -1 WITHSCORES", "ZPOPMIN %s 100", "EXISTS %s", "ZINCRBY %s 2 a", "ZINCRBY %s 0.5 a", "ZINCRBY %s x a", "ZREM %s a", "EXISTS %s", "TYPE %s",
	// members of the same score, with bytes that stand in keys
	"ZADD %s 0 aa 0 a 0 '' 0 b 0 ab 0 c", "ZRANGE %s 0 -1", "ZRANGE %s - + BYLEX", "ZRANGE %s [a (b BYLEX", "ZRANGE %s (a [b BYLEX", "ZRANGE %s + - BYLEX REV", "ZRANGE %s [b (a BYLEX REV LIMIT 1 2", "ZRANGE %s + - BYLEX", "ZRANGE %s [a b BYLEX", "ZRANGE %s a [b BYLEX", "ZRANGE %s - + BYLEX WITHSCORES", "ZRANGE %s - [ BYLEX", "ZRANGE %s ( + BYLEX LIMIT 0 1", "ZREMRANGEBYSCORE %s 0 0", "EXISTS %s",
	// of another type
	"ZADD %s 1 a", "GET %s", "STRLEN %s", "APPEND %s x", "INCR %s", "GETSET %s x", "GETDEL %s", "SET %s x GET", "SETNX %s x", "MGET %s %s", "HSET %s a 1", "HGET %s a", "HGETALL %s", "TTL %s", "EXPIREAT %s 33000000000", "ZADD %s 2 b", "EXPIRETIME %s", "PERSIST %s", "ZRANGE %s 0 -1", "SET %s x", "GET %s", "ZADD %s 1 a", "ZADD %s INCR 1 a", "ZSCORE %s a", "ZMSCORE %s a", "ZREM %s a", "ZCARD %s", "ZCOUNT %s 0 1", "ZRANK %s a", "ZRANGE %s 0 1", "ZRANGE %s 0 5 BYSCORE", "ZPOPMIN %s", "ZPOPMIN %s 0", "ZREMRANGEBYSCORE %s 0 1", "ZSCAN %s 0", "DEL %s", "HSET %s f v", "ZADD %s 1 a", "ZRANGE %s 0 -1", "DEL %s",
	"ZADD %s 1 a", "DEL %s", "ZRANGE %s 0 -1", "ZADD %s 2 b", "ZRANGE %s 0 -1 WITHSCORES", "ZADD %s 3 c", "EXPIRE %s -1", "ZCARD %s", "ZADD %s 3 d", "ZRANGE %s 0 -1",
	"COMMAND GETKEYS ZADD %s 1 a",
}

// TestSetsAgainstRedis: commands on sorted sets, and others on their keys, are answered byte by
// byte as a real redis-server answers, at the server of the key and at another one, in RESP2 and
// RESP3, alone and in a pipeline. What a set consists of lies on two servers.
func TestSetsAgainstRedis(t *testing.T) {
	var off [3]atomic.Int64
	rnd := computeservertest.Seeded(t)
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.split([]uint32{1, 2}, "m", "\xff\xffset\x80")
	for _, protocol := range []string{"2", "3"} {
		p := newPair(t, c, protocol)
		p.askOnKeys(sorting)
		for range 12 {
			var all [][]string
			for range 1 + rnd.IntN(60) {
				all = append(all, onSet(rnd, []string{"b", "c", "y", "z"}[rnd.IntN(4)]+protocol))
			}
			key := "r" + protocol // additions to it are done side by side
			for range rnd.IntN(40) {
				all = append(all, addition(rnd, key))
			}
			p.ask(append(all, []string{"ZRANGE", key, "0", "-1", "WITHSCORES"})...)
		}
	}
}

// addition is a command that adds to a sorted set of few members.
func addition(rnd *rand.Rand, key string) []string {
	member := func() string { return string(rune('a' + rnd.IntN(12))) }
	score := func() string { return []string{"-1", "0", "1", "2.5", "3", "inf"}[rnd.IntN(6)] }
	return [][]string{
		{"ZADD", key, score(), member()}, {"ZADD", key, score(), member(), score(), member()}, {"ZADD", key, "NX", score(), member()}, {"ZADD", key, "XX", "CH", score(), member()},
		{"ZADD", key, "GT", "CH", score(), member()}, {"ZADD", key, "LT", score(), member()}, {"ZADD", key, "NX", "INCR", score(), member()},
		{"ZINCRBY", key, score(), member()}, {"ZINCRBY", key, "-inf", member()}, {"ZADD", key, "x", member()}, {"ZADD", key, score()}, {"zadd", key, score(), member()},
	}[rnd.IntN(12)]
}

// onSet is a command on a sorted set of few members, or on what else the key has.
func onSet(rnd *rand.Rand, key string) []string {
	member := func() string { return strings.Repeat("m", rnd.IntN(8)) + []string{"", "\x00", "\xff"}[rnd.IntN(3)] }
	score := func() string { return fmt.Sprint(rnd.IntN(12)-4) + []string{"", ".5", ".25"}[rnd.IntN(3)] }
	rank := func() string { return fmt.Sprint(rnd.IntN(14) - 7) }
	return [][]string{
		{"ZADD", key, score(), member(), score(), member()}, {"ZADD", key, score(), member()}, {"ZADD", key, "NX", score(), member()}, {"ZADD", key, "XX", "CH", score(), member()}, {"ZADD", key, "GT", "CH", score(), member()}, {"ZADD", key, "LT", score(), member()}, {"ZADD", key, "INCR", score(), member()},
		{"ZINCRBY", key, score(), member()}, {"ZREM", key, member(), member()}, {"ZREM", key, member()}, {"ZSCORE", key, member()}, {"ZMSCORE", key, member(), member()}, {"ZCARD", key}, {"ZCOUNT", key, score(), score()},
		{"ZRANGE", key, rank(), rank(), "WITHSCORES"}, {"ZRANGE", key, rank(), rank(), "REV"}, {"ZRANGE", key, score(), "(" + score(), "BYSCORE", "LIMIT", "1", "3"}, {"ZREVRANGE", key, rank(), rank()}, {"ZREVRANGEBYSCORE", key, score(), score(), "WITHSCORES"}, {"ZRANK", key, member()}, {"ZREVRANK", key, member()},
		{"ZPOPMIN", key}, {"ZPOPMAX", key, "2"}, {"ZREMRANGEBYSCORE", key, score(), score()}, {"ZSCAN", key, "0"}, {"DEL", key}, {"SET", key, number(rnd)}, {"TYPE", key}, {"EXISTS", key}, {"ZADD", key, score(), member()}, {"DEL", key}, {"ZADD", key, score(), member(), score(), member()},
	}[rnd.IntN(32)]
}

// TestSetIsOneKey: what a set consists of is shown to nobody, nor can it be written; large sets are
// read in pieces, and what a deleted one leaves is removed.
func TestSetIsOneKey(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) { expires(&off)(cfg); cfg.stays = false }, 1, 2)
	c.split([]uint32{1, 2}, "m", "\xff\xffset\x80")
	k := newTalk(c, 1)
	ask := func(args ...string) string {
		t.Helper()
		k.Send(computeservertest.Command(args...))
		return wholeReply(t, k.from)
	}
	const members = 1000
	for _, key := range []string{"set", "zz", "\xff\xffz"} {
		for i := 0; i < members; i += 100 {
			add := []string{"ZADD", key}
			for j := i; j < i+100; j++ {
				add = append(add, fmt.Sprint(j%7), fmt.Sprintf("m%03d", j))
			}
			if got := ask(add...); got != ":100\r\n" {
				t.Fatal(got)
			}
		}
		if got := ask("ZCARD", key) + ask("ZCOUNT", key, "3", "3"); got != ":1000\r\n:143\r\n" {
			t.Errorf("ZCARD and ZCOUNT gave %q", got)
		}
		if got := ask("ZRANK", key, "m006") + ask("ZREVRANK", key, "m006"); got != ":858\r\n:141\r\n" {
			t.Errorf("ranks are %q", got)
		}
		if got := ask("ZRANGE", key, "500", "501") + ask("ZRANGE", key, "-1", "-1") + ask("ZRANGE", key, "998", "-1"); got != "*2\r\n$4\r\nm500\r\n$4\r\nm507\r\n*1\r\n$4\r\nm993\r\n*2\r\n$4\r\nm986\r\n$4\r\nm993\r\n" {
			t.Errorf("ranges are %q", got)
		}
		seen, cursor := map[string]bool{}, "0"
		for {
			got := strings.Split(ask("ZSCAN", key, cursor, "COUNT", "300"), "\r\n")
			for i := 5; i+3 < len(got); i += 4 {
				seen[got[i]] = true
			}
			if cursor = got[2]; cursor == "0" {
				break
			}
		}
		if len(seen) != members {
			t.Errorf("ZSCAN showed %d of %d members", len(seen), members)
		}
	}
	if got := ask("DBSIZE") + ask("SCAN", "0", "COUNT", "1000") + ask("SCAN", "0", "TYPE", "zset", "MATCH", "z*"); got != ":3\r\n*2\r\n$1\r\n0\r\n*3\r\n$3\r\nset\r\n$2\r\nzz\r\n$3\r\n\xff\xffz\r\n*2\r\n$1\r\n0\r\n*1\r\n$2\r\nzz\r\n" {
		t.Errorf("the keys are %q", got)
	}
	if got := ask("RANGE", "", "") + ask("RANGE", "", "", "REV", "LIMIT", "2"); got != "*6\r\n$3\r\nset\r\n$-1\r\n$2\r\nzz\r\n$-1\r\n$3\r\n\xff\xffz\r\n$-1\r\n*4\r\n$3\r\n\xff\xffz\r\n$-1\r\n$2\r\nzz\r\n$-1\r\n" {
		t.Errorf("the pairs are %q", got)
	}
	for _, args := range [][]string{{"SET", "\xff\xffset1", "x"}, {"GET", "\xff\xffset"}, {"DEL", "\xff\xffset"}, {"ZADD", "\xff\xffset1", "1", "a"}} {
		if got := ask(args...); !strings.HasPrefix(got, "-ERR keys that begin with the bytes ff ff and the letters set are") {
			t.Errorf("%q gave %q", args, got)
		}
	}
	if got := ask("ZADD", "set", "1", strings.Repeat("m", 600)); !strings.HasPrefix(got, "-ERR the member takes 628 bytes of a key") {
		t.Error(got)
	}
	ask("SET", "set", "x")
	ask("DEL", "zz")
	ask("FLUSHALL")
	computeservertest.Await(t, "what the sets consisted of is removed", func() bool { return c.store.Len() == 0 })
}

// TestSetsInNoGroup: what would change or read members in one step with other keys is refused, as
// members lie on several servers, and nothing is done. The key as a whole may be in a transaction.
func TestSetsInNoGroup(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m", "\xff\xffset\x80")
	k := newTalk(c, 1)
	ask := func(want string, args ...string) {
		t.Helper()
		k.Send(computeservertest.Command(args...))
		if got := wholeReply(t, k.from); !strings.HasPrefix(got, want) {
			t.Errorf("%.60q gave %q, want %q", args, got, want)
		}
	}
	const abort = "-EXECABORT Transaction discarded because of previous errors.\r\n"
	for _, key := range []string{"a", "x"} {
		ask(":1", "ZADD", key, "1", "m")
		for _, args := range [][]string{{"ZADD", key, "2", "m"}, {"ZREM", key, "m"}, {"ZSCORE", key, "m"}, {"ZRANGE", key, "0", "1"}} {
			ask("+OK", "MULTI")
			ask("-ERR '"+strings.ToLower(args[0])+"' cannot stand between MULTI and EXEC, as the members of a sorted set lie on several servers", args...)
			ask(abort, "EXEC")
			ask("-ERR '"+strings.ToLower(args[0])+"' cannot be called from a script: the members of a sorted set lie on several servers", append([]string{"EVAL", "return redis.call(unpack(ARGV))", "1", key}, args...)...)
		}
		ask("-WRONGTYPE the key has a sorted set", "WATCH", key)
		for _, args := range [][]string{{"RENAME", key, key + "2"}, {"RENAMENX", key, key + "2"}, {"COPY", key, key + "2"}} {
			ask("-ERR a sorted set cannot get another key, as its members lie on several servers, and nothing was done", args...)
		}
		ask("+OK", "SET", key+"2", "1")
		ask(":0", "RENAMENX", key+"2", key)
		ask(":0", "COPY", key+"2", key)
		ask(":0", "MSETEX", "2", key+"3", "1", key, "2", "NX")
		ask(":1", "DEL", key+"2", key+"3")
		ask("-ERR keys that begin with the bytes ff ff and the letters set", "EVAL", "return redis.call('EXISTS', KEYS[1])", "1", "\xff\xffset1")
		ask("$1\r\n1\r\n", "ZSCORE", key, "m")
		ask("+OK", "MULTI")
		ask("+QUEUED", "EXISTS", key)
		ask("+QUEUED", "GET", key)
		ask("+QUEUED", "PERSIST", key)
		ask("+QUEUED", "DEL", key)
		ask("*4\r\n:1\r\n-WRONGTYPE", "EXEC")
		ask("$-1", "ZSCORE", key, "m")
		ask("+OK", "WATCH", key)
		ask(":1", "ZADD", key, "1", "m")
		ask("+OK", "MULTI")
		ask("*-1", "EXEC")
	}
}

// TestExpiredSetIsGone: a set that has expired by the clock of one owner is not there again for the
// next one, whose clock is behind: members are removed that a head of it would still count.
func TestExpiredSetIsGone(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.split([]uint32{1})
	k, other := newTalk(c, 1), newTalk(c, 2)
	ask := func(of *talk, want string, args ...string) {
		t.Helper()
		of.Send(computeservertest.Command(args...))
		if got := wholeReply(t, of.from); got != want {
			t.Errorf("%q gave %q, want %q", args, got, want)
		}
	}
	ask(k, ":2\r\n", "ZADD", "a", "1", "m", "2", "n")
	ask(k, ":1\r\n", "EXPIRE", "a", "100")
	off[1].Store(200_000)
	sets, err := c.servers[1].core.Sets(nil, true, c.servers[1].core.Limit, 0)
	if err != nil {
		t.Fatal(err)
	}
	const all = 2 + 2 + 1 // items, entries, the root
	if next, did, err := sets.Collect(nil, nil); next != nil || did != all || err != nil {
		t.Errorf("%d pairs were removed up to %q: %v", did, next, err)
	}
	c.split([]uint32{2})
	ask(other, ":0\r\n", "PERSIST", "a")
	ask(other, ":0\r\n", "EXISTS", "a")
	if n := c.store.Len(); n != 0 {
		t.Errorf("%d pairs are left", n)
	}
}

// TestPopKeepsWhatIsNotReplied: members whose reply the buffers have no room for stay.
func TestPopKeepsWhatIsNotReplied(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { expires(&off)(cfg); cfg.MaxBuffers = 128 << 10 }, 1)
	c.split([]uint32{1})
	k := newTalk(c, 1)
	ask := func(args ...string) string {
		k.Send(computeservertest.Command(args...))
		return wholeReply(t, k.from)
	}
	const members = 100
	for i := range members {
		ask("ZADD", "set", "1", fmt.Sprintf("%0480d", i))
	}
	if got := ask("ZPOPMIN", "set", fmt.Sprint(members)); !strings.HasPrefix(got, "-UNAVAILABLE the buffers of all connections") {
		t.Errorf("ZPOPMIN gave %.100q", got)
	}
	if got := ask("ZCARD", "set"); got != fmt.Sprintf(":%d\r\n", members) {
		t.Errorf("of %d members are left %q", members, got)
	}
}

// TestSetScanOutlivesItsServer: ZSCAN goes on at another server when the one that gave the cursor
// has ended, and shows each member that stays, while others come and go.
func TestSetScanOutlivesItsServer(t *testing.T) {
	rnd := computeservertest.Seeded(t)
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingAny, expires(&off), 1, 2)
	c.split([]uint32{1, 2}, "m")
	talks := []*talk{newTalk(c, 1), newTalk(c, 2)}
	ask := func(at int, args ...string) string {
		t.Helper()
		talks[at].Send(computeservertest.Command(args...))
		return wholeReply(t, talks[at].from)
	}
	add, rest := []string{"ZADD", "set"}, []string{"ZADD", "set"}
	for i := range 400 {
		add = append(add, fmt.Sprint(i%7), fmt.Sprintf("customers:of:the:north:%05d", i*7))
		rest = append(rest, "1", fmt.Sprintf("customers:of:the:north:%05d:%d", i*7, rnd.IntN(1000)))
	}
	ask(0, add...)
	ask(0, rest...)
	seen, cursor := map[string]bool{}, "0"
	for step := 0; step == 0 || cursor != "0"; step++ {
		at := rnd.IntN(2)
		if step >= 10 {
			at = 0
		}
		got := strings.Split(ask(at, "ZSCAN", "set", cursor, "COUNT", "20"), "\r\n")
		if len(got) < 4 || step > 200 {
			t.Fatalf("step %d: %q", step, got)
		}
		for i := 5; i+3 < len(got); i += 4 {
			seen[got[i]] = true
		}
		if cursor = got[2]; step == 10 {
			c.stop(2)
		}
		gone := rest[3+2*rnd.IntN(400)]
		ask(0, "ZREM", "set", gone)
		ask(0, "ZADD", "set", "5", fmt.Sprintf("customers:of:the:north:%05d!", rnd.IntN(3000)))
	}
	for i := 3; i < len(add); i += 2 {
		if !seen[add[i]] {
			t.Errorf("%q was not shown", add[i])
		}
	}
	if step, _ := strconv.ParseUint(strings.Split(ask(0, "ZSCAN", "set", "0", "COUNT", "20"), "\r\n")[2], 10, 64); step < 1<<52 {
		t.Errorf("the cursor %d is none of every server", step)
	}
}

// TestSetScanBesideLostServer: a step of ZSCAN whose members are here does not wait for a server
// that has others, to write where the scan goes on.
func TestSetScanBesideLostServer(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.split([]uint32{1, 2}, "\xff\xffset\xff")
	k, add := newTalk(c, 1), []string{"ZADD", "set"}
	for i := range 300 { // no position fits their bounds
		add = append(add, "1", letters(i))
	}
	k.Send(computeservertest.Command(add...))
	k.Expect(":300\r\n")
	step := func(cursor string) string {
		k.Send(computeservertest.Command("ZSCAN", "set", cursor, "COUNT", "10"))
		got := strings.Split(wholeReply(t, k.from), "\r\n")
		if len(got) < 4 || got[2] == "0" {
			t.Fatalf("a step gave %q", got)
		}
		return got[2]
	}
	cursor := step("0")
	if n, _ := strconv.ParseUint(cursor, 10, 64); n >= 1<<52 {
		t.Fatalf("the position %d fits", n)
	}
	var items [][]byte
	all := engine.ScanRange{Start: []byte(sortedset.Prefix), Inner: true, Limit: 200, KeysOnly: true}
	if err := c.servers[1].core.Scan(t.Context(), all, false, func(key, _ []byte, _ expiry.Mark) bool {
		items = append(items, bytes.Clone(key))
		return true
	}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	m, err := partition.ByBoundaries(computeservertest.Index, c.members(1, 2), [][]byte{items[199]})
	if err != nil {
		t.Fatal(err)
	}
	m.Generation = 2
	c.publish(m)
	c.stop(2)
	began := time.Now()
	step(cursor)
	if took := time.Since(began); took > 15*time.Second { // a server is waited for for 30 s
		t.Errorf("a step took %v", took)
	}
}

// TestSetScanOfHardPattern: a step of ZSCAN ends early where to compare members takes long, and the
// next ones go on from there.
func TestSetScanOfHardPattern(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingAny, expires(&off), 1)
	c.split([]uint32{1})
	k := newTalk(c, 1)
	ask := func(args ...string) string {
		k.Send(computeservertest.Command(args...))
		return wholeReply(t, k.from)
	}
	add := []string{"ZADD", "set", "1", strings.Repeat("a", 470) + "zb"}
	for i := range 300 {
		add = append(add, "1", strings.Repeat("a", 470)+fmt.Sprint(i))
	}
	ask(add...)
	found, steps := 0, 0
	for cursor := "0"; steps == 0 || cursor != "0"; steps++ {
		got := ask("ZSCAN", "set", cursor, "COUNT", "1000", "MATCH", "*"+strings.Repeat("a", 235)+"?b")
		cursor = strings.Split(got, "\r\n")[2]
		found += strings.Count(got, "zb")
	}
	if found != 1 || steps < 3 || steps > 30 {
		t.Errorf("in %d steps a member was found %d times, want once, in 3 to 30", steps, found)
	}
}

// TestSetsNeedTheField: an index whose stored values have no byte that says their type has no
// sorted sets, and says which field is why.
func TestSetsNeedTheField(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	k := newTalk(c, 1)
	for _, args := range [][]string{{"ZADD", "a", "1", "m"}, {"ZSCORE", "a", "m"}, {"ZRANGE", "a", "0", "1"}, {"ZREM", "a", "m"}, {"ZSCAN", "a", "0"}} {
		k.Send(computeservertest.Command(args...))
		if got := wholeReply(t, k.from); got != "-ERR this index has no sorted sets, and nothing was done: they need keys of type Bytes and spec.expiry: Enabled, which it does not have, for good; use an index with both\r\n" {
			t.Errorf("%q gave %q", args, got)
		}
	}
}
