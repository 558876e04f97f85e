package computeserver

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// hashing are commands on hashes, and what other commands say of one, with %s for their key.
var hashing = []string{
	"HGET %s a", "HMGET %s a b", "HGETALL %s", "HKEYS %s", "HVALS %s", "HLEN %s", "HEXISTS %s a", "HSTRLEN %s a", "HDEL %s a", "HSCAN %s 0", "HSCAN %s 0 NOPE", "HRANDFIELD %s", "HRANDFIELD %s 2", "HRANDFIELD %s -2 WITHVALUES",
	"HSET %s a 1", "HSET %s a 2 b 3", "HGETALL %s", "HSET %s b '' c x '' y", "HGETALL %s", "HKEYS %s", "HVALS %s", "HLEN %s", "HGET %s a", "HGET %s b", "HGET %s ''", "HGET %s z", "HMGET %s a z '' a", "HEXISTS %s ''", "HEXISTS %s z", "HSTRLEN %s c", "HSTRLEN %s z", "TYPE %s", "OBJECT ENCODING %s", "EXISTS %s %s", "TOUCH %s",
	"HSET %s a longer d 4 a short", "HGETALL %s", "HSET %s d d d dd d ddd", "HGET %s d", "HMSET %s e 5 a 6", "HMSET %s e", "HMSET %s e 5 a", "HSET %s", "HSET %s a", "HSET %s a 1 b", "HGET %s", "HGET %s a b", "HMGET %s", "HGETALL %s x", "HDEL %s", "HINCRBY %s a", "HSETNX %s a", "HSETNX %s a 9 b 9",
	"HSETNX %s a 9", "HSETNX %s f 9", "HGETALL %s", "HDEL %s z", "HDEL %s a z a b", "HGETALL %s", "HLEN %s", "HRANDFIELD %s 100", "HRANDFIELD %s 100 WITHVALUES", "HRANDFIELD %s 0", "HRANDFIELD %s x", "HRANDFIELD %s 1 NOPE", "HRANDFIELD %s 1 WITHVALUES x", "HRANDFIELD %s 9223372036854775807 WITHVALUES", "HRANDFIELD %s -9223372036854775807 WITHVALUES", "HRANDFIELD %s -9223372036854775808", "HRANDFIELD %s 9223372036854775807",
	"HSCAN %s 0", "HSCAN %s 0 MATCH [c-e]", "HSCAN %s 0 COUNT 1", "HSCAN %s 7", "HSCAN %s x", "HSCAN %s 0 COUNT 0", "HSCAN %s 0 COUNT x", "HSCAN %s 0 MATCH", "HSCAN %s 0 NOPE 1", "HSCAN %s 0 MATCH z*",
	"HINCRBY %s n 5", "HINCRBY %s n -7", "HINCRBY %s n x", "HINCRBY %s c 1", "HINCRBY %s n 9223372036854775807", "HINCRBY %s n 9223372036854775807", "HGET %s n", "HINCRBYFLOAT %s g 1.5", "HINCRBYFLOAT %s g -0.25", "HINCRBYFLOAT %s g x", "HINCRBYFLOAT %s g inf", "HINCRBYFLOAT %s g nan", "HINCRBYFLOAT %s c 1", "HINCRBYFLOAT %s g 1e30", "HGETALL %s",
	// of another type
	"GET %s", "STRLEN %s", "GETRANGE %s 0 1", "APPEND %s x", "INCR %s", "INCRBYFLOAT %s 1", "SETRANGE %s 0 x", "GETSET %s x", "GETDEL %s", "GETEX %s", "GETEX %s PERSIST", "SET %s x GET", "SET %s x NX", "SET %s x NX GET", "SETNX %s x", "MGET %s %s", "HGETALL %s",
	"TTL %s", "EXPIREAT %s 33000000000", "EXPIRETIME %s", "HSET %s h 1", "EXPIRETIME %s", "HINCRBY %s h 1", "HDEL %s h", "EXPIRETIME %s", "PERSIST %s", "TTL %s", "HGETALL %s", "SET %s x KEEPTTL", "GET %s", "HGET %s a", "HMGET %s a", "HGETALL %s", "HKEYS %s", "HVALS %s", "HLEN %s", "HEXISTS %s a", "HSTRLEN %s a", "HSET %s a 1", "HSETNX %s a 1", "HDEL %s a", "HINCRBY %s a 1", "HINCRBY %s a x", "HINCRBYFLOAT %s a 1", "HSCAN %s 0", "HSCAN %s 0 NOPE", "HRANDFIELD %s", "HRANDFIELD %s 1", "TYPE %s",
	"DEL %s", "HSET %s a 1", "SET %s x XX", "GET %s", "DEL %s", "HSET %s a 1 b 2", "HDEL %s a b", "EXISTS %s", "TYPE %s", "HSET %s a 1", "EXPIRE %s -1", "HGETALL %s", "HSET %s a 1", "SETEX %s 100 x", "TYPE %s", "DEL %s", "HSET %s a 1", "DEL %s", "HINCRBY %s n 1", "HINCRBYFLOAT %s f 0.5", "HGETALL %s",
	"COMMAND GETKEYS HSET %s a 1",
}

// TestHashesAgainstRedis: commands on hashes, and others on their keys, are answered byte by byte
// as a real redis-server answers, at the owner of the key and at another server, in RESP2 and
// RESP3, alone and in a pipeline.
func TestHashesAgainstRedis(t *testing.T) {
	var off [3]atomic.Int64
	rnd := computeservertest.Seeded(t)
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.split([]uint32{1, 2}, "m")
	for _, protocol := range []string{"2", "3"} {
		p := newPair(t, c, protocol)
		p.askOnKeys(hashing)
		for range 40 {
			var all [][]string
			for range 1 + rnd.IntN(60) {
				all = append(all, onHash(rnd, []string{"b", "c", "y", "z"}[rnd.IntN(4)]+protocol))
			}
			p.ask(all...)
		}
	}
}

// onHash is a command on a hash of few fields, or on what else the key has.
func onHash(rnd *rand.Rand, key string) []string {
	field := func() string { return strings.Repeat("f", rnd.IntN(8)) }
	text := func() string { return strings.Repeat("v", rnd.IntN(60)) }
	return [][]string{
		{"HSET", key, field(), text(), field(), number(rnd)}, {"HSET", key, field(), text()}, {"HSETNX", key, field(), text()}, {"HGET", key, field()}, {"HGET", key, field()}, {"HMGET", key, field(), field()}, {"HGETALL", key},
		{"HDEL", key, field(), field()}, {"HDEL", key, field()}, {"HINCRBY", key, field(), fmt.Sprint(rnd.IntN(9))}, {"HINCRBYFLOAT", key, field(), fmt.Sprint(rnd.IntN(9))}, {"HLEN", key}, {"HEXISTS", key, field()}, {"HSCAN", key, "0", "MATCH", "*ff"},
		{"DEL", key}, {"SET", key, number(rnd)}, {"GET", key}, {"INCR", key}, {"TYPE", key}, {"MGET", key, key}, {"EXPIRE", key, "1000"},
	}[rnd.IntN(21)]
}

// TestHashIsNoString: what a user stores is never taken for a hash, whatever its bytes are; a hash
// has a bound, and where it would pass that nothing is done.
func TestHashIsNoString(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.split([]uint32{1, 2}, "m")
	k := newTalk(c, 1)
	ask := func(args ...string) string {
		t.Helper()
		k.Send(computeservertest.Command(args...))
		return wholeReply(t, k.from)
	}
	for _, key := range []string{"a", "x"} {
		for _, last := range []string{"\x00", "\x01", "\x02", "\x03", "\x01a\x01b\x02", "12345678\x03"} {
			ask("SET", key, last)
			if got := ask("GET", key) + ask("TYPE", key) + ask("HGETALL", key); got != fmt.Sprintf("$%d\r\n%s\r\n+string\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", len(last), last) {
				t.Errorf("%q is %q", last, got)
			}
		}
		ask("DEL", key)
		for i := range 20 { // 2,048 bytes have 19 of them
			got := ask("HSET", key, fmt.Sprintf("%02d", i), strings.Repeat("v", 100))
			if i < 19 && got != ":1\r\n" || i == 19 && got != "-ERR the hash would be 2080 bytes with all its fields; this index takes at most 2048\r\n" {
				t.Errorf("field %d: %q", i, got)
			}
		}
		if got := ask("HLEN", key) + ask("HSET", key, "f", strings.Repeat("v", 2049)); got != ":19\r\n-ERR value is 2052 bytes; this index takes at most 2048\r\n" {
			t.Errorf("a full hash: %q", got)
		}
		many := append([]string{"HMGET", key}, slices.Repeat([]string{"00"}, 20_000)...)
		for _, command := range [][]string{many, {"HRANDFIELD", key, "-60000"}} {
			if got := ask(command...); !strings.HasPrefix(got, "-ERR the reply would have more than 16384 bytes of fields and values") {
				t.Errorf("%.30q gave %.100q", command, got)
			}
		}
		if got := ask(append([]string{"HDEL", key}, slices.Repeat([]string{""}, 3000)...)...); got != "-ERR value is 3000 bytes; this index takes at most 2048\r\n" {
			t.Errorf("HDEL of many fields: %q", got)
		}
		ask("SET", key+"1", "v")
		if got, want := ask("RANGE", key, key+"~"), fmt.Sprintf("*4\r\n$1\r\n%s\r\n$-1\r\n$2\r\n%s1\r\n$1\r\nv\r\n", key, key); got != want {
			t.Errorf("RANGE gave %q, want %q", got, want)
		}
		if got, want := ask("SCAN", "0", "TYPE", "hash", "MATCH", key+"*"), fmt.Sprintf("*2\r\n$1\r\n0\r\n*1\r\n$1\r\n%s\r\n", key); got != want {
			t.Errorf("SCAN TYPE hash gave %q, want %q", got, want)
		}
		if got := ask("MEMORY", "USAGE", key); got != ":1977\r\n" {
			t.Errorf("MEMORY USAGE gave %q", got)
		}
	}
}

// TestLongHashIsRefusedAtOnce: what is longer than a value is not looked through field by field,
// which takes the square of its length.
func TestLongHashIsRefusedAtOnce(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1)
	c.split([]uint32{1})
	long := bytes.Repeat([]byte{1, 'f', 0}, 2000) // no hash: a field is there twice
	err := c.servers[1].core.Check(&rpcv1.Operation{Kind: rpcv1.Operation_HASH_STORE, Key: []byte("k"), Value: long})
	if err == nil || !strings.Contains(err.Error(), "takes at most") {
		t.Error(err)
	}
}

// TestHashesNeedTheField: an index whose stored values have no byte that says so has no hashes, and
// says which field is why.
func TestHashesNeedTheField(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	k := newTalk(c, 1)
	for _, args := range [][]string{{"HSET", "a", "f", "1"}, {"HGET", "a", "f"}, {"HGETALL", "a"}, {"HDEL", "a", "f"}, {"HINCRBY", "a", "f", "1"}} {
		k.Send(computeservertest.Command(args...))
		if got := wholeReply(t, k.from); got != "-ERR this index has no hashes, and nothing was done: its spec.expiry is Disabled, for good; use an index with spec.expiry: Enabled\r\n" {
			t.Errorf("%q gave %q", args, got)
		}
	}
}
