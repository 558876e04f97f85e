package computeserver

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestProtocolErrorsEndTheConnection sends what no client should, and reads one error and the end.
func TestProtocolErrorsEndTheConnection(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	f := func(send, want string) {
		t.Helper()
		r := c.raw(1)
		r.Send(computeservertest.Command("PING") + send)
		if got := r.ExpectEnd(); got != "+PONG\r\n-ERR Protocol error: "+want+"\r\n" {
			t.Errorf("%.60q gave %q, want %q", send, got, want)
		}
	}
	f("*2\r\n$3\r\nGET\r\n$104857600\r\n", "invalid bulk length")
	f("*2\r\n$3\r\nGET\r\n$9223372036854775807\r\n", "invalid bulk length")
	f("*2\r\n$3\r\nGET\r\n$-1\r\n", "invalid bulk length")
	f("*2\r\n$3\r\nGETxx", "invalid bulk length")
	f("*100000000\r\n", "invalid multibulk length")
	f("*-\r\n", "invalid multibulk length")
	f("*x\r\n", "invalid multibulk length")
	f("*1\r\n:1\r\n", `expected '$', got ":"`)
	f("$3\r\nGET\r\n", "expected '*', got '$'")
	f("SET \"a\r\n", "unbalanced quotes in request")
	f(strings.Repeat("x", inlineMost+1), "too big inline request")
	f("GET \"a\"b\r\n", "unbalanced quotes in request")
	f("GET 'a'\"b\"\r\n", "unbalanced quotes in request")
	f("*9\r\n"+strings.Repeat("$1048576\r\n"+strings.Repeat("x", 1<<20)+"\r\n", 7)+"$1048576\r\n", "invalid bulk length")
}

// TestHalfFrames ends connections in the middle of commands: the server forgets them.
func TestHalfFrames(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	whole := computeservertest.Command("SET", "half", "value")
	for n := 1; n < len(whole); n++ {
		r := c.raw(1)
		r.Send(whole[:n])
		_ = r.NC.Close()
	}
	computeservertest.Await(t, "all connections are forgotten", func() bool { return c.servers[1].core.Count.Connections.Load() == 0 })
	if c.store.Len() != 0 {
		t.Error("half a command was run")
	}
	r := c.raw(1)
	for _, b := range []byte(whole) { // byte by byte it is a command all the same
		r.Send(string(b))
	}
	r.Expect("+OK\r\n")
}

func TestConnectionsAreBounded(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.MaxConnections = 2 }, 1)
	a, b := c.raw(1), c.raw(1)
	a.Send("PING\r\n")
	a.Expect("+PONG\r\n")
	b.Send("PING\r\n")
	b.Expect("+PONG\r\n")
	if got := c.raw(1).ExpectEnd(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("the third connection got %q", got)
	}
	_ = a.NC.Close()
	computeservertest.Await(t, "the first connection is forgotten", func() bool { return c.servers[1].core.Count.Connections.Load() == 1 })
	d := c.raw(1)
	d.Send("PING\r\n")
	d.Expect("+PONG\r\n")
}

// TestSessionsAreBounded blocks the only session: the next request waits, the one after it is
// refused.
func TestSessionsAreBounded(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.MaxSessions, cfg.MaxWaiting = 1, 1 }, 1)
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	c.store.BeforeOperation(func(key []byte) {
		if string(key) == "hold" {
			held <- struct{}{}
			<-hold
		}
	})
	first, second, third := c.raw(1), c.raw(1), c.raw(1)
	first.Send(computeservertest.Command("GET", "hold"))
	<-held
	second.Send(computeservertest.Command("GET", "a"))
	eng := c.servers[1].core.Sessions
	computeservertest.Await(t, "the second request waits", func() bool { return eng.Waiters() == 1 })
	third.Send(computeservertest.Command("GET", "a"))
	third.Expect("-UNAVAILABLE too many requests wait already; try again or add compute servers\r\n")
	close(hold)
	first.Expect("$-1\r\n")
	second.Expect("$-1\r\n")
}

func TestSilentClient(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.Idle = 50 * time.Millisecond }, 1)
	if got := c.raw(1).ExpectEnd(); got != "" {
		t.Errorf("a silent client got %q", got)
	}
}

func TestSlowClient(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.WriteLimit = 50 * time.Millisecond }, 1)
	slow := c.raw(1)
	echo := []byte(strings.Repeat(computeservertest.Command("ECHO", strings.Repeat("x", 60_000)), 50))
	for { // until the server ends it, since nothing is read here
		if _, err := slow.NC.Write(echo); err != nil {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				t.Error("a client that reads nothing was kept")
			}
			return
		}
	}
}

func TestPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.Users.PasswordFile, cfg.AllowNoPassword = file, false }, 1)
	r := c.raw(1)
	const wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	for _, turn := range []struct{ send, want string }{
		{computeservertest.Command("GET", "a"), "-NOAUTH Authentication required.\r\n"},
		{computeservertest.Command("NOPE"), "-NOAUTH Authentication required.\r\n"},
		{computeservertest.Command("PING"), "-NOAUTH Authentication required.\r\n"},
		{computeservertest.Command("AUTH", "second"), wrong},
		{computeservertest.Command("AUTH", "root", "first"), wrong},
		{computeservertest.Command("AUTH", "a", "b", "c"), "-ERR syntax error\r\n"},
		{computeservertest.Command("AUTH", "first"), "+OK\r\n"},
		{computeservertest.Command("GET", "a"), "$-1\r\n"},
		{computeservertest.Command("RESET"), "+RESET\r\n"},
		{computeservertest.Command("GET", "a"), "-NOAUTH Authentication required.\r\n"},
		{computeservertest.Command("AUTH", "default", "first"), "+OK\r\n"},
	} {
		r.Send(turn.send)
		r.Expect(turn.want)
	}
	hello := c.raw(1)
	hello.Send(computeservertest.Command("HELLO", "3", "AUTH", "default", "wrong"))
	hello.Expect(wrong)
	hello.Send(computeservertest.Command("HELLO", "3", "AUTH", "default", "first", "SETNAME", "x"))
	hello.Expect("%7\r\n")

	long := c.raw(1)
	long.Send("*2\r\n$4\r\nAUTH\r\n$100000\r\n")
	if got := long.ExpectEnd(); got != "-ERR Protocol error: unauthenticated bulk length\r\n" {
		t.Errorf("a long password got %q", got)
	}
	many := c.raw(1)
	many.Send("*1000\r\n")
	if got := many.ExpectEnd(); got != "-ERR Protocol error: unauthenticated multibulk length\r\n" {
		t.Errorf("many arguments got %q", got)
	}

	write("the second one")
	other := c.raw(1)
	computeservertest.Await(t, "the new password is in force", func() bool {
		other.Send(computeservertest.Command("AUTH", "the second one"))
		line := make([]byte, 5)
		other.ExpectAny(line)
		if string(line) == "+OK\r\n" {
			return true
		}
		other.Expect(wrong[5:])
		return false
	})
	other.Send(computeservertest.Command("AUTH", "first"))
	other.Expect(wrong)

	if _, err := New(Config{Index: computeservertest.Config(config.RoutingAny), Open: nilOpen, Maps: computeservertest.NewMaps()}); err == nil || !strings.Contains(err.Error(), "password") {
		t.Errorf("a server without password, not on purpose: %v", err)
	}
}
