package computeserver

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// shownToMonitors are commands of one connection while another one monitors.
var shownToMonitors = []string{
	"set k v", "GET k", "GET", "NOPE", "multi", "set k 2", "incr k", "hset k f 3", "ping", "exec", "discard", "multi", "nope", "exec", "multi", "discard", "multi", "monitor", "exec",
	"AUTH default x", "HELLO 2 AUTH default x SETNAME z", "HELLO 2", "CONFIG GET maxmemory", "CLIENT LIST", "CLIENT SETNAME a", "CLIENT KILL ID 999", "client no-evict on", "slowlog get", "latency latest",
	"eval return(redis.call('set',KEYS[1],'3')) 1 k", "eval return(redis.pcall('nope')) 0", "eval redis.call('get',KEYS[1])return(redis.pcall('get')) 1 k", "EVALSHA abc 0", "SCRIPT LOAD return(1)", "evalsha e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
	"info server", "command count", "role", "acl whoami", "memory usage k", "object encoding k", "publish a b", "subscribe a", "unsubscribe", "watch k", "get k", "unwatch", "ping", "echo hi", "time", "scan 0", "keys *",
	"client reply skip", "ping", "client reply off", "ping", "client reply on", "del k x", "mset k 1 k 2", "incr k a", "set k v nx", "incrbyfloat k 1e400", "zadd z 1 a", "del z", "select 0", "client id", "reset", "client getname", "quit",
}

// ofMonitors are what a monitor itself sends.
var ofMonitors = []string{
	"PING", "PING x", "GET k", "SET k v", "PUBLISH a b", "EVAL return(0) 0", "SUBSCRIBE q", "PING", "GET k", "ECHO x", "UNSUBSCRIBE", "MONITOR", "ECHO x", "MULTI", "PING", "GET k", "EXEC", "CLIENT GETNAME", "MONITOR x",
	"RESET", "GET nope", "MONITOR", "MULTI", "RESET", "MONITOR", "QUIT",
}

// variesOfMonitors are what differs in a line from server to server: the time, and the address.
var variesOfMonitors = regexp.MustCompile(`(?m)^\+\d{10}\.\d{6} \[0 (127\.0\.0\.1:\d+|unix:[^\]]+|lua)\]`)

func unvaried(lines string) string {
	return variesOfMonitors.ReplaceAllStringFunc(lines, func(head string) string {
		if strings.HasSuffix(head, "lua]") {
			return "+[lua]"
		}
		return "+[client]"
	})
}

// apart is where two texts differ first.
func apart(texts [2]string) string {
	lines := [2][]string{strings.Split(texts[0], "\r\n"), strings.Split(texts[1], "\r\n")}
	at := 0
	for at < min(len(lines[0]), len(lines[1])) && lines[0][at] == lines[1][at] {
		at++
	}
	from := max(at-2, 0)
	return fmt.Sprintf("behind %d lines %q, and Redis %q", from, lines[0][from:min(at+4, len(lines[0]))], lines[1][from:min(at+4, len(lines[1]))])
}

// TestMonitorAgainstRedis: what a monitor is sent is byte by byte what a real redis-server sends,
// but for times and addresses, in RESP2 and RESP3; so is what it is answered itself.
func TestMonitorAgainstRedis(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1)
	c.split([]uint32{1})
	for _, protocol := range []string{"2", "3"} {
		p := newPair(t, c, protocol)
		var shown, own [2]string
		for i, k := range []*talk{p.ours, p.redis} {
			address := k.NC.RemoteAddr()
			dial := func() *talk {
				conn := computeservertest.Dial(t, address.Network(), address.String())
				return &talk{conn, bufio.NewReader(conn.NC)}
			}
			k.Send(computeservertest.Command("MONITOR"))
			if got := upTo(t, k.from, "\r\n"); got != "+OK\r\n" {
				t.Fatal(got)
			}
			client := dial()
			for _, command := range shownToMonitors {
				client.Send(computeservertest.Command(words(command)...))
			}
			if _, err := io.Copy(io.Discard, client.from); err != nil { // until its QUIT is done
				t.Fatal(err)
			}
			every := make([]byte, 256)
			for b := range every {
				every[b] = byte(b)
			}
			client = dial()
			client.Send("  echo 'a b'  \r\n" + computeservertest.Command("ECHO", string(every)) + computeservertest.Command("ECHO", "") + computeservertest.Command("ECHO", "the end"))
			shown[i] = unvaried(upTo(t, k.from, `"the end"`+"\r\n"))
			for _, command := range ofMonitors {
				k.Send(computeservertest.Command(words(command)...))
			}
			var b strings.Builder
			if _, err := k.from.WriteTo(&b); err != nil {
				t.Fatal(err)
			}
			own[i] = unvaried(b.String())
		}
		if shown[0] != shown[1] {
			t.Errorf("RESP%s: a monitor is shown what Redis does not show: %s", protocol, apart(shown))
		}
		if own[0] != own[1] {
			t.Errorf("RESP%s: a monitor is answered as Redis does not answer: %s", protocol, apart(own))
		}
	}
}

// TestRightsToMonitor: only users with every right monitor, and a monitor ends whose user loses
// one. Passwords are shown to nobody.
func TestRightsToMonitor(t *testing.T) {
	const rules = "user all on >a ~* +@all allchannels\nuser keys on >k ~* +@all\nuser reads on >r ~* +@read +@pubsub allchannels\nuser some on >s ~a* +@all allchannels\n"
	c, _, more := withUsers(t, rules)
	login := func(user, password string) *talk {
		k := newTalk(c.cluster, 1)
		k.Send(computeservertest.Command("AUTH", user, password))
		if got := wholeReply(t, k.from); got != "+OK\r\n" {
			t.Fatal(got)
		}
		return k
	}
	ask := func(k *talk, args ...string) string {
		t.Helper()
		k.Send(computeservertest.Command(args...))
		return wholeReply(t, k.from)
	}
	for user, password := range map[string]string{"keys": "k", "reads": "r", "some": "s"} {
		if got, want := ask(login(user, password), "MONITOR"), "-NOPERM User "+user+" may not see every command, which 'monitor' shows: it needs the rights to read and to write every key, and to use every channel\r\n"; got != want {
			t.Errorf("%s: %q", user, got)
		}
	}
	all, first := login("all", "a"), login("default", "secret")
	for _, k := range []*talk{all, first} {
		if got := ask(k, "MONITOR"); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
	stranger := newTalk(c.cluster, 1)
	for _, args := range [][]string{{"AUTH", "wr0ng"}, {"AUTH", "default", "wr0ng", "wr0ng"}, {"HELLO", "3", "AUTH", "wr0ng"}, {"HELLO", "AUTH", "wr0ng", "wr0ng"}, {"HELLO", "2", "SETNAME", "x", "auth", "default", "wr0ng"}, {"AUTH", "all", "a"}, {"ECHO", "end"}} {
		ask(stranger, args...)
	}
	for _, k := range []*talk{all, first} {
		if got := upTo(t, k.from, "\"end\"\r\n"); strings.Contains(got, "wr0ng") || strings.Contains(got, `"a"`) || strings.Count(got, "\r\n") != 7 {
			t.Errorf("a monitor is shown %s", got)
		}
	}
	replaceFile(t, more, strings.Replace(rules, "+@all allchannels", "+@all &a*", 1))
	if left, err := all.from.ReadString(0); err == nil || left != "" {
		t.Errorf("a monitor whose user may not see all any more is sent %q, %v", left, err)
	}
	if got := ask(stranger, "ECHO", "goes on"); got != "$7\r\ngoes on\r\n" {
		t.Errorf("ECHO gave %q", got)
	}
	if got := upTo(t, first.from, "\"goes on\"\r\n"); strings.Count(got, "\r\n") != 1 {
		t.Errorf("a monitor is shown %q", got)
	}
}
