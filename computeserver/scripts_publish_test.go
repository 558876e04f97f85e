package computeserver

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// payloads reads n messages of a connection in RESP2.
func payloads(t *testing.T, k *talk, n int) (all []string) {
	t.Helper()
	for range n {
		parts := strings.Split(message(t, k.from), "\r\n")
		all = append(all, parts[4]+" "+parts[6])
	}
	return all
}

// subscribed is a connection to a server that has subscribed to a channel of either kind.
func subscribed(t *testing.T, c *cluster, id uint32, channel string) *talk {
	t.Helper()
	k := newTalk(c, id)
	for _, command := range []string{"SUBSCRIBE", "SSUBSCRIBE"} {
		k.Send(computeservertest.Command(command, channel))
		message(t, k.from)
	}
	return k
}

// TestScriptsPublish: what a script publishes reaches the subscribers of all servers when it was
// done, in its order, whichever server runs it; what was not done publishes nothing.
func TestScriptsPublish(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	hears := []*talk{subscribed(t, c, 1, "c"), subscribed(t, c, 2, "c")}
	k := newTalk(c, 1)
	ask := func(want string, args ...string) {
		t.Helper()
		k.Send(computeservertest.Command(args...))
		if got := message(t, k.from); !strings.HasPrefix(got, want) {
			t.Errorf("%.200q gave %.200q, want %q", args, got, want)
		}
	}
	f := func(want ...string) {
		t.Helper()
		ask(":", "PUBLISH", "c", "mark")
		for i, hear := range hears {
			if got := fmt.Sprint(payloads(t, hear, len(want)+1)); got != fmt.Sprint(append(want, "c mark")) {
				t.Errorf("server %d heard %s, want %s", i+1, got, want)
			}
		}
	}
	const two = "redis.call('SET', KEYS[1], 'v') local n = redis.call('PUBLISH', 'c', ARGV[1]) redis.call('SPUBLISH', 'c', 'sharded') return n"
	for _, key := range []string{"a", "x"} {
		ask(":0\r\n", "EVAL", two, "1", key, "hello "+key)
		f("c hello "+key, "c sharded")
	}
	ask(":0\r\n", "EVAL", "return redis.call('PUBLISH', 'c', 'no keys')", "0")
	f("c no keys")
	ask("-ERR Unknown Redis command", "EVAL", "redis.call('PUBLISH', 'c', 'before an error') return redis.call('nope')", "1", "x")
	f("c before an error")
	for _, eval := range [][]string{{"1", "x"}, {"0"}} {
		ask("-ERR", append([]string{"EVAL", "redis.call('PUBLISH', 'c', 'lost') while true do end"}, eval...)...)
		ask("-ERR Write commands are not allowed from read-only scripts", append([]string{"EVAL_RO", "return redis.call('PUBLISH', 'c', 'lost')"}, eval...)...)
		ask("-ERR Wrong number of args", append([]string{"EVAL", "return redis.call('PUBLISH', 'c')"}, eval...)...)
		ask("-ERR the name of a channel has at most 1024 bytes, this one has 1025", append([]string{"EVAL", "return redis.call('PUBLISH', string.rep('c', 1025), 'x')"}, eval...)...)
	}
	f()
	ask("+OK", "MULTI")
	for _, command := range []string{"PUBLISH c first", "EVAL redis.call('PUBLISH','c','second')return(1) 1 x", "EVAL redis.call('PUBLISH','c','third')return(1) 0", "PUBLISH c fourth"} {
		ask("+QUEUED", words(command)...)
	}
	ask("*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n", "EXEC")
	f("c first", "c second", "c third", "c fourth")
	ask("+OK", "WATCH", "x")
	ask("+OK", "SET", "x", "other")
	ask("+OK", "MULTI")
	ask("+QUEUED", "EVAL", two, "1", "x", "lost")
	ask("*-1", "EXEC")
	f()
	// as many as possible, and then one more
	ask(":900\r\n", "EVAL", "for i = 1, 900 do redis.call('PUBLISH', 'none', '1') end return 900", "1", "x")
	ask(fmt.Sprintf("-ERR a script publishes at most %d bytes", engine.MostPublished), "EVAL", "for i = 1, 1100 do redis.call('PUBLISH', 'none', '1') end", "1", "x")
	ask(fmt.Sprintf("-ERR a script publishes at most %d bytes", engine.MostPublished), "EVAL", "return redis.call('PUBLISH', 'c', string.rep('x', 70000))", "0")
	f()
	ask(":0\r\n", "EVAL", "redis.pcall('PUBLISH', 'c', string.rep('x', 70000)) return redis.call('PUBLISH', 'c', 'too large')", "1", "x")
	f("c too large")
}

// TestScriptsPublishOnce: scripts of many clients on one key run again and again, since others
// change it meanwhile; each publishes once.
func TestScriptsPublishOnce(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	hear := subscribed(t, c, 2, "c")
	const clients, each = 6, 40
	var all sync.WaitGroup
	for i := range clients {
		k := newTalk(c, uint32(1+i%2))
		all.Go(func() {
			for range each {
				k.Send(computeservertest.Command("EVAL", "local n = redis.call('INCR', KEYS[1]) for i = 1, 3000 do end redis.call('PUBLISH', 'c', n) return n", "1", "x"))
				if _, err := k.from.ReadString('\n'); err != nil {
					t.Error(err)
				}
			}
		})
	}
	heard := map[string]int{}
	for _, m := range payloads(t, hear, clients*each) {
		heard[m]++
	}
	all.Wait()
	for n := range clients * each {
		if times := heard[fmt.Sprint("c ", n+1)]; times != 1 {
			t.Errorf("message %d came %d times", n+1, times)
		}
	}
}

// TestScriptsPublishWithRights: a script publishes where its user may, at whichever server it runs.
func TestScriptsPublishWithRights(t *testing.T) {
	c, _, _ := withUsers(t, "user news on >n ~* +@all &news:* &one\nuser keys on >k ~* +@all\nuser writes on >w ~* +@read +@write allchannels\n")
	const refused = "-ERR The user executing the script can't publish to the channel mentioned in the command"
	for _, f := range []struct{ user, password, channel, want string }{
		{"news", "n", "news:1", ":0\r\n"}, {"news", "n", "one", ":0\r\n"}, {"news", "n", "one1", refused}, {"news", "n", "new", refused}, {"news", "n", "news:*", ":0\r\n"},
		{"keys", "k", "one", refused}, {"keys", "k", "", refused}, {"writes", "w", "one", refused}, {"default", "secret", "", ":0\r\n"},
	} {
		k := newTalk(c.cluster, 1)
		k.Send(computeservertest.Command("AUTH", f.user, f.password))
		if got := message(t, k.from); got != "+OK\r\n" {
			t.Fatal(got)
		}
		for _, keys := range [][]string{{"1", "x"}, {"0"}} {
			k.Send(computeservertest.Command(append(append([]string{"EVAL", "return redis.call('PUBLISH', ARGV[1], 'x')"}, keys...), f.channel)...))
			if got := message(t, k.from); !strings.HasPrefix(got, f.want) {
				t.Errorf("%s on %q: %q", f.user, f.channel, got)
			}
		}
	}
}
