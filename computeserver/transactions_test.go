package computeserver

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// transactions are dialogues about MULTI, EXEC, WATCH and what stands between them, with %s for the
// begin of their keys.
var transactions = [][]string{
	{"MULTI", "EXEC", "EXEC", "DISCARD"},
	{"MULTI", "SET %s1 1", "INCR %s1", "GET %s1", "GET %s2", "EXEC", "GET %s1", "DEL %s1"},
	{"MULTI", "SET %s1 1", "DISCARD", "GET %s1", "EXEC"},
	{"SET %s1 5", "MULTI", "INCRBY %s1 2", "GETDEL %s1", "GET %s1", "EXISTS %s1", "SETNX %s1 9", "SETNX %s1 8", "APPEND %s1 x", "EXEC", "GET %s1", "DEL %s1"},
	{"MULTI", "MULTI", "WATCH %s1", "SET %s1 1", "EXEC", "GET %s1", "DEL %s1"},
	{"MULTI", "NOPE", "SET %s1 1", "EXEC", "GET %s1"},
	{"MULTI", "SET %s1", "SET %s1 1", "EXEC", "EXEC", "GET %s1"},
	{"MULTI", "GET %s1 x", "EXEC"},
	{"MULTI", "SET %s1 1", "EXEC x", "EXEC"},
	{"MULTI x", "EXEC", "DISCARD x", "WATCH", "UNWATCH x"},
	{"SET %s1 a", "MULTI", "SET %s2 1", "INCR %s1", "SET %s2 2", "EXEC", "GET %s2", "DEL %s1 %s2"},
	{"MULTI", "SET %s1 1 NX XX", "SET %s1 1 BAD", "EXPIRE %s1 x", "SET %s2 3", "EXEC", "GET %s2", "DEL %s2"},
	{"MULTI", "MSET %s1 1 %s2", "MSET %s1 1 %s2 2", "MGET %s1 %s2 %s3", "EXISTS %s1 %s2 %s3 %s1", "DEL %s1 %s3", "UNLINK %s2", "TOUCH %s1 %s2", "MGET %s1 %s2", "EXEC"},
	{"MULTI", "PING", "PING x", "ECHO y", "UNWATCH", "EXEC"},
	{"MULTI", "HSET %s1 a 1 b 2", "HINCRBY %s1 a 4", "HGETALL %s1", "HDEL %s1 a", "GET %s1", "MGET %s1", "HLEN %s1", "DEL %s1", "EXEC"},
	{"MULTI", "SET %s1 1 EX 100", "TTL %s1", "PERSIST %s1", "TTL %s1", "EXPIRE %s1 -1", "GET %s1", "EXEC", "EXISTS %s1"},
	{"SET %s1 1", "WATCH %s1", "MULTI", "INCR %s1", "EXEC", "WATCH %s1", "SET %s1 9", "MULTI", "INCR %s1", "EXEC", "MULTI", "INCR %s1", "EXEC", "DEL %s1"},
	{"WATCH %s1", "SET %s1 9", "MULTI", "EXEC", "WATCH %s1", "MULTI", "EXEC", "DEL %s1"},
	{"WATCH %s1 %s2", "SET %s2 9", "MULTI", "PING", "EXEC", "DEL %s2"},
	{"SET %s1 1", "WATCH %s1", "DEL %s1", "MULTI", "SET %s1 x", "EXEC", "GET %s1"},
	{"WATCH %s1", "SET %s1 9", "UNWATCH", "MULTI", "GET %s1", "EXEC", "WATCH %s1", "SET %s1 8", "MULTI", "DISCARD", "MULTI", "GET %s1", "EXEC", "DEL %s1"},
	{"WATCH %s1", "SET %s1 9", "MULTI", "UNWATCH", "GET %s1", "EXEC", "DEL %s1"},
	{"SET %s1 1", "WATCH %s1", "EXPIRE %s1 100", "MULTI", "PING", "EXEC", "DEL %s1"},
	{"SET %s1 1", "WATCH %s1", "DEL %s1", "HSET %s1 a 1", "MULTI", "PING", "EXEC", "DEL %s1"},
	{"WATCH %s1", "WATCH %s1", "SET %s1 2", "WATCH %s1", "MULTI", "PING", "EXEC", "DEL %s1"},
	{"WATCH %s1", "SET %s1 2", "EXEC", "MULTI", "PING", "EXEC", "DEL %s1"},
	// what is read of a watched key counts, too
	{"SET %s1 A", "WATCH %s1", "GET %s1", "STRLEN %s1", "MGET %s1 %s2 %s1", "EXISTS %s1", "GET %s2", "MULTI", "GET %s1", "EXEC", "DEL %s1"},
	{"SET %s1 A", "WATCH %s1", "SET %s1 B", "GET %s1", "SET %s1 A", "GET %s1", "MULTI", "PING", "EXEC", "MULTI", "PING", "EXEC", "DEL %s1"},
	{"WATCH %s1", "GET %s1", "SET %s1 B", "MGET %s2 %s1", "DEL %s1", "MULTI", "EXEC", "GET %s1"},
	{"HSET %s1 a 1", "WATCH %s1", "GET %s1", "HGET %s1 a", "GET", "HGET %s1", "MULTI", "PING", "EXEC", "DEL %s1"},
	{"WATCH %s1", "MULTI", "NOPE", "EXEC", "SET %s1 2", "MULTI", "PING", "EXEC", "DEL %s1"},
	{"SET %s1 A", "WATCH %s1", "EVAL_RO return(redis.call('GET',KEYS[1])) 1 %s1", "MULTI", "EVAL return(redis.call('INCR',KEYS[1])) 1 %s2", "EVAL return(7) 0", "EVALSHA x 0", "EVAL x x", "GET %s2", "EXEC", "DEL %s1 %s2"},
	{"SET %s1 A", "WATCH %s1", "SET %s1 B", "EVAL_RO return(redis.call('GET',KEYS[1])) 1 %s1", "SET %s1 A", "MULTI", "PING", "EXEC", "DEL %s1"},
	{"MULTI", "SET %s1 1", "RESET", "EXEC", "GET %s1"},
	{"MSETNX %s1 1 %s2 2", "MGET %s1 %s2", "MSETNX %s3 3 %s2 4", "MSETNX %s1 9 %s2 9", "MGET %s1 %s2 %s3", "MSETNX %s3 1 %s3 2", "GET %s3", "MSETNX %s1 1 %s2", "DEL %s1 %s2 %s3", "HSET %s1 a 1", "MSETNX %s1 1 %s2 2", "DEL %s1 %s2"},
	// one pair to another key
	{"RENAME %s1 %s2", "RENAMENX %s1 %s2", "COPY %s1 %s2", "RENAME %s1 %s1", "RENAMENX %s1 %s1", "COPY %s1 %s1", "RENAME %s1", "RENAMENX %s1 %s2 x", "COPY %s1", "COPY %s1 %s2 x", "COPY %s1 %s2 DB", "COPY %s1 %s2 DB x"},
	{"SET %s1 A EX 100", "RENAME %s1 %s2", "EXISTS %s1", "GET %s2", "TTL %s2", "RENAME %s2 %s2", "RENAMENX %s2 %s2", "COPY %s2 %s2", "SET %s1 B", "RENAMENX %s1 %s2", "RENAMENX %s1 %s3", "RENAME %s3 %s2", "MGET %s1 %s2 %s3", "TTL %s2", "DEL %s2"},
	{"HSET %s1 a 1 b 2", "EXPIRE %s1 100", "COPY %s1 %s2", "HSET %s1 a 3", "COPY %s1 %s2", "HGETALL %s2", "TTL %s2", "COPY %s1 %s2 REPLACE", "HGET %s2 a", "SET %s3 x", "RENAME %s1 %s3", "TYPE %s3", "COPY %s3 %s1 db 0 replace", "HGETALL %s1", "PERSIST %s1", "COPY %s1 %s2 REPLACE", "TTL %s2", "DEL %s1 %s2 %s3"},
	{"SET %s1 ''", "COPY %s1 %s2", "GET %s2", "SET %s1 7", "RENAME %s1 %s2", "INCR %s2", "WATCH %s2", "RENAME %s2 %s1", "MULTI", "PING", "EXEC", "DEL %s1"},
}

// TestTransactionsAgainstRedis: MULTI and what follows it is answered byte by byte as a real
// redis-server answers, at the owner of the keys and at another server, in RESP2 and RESP3, each
// command alone and all of a dialogue in one pipeline.
func TestTransactionsAgainstRedis(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	for _, protocol := range []string{"2", "3"} {
		p := newPair(t, c, protocol)
		// then servers know what their sessions can do
		p.ask([]string{"GET", "a"}, []string{"GET", "x"})
		for _, key := range []string{"a", "x"} {
			for _, dialogue := range transactions {
				if protocol == "3" && dialogue[len(dialogue)-1] != "EXISTS %s1" && strings.Contains(strings.Join(dialogue, " "), "RESET") {
					continue // which ends RESP3
				}
				var all [][]string
				for _, command := range dialogue {
					args := words(strings.ReplaceAll(command, "%s", key+protocol))
					all = append(all, args)
					p.ask(args)
				}
				p.ask(all...)
			}
		}
	}
}

// TestTransactionsOfSeveralServers: the first command on a key of another server is refused, and
// what comes before and behind it is not done. So are commands that a transaction does not have,
// and one too many.
func TestTransactionsOfSeveralServers(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	k := newTalk(c, 1)
	ask := func(want string, args ...string) {
		t.Helper()
		k.Send(computeservertest.Command(args...))
		if got := wholeReply(t, k.from); !strings.HasPrefix(got, want) {
			t.Fatalf("%.60q gave %q, want %q", args, got, want)
		}
	}
	const abort = "-EXECABORT Transaction discarded because of previous errors.\r\n"
	ask("$-1", "GET", "a")
	ask("+OK", "MULTI")
	ask("+QUEUED", "SET", "a", "1")
	ask("-CROSSSLOT the keys \"a\" and \"x\" belong to different servers", "SET", "x", "1")
	ask("+QUEUED", "SET", "b", "1")
	ask(abort, "EXEC")
	ask("+OK", "MULTI")
	ask("-CROSSSLOT ", "MSET", "a", "1", "x", "1")
	ask(abort, "EXEC")
	ask("-CROSSSLOT ", "WATCH", "a", "x")
	ask("-CROSSSLOT ", "RENAME", "a", "x")
	ask("-CROSSSLOT ", "COPY", "x", "a")
	ask("-CROSSSLOT ", "MSETEX", "2", "a", "1", "x", "1")
	ask("+OK", "WATCH", "a")
	ask("+OK", "MULTI")
	ask("-CROSSSLOT ", "SET", "x", "1")
	ask(abort, "EXEC")
	ask("+OK", "MULTI")
	ask("-ERR 'scan' cannot stand between MULTI and EXEC", "SCAN", "0")
	ask(abort, "EXEC")
	ask("+OK", "MULTI")
	for n := range 1024 {
		ask("+QUEUED", "SET", fmt.Sprint("a", n), "1")
	}
	ask("-ERR a transaction has at most 1024 keys", "SET", "a", "1")
	ask(abort, "EXEC")
	ask("+OK", "MULTI")
	for n := range 200 {
		ask("+QUEUED", "SET", fmt.Sprint("a", n), strings.Repeat("v", 1<<10))
	}
	k.Send(computeservertest.Command("SET", "a", strings.Repeat("v", 64<<10)))
	if got := wholeReply(t, k.from); !strings.HasPrefix(got, "-ERR a transaction has at most") {
		t.Fatal(got)
	}
	ask("+OK", "DISCARD")
	if n := c.store.Len(); n != 0 {
		t.Errorf("%d keys are stored", n)
	}
	ask("+OK", "MULTI")
	ask("+QUEUED", "SET", "a", "1")
	c.split([]uint32{1, 2}, "0") // both keys are another server's by now
	ask("+QUEUED", "SET", "b", "1")
	ask("*2\r\n+OK\r\n+OK", "EXEC")
}
