package computeserver

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/resp"
	"github.com/dmindex/dmindex/computeserver/script"
)

// TestScriptsOfSeveralServers: what a script may not do is refused with a sentence, and nothing is
// done.
func TestScriptsOfSeveralServers(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	k := newTalk(c, 1)
	ask := func(want string, args ...string) {
		t.Helper()
		k.Send(computeservertest.Command(args...))
		if got := wholeReply(t, k.from); !strings.HasPrefix(got, want) {
			t.Fatalf("%.80q gave %.200q, want %q", args, got, want)
		}
	}
	const set, two = "return redis.call('SET', KEYS[1], 'v')", "redis.call('SET', KEYS[1], 'v') return redis.call('SET', KEYS[2], 'v')"
	ask("$-1", "GET", "a")
	ask("-CROSSSLOT the keys \"a\" and \"x\" belong to different servers", "EVAL", two, "2", "a", "x")
	ask("+OK", "MULTI")
	ask("+QUEUED", "EVAL", set, "1", "a")
	ask("-CROSSSLOT ", "EVAL", set, "1", "x")
	ask("-EXECABORT ", "EXEC")
	ask("-ERR Script attempted to access a key that it does not declare", "EVAL", "return redis.call('SET', 'b', 'v')", "1", "a")
	ask("-ERR Script attempted to access a key that it does not declare", "EVAL", "return redis.call('GET', 'a')", "0")
	ask("-ERR 'scan' cannot be called from a script", "EVAL", "return redis.call('SCAN', 0)", "0")
	ask("-ERR 'eval' cannot be called from a script", "EVAL", "return redis.call('EVAL', 'return 1', 0)", "0")
	ask("-ERR Write commands are not allowed from read-only scripts.", "EVAL_RO", set, "1", "a")
	for _, key := range []string{"a", "x"} {
		ask("-ERR the script takes too many steps", "EVAL", "redis.call('SET', KEYS[1], 'v') while true do end", "1", key)
		ask("-ERR the script allocates too much memory", "EVAL", "redis.call('SET', KEYS[1], 'v') string.rep('x', 1e9)", "1", key)
		ask("-ERR the script returns more than", "EVAL", "redis.call('SET', KEYS[1], 'v') return string.rep('x', 200000)", "1", key)
	}
	ask("-ERR Error compiling script (new function): user_script:1: ", "EVAL", "return return", "1", "a")
	ask("-ERR a script has at most 65536 bytes", "EVAL", "--"+strings.Repeat("x", script.MaxText), "1", "a")
	many := []string{"EVAL", "return 1", "1025"}
	for range 1025 {
		many = append(many, "a")
	}
	ask("-ERR a script has at most 1024 keys", many...)
	if n := c.store.Len(); n != 0 {
		t.Errorf("%d keys are stored", n)
	}

	fresh := set + " -- not sent yet"
	sum := script.Sum([]byte(fresh))
	ask("-NOSCRIPT No matching script", "EVALSHA", sum, "1", "x")
	ask("-NOSCRIPT ", "EVALSHA", "x", "0")
	ask("$40\r\n"+sum, "SCRIPT", "LOAD", fresh)
	ask("*2\r\n:1\r\n:0", "SCRIPT", "EXISTS", strings.ToUpper(sum), "nope")
	ask("+OK", "EVALSHA", strings.ToUpper(sum), "1", "x")
	ask("$1\r\nv", "EVAL", "return redis.call('GET', KEYS[1])", "1", "x")
	ask("$1\r\nv", "EVALSHA_RO", script.Sum([]byte("return redis.call('GET', KEYS[1])")), "1", "x")
}

// TestScriptsBesideOthers: scripts on the same two keys, at both servers, beside commands on one of
// them, lose nothing: each adds what it read, and what others added meanwhile stays.
func TestScriptsBesideOthers(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	const text = "local n = tonumber(redis.call('GET', KEYS[1]) or 0) redis.call('SET', KEYS[1], n + 1) return redis.call('INCRBY', KEYS[2], 2)"
	const alone = "return redis.call('SET', KEYS[1], redis.call('GET', KEYS[1]) + 1)"
	for id := uint32(1); id <= 2; id++ { // then servers know what their sessions can do
		k := newTalk(c, id)
		k.Send(computeservertest.Command("SET", string("?ax"[id]), "0") + computeservertest.Command("SET", "x1", "0"))
		wholeReply(t, k.from)
		wholeReply(t, k.from)
	}
	const each, of = 60, 4
	var all sync.WaitGroup
	for id := uint32(1); id <= 2; id++ {
		for n := range of {
			conn := c.raw(id)
			all.Go(func() {
				from := bufio.NewReader(conn.NC)
				for range each {
					command := []string{"EVAL", text, "2", "x1", "x2"}
					switch n {
					case 0:
						command = []string{"INCR", "x1"}
					case 1:
						command = []string{"EVAL", alone, "1", "x1"}
					}
					conn.Send(computeservertest.Command(command...))
					if got := wholeReply(t, from); got[0] != ':' && got != "+OK\r\n" {
						t.Errorf("%q gave %q", command, got)
					}
				}
			})
		}
	}
	all.Wait()
	k := newTalk(c, 1)
	for key, want := range map[string]int{"x1": 2 * of * each, "x2": 2 * 2 * (of - 2) * each} {
		k.Send(computeservertest.Command("GET", key))
		if got := wholeReply(t, k.from); !strings.HasSuffix(got, fmt.Sprintf("\r\n%s\r\n", strconv.Itoa(want))) {
			t.Errorf("%s has %q, want %d", key, got, want)
		}
	}
}

// TestScriptsCallWithAnything: whatever a script calls, with whatever arguments, is answered.
func TestScriptsCallWithAnything(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1)
	c.store.AllowGroups()
	c.split([]uint32{1})
	k := newTalk(c, 1)
	seed := time.Now().UnixNano()
	rnd := rand.New(rand.NewPCG(uint64(seed), 0))
	kinds := []string{"a", "a", "a", "b", "", "0", "-1", "1", "9223372036854775807", "1.5", "inf", "nan", "x", "EX", "PX", "NX", "XX", "GET", "IFEQ", "KEEPTTL", "MATCH", "*", "[", "COUNT", "WITHVALUES",
		"f", "line\r\nline", "\x00\xff", strings.Repeat("v", 3000), strings.Repeat("long", 10_000)}
	for _, name := range resp.CommandNames {
		for range 40 {
			args := []string{"EVAL", "return redis.pcall(unpack(ARGV))", "1", "a", name}
			for range rnd.IntN(7) {
				args = append(args, kinds[rnd.IntN(len(kinds))])
			}
			k.Send(computeservertest.Command(args...))
			if got := wholeReply(t, k.from); got == "" || !strings.HasSuffix(got, "\r\n") {
				t.Fatalf("seed %d: %.200q gave %.200q", seed, args, got)
			}
		}
	}
	k.Send(computeservertest.Command("EVAL", "return 'there'", "0"))
	if got := wholeReply(t, k.from); got != "$5\r\nthere\r\n" {
		t.Errorf("seed %d: at the end came %q: a reply before was not one", seed, got)
	}
}
