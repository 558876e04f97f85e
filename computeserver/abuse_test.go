package computeserver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
)

// TestProtocolErrorsEndTheConnection sends what no client should, and reads one error and the end.
func TestProtocolErrorsEndTheConnection(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	f := func(send, want string) {
		t.Helper()
		r := c.raw(1)
		r.send(resp("PING") + send)
		if got := r.expectEnd(); got != "+PONG\r\n-ERR Protocol error: "+want+"\r\n" {
			t.Errorf("%.60q gave %q, want %q", send, got, want)
		}
	}
	f("*2\r\n$3\r\nGET\r\n$104857600\r\n", "invalid bulk length")
	f("*2\r\n$3\r\nGET\r\n$9223372036854775807\r\n", "invalid bulk length")
	f("*2\r\n$3\r\nGET\r\n$-1\r\n", "invalid bulk length")
	f("*2\r\n$3\r\nGETxx", "invalid bulk length")
	f("*100000000\r\n", "invalid multibulk length")
	f("*-5\r\n", "invalid multibulk length")
	f("*x\r\n", "invalid multibulk length")
	f("*1\r\n:1\r\n", `expected '$', got ":"`)
	f("$3\r\nGET\r\n", "expected '*', got '$'")
	f("SET \"a\r\n", "unbalanced quotes in request")
	f(strings.Repeat("x", maxInline+1), "too big inline request")
	f("GET \"a\"b\r\n", "unbalanced quotes in request")
	f("GET 'a'\"b\"\r\n", "unbalanced quotes in request")
	f("*9\r\n"+strings.Repeat("$1048576\r\n"+strings.Repeat("x", 1<<20)+"\r\n", 7)+"$1048576\r\n", "invalid bulk length")
}

// TestHalfFrames ends connections in the middle of commands: the server forgets them.
func TestHalfFrames(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	whole := resp("SET", "half", "value")
	for n := 1; n < len(whole); n++ {
		r := c.raw(1)
		r.send(whole[:n])
		_ = r.nc.Close()
	}
	awaitTrue(t, "all connections are forgotten", func() bool { return c.servers[1].core.count.connections.Load() == 0 })
	if c.store.Len() != 0 {
		t.Error("half a command was run")
	}
	r := c.raw(1)
	for _, b := range []byte(whole) { // byte by byte it is a command all the same
		r.send(string(b))
	}
	r.expect("+OK\r\n")
}

func TestConnectionsAreBounded(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.MaxConnections = 2 }, 1)
	a, b := c.raw(1), c.raw(1)
	a.send("PING\r\n")
	a.expect("+PONG\r\n")
	b.send("PING\r\n")
	b.expect("+PONG\r\n")
	if got := c.raw(1).expectEnd(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("the third connection got %q", got)
	}
	_ = a.nc.Close()
	awaitTrue(t, "the first connection is forgotten", func() bool { return c.servers[1].core.count.connections.Load() == 1 })
	d := c.raw(1)
	d.send("PING\r\n")
	d.expect("+PONG\r\n")
}

// TestSessionsAreBounded blocks the only session: the next request waits, the one after it is
// refused.
func TestSessionsAreBounded(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.MaxSessions, cfg.MaxWaiting = 1, 1 }, 1)
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	c.store.Before(func(key []byte) {
		if string(key) == "hold" {
			held <- struct{}{}
			<-hold
		}
	})
	first, second, third := c.raw(1), c.raw(1), c.raw(1)
	first.send(resp("GET", "hold"))
	<-held
	second.send(resp("GET", "a"))
	eng := c.servers[1].core.eng
	awaitTrue(t, "the second request waits", func() bool {
		eng.mu.Lock()
		defer eng.mu.Unlock()
		return len(eng.waiting) == 1
	})
	third.send(resp("GET", "a"))
	third.expect("-UNAVAILABLE too many requests wait already; try again or add compute servers\r\n")
	close(hold)
	first.expect("$-1\r\n")
	second.expect("$-1\r\n")
}

func TestBuffersAreBounded(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.MaxBuffers, cfg.MaxReply = 256<<10, 128<<10 }, 1)
	r := c.raw(1)
	for i := range 100 {
		r.send(resp("SET", fmt.Sprintf("k%02d", i), strings.Repeat("v", 2000)))
		r.expect("+OK\r\n")
	}
	r.send(resp("RANGE", "", ""))
	r.expect("-ERR the reply would be larger than 131072 bytes; use LIMIT, then go on after the last key\r\n")
	r.send(resp("RANGE", "k98", "", "LIMIT", "1"))
	r.expect("*2\r\n$3\r\nk98\r\n$2000\r\n")
	big := c.raw(1)
	// the server may close before it has all
	_, _ = big.nc.Write([]byte("*1\r\n$1000000\r\n" + strings.Repeat("x", 600<<10)))
	if got := big.expectEnd(); got != "" && !strings.HasPrefix(got, "-UNAVAILABLE the buffers of all connections are full") {
		t.Errorf("half a megabyte got %q", got)
	}
	awaitTrue(t, "the bytes are given back", func() bool { return c.servers[1].resp.budget.used.Load() == 0 })
}

func TestSilentClient(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.Idle = 50 * time.Millisecond }, 1)
	if got := c.raw(1).expectEnd(); got != "" {
		t.Errorf("a silent client got %q", got)
	}
}

func TestSlowClient(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.WriteLimit = 50 * time.Millisecond }, 1)
	slow := c.raw(1)
	echo := []byte(strings.Repeat(resp("ECHO", strings.Repeat("x", 60_000)), 50))
	for { // until the server ends it, since nothing is read here
		if _, err := slow.nc.Write(echo); err != nil {
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
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.PasswordFile, cfg.AllowNoPassword = file, false }, 1)
	r := c.raw(1)
	const wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	for _, turn := range []struct{ send, want string }{
		{resp("GET", "a"), "-NOAUTH Authentication required.\r\n"},
		{resp("NOPE"), "-NOAUTH Authentication required.\r\n"},
		{resp("PING"), "-NOAUTH Authentication required.\r\n"},
		{resp("AUTH", "second"), wrong},
		{resp("AUTH", "root", "first"), wrong},
		{resp("AUTH", "a", "b", "c"), "-ERR syntax error\r\n"},
		{resp("AUTH", "first"), "+OK\r\n"},
		{resp("GET", "a"), "$-1\r\n"},
		{resp("RESET"), "+RESET\r\n"},
		{resp("GET", "a"), "-NOAUTH Authentication required.\r\n"},
		{resp("AUTH", "default", "first"), "+OK\r\n"},
	} {
		r.send(turn.send)
		r.expect(turn.want)
	}
	hello := c.raw(1)
	hello.send(resp("HELLO", "3", "AUTH", "default", "wrong"))
	hello.expect(wrong)
	hello.send(resp("HELLO", "3", "AUTH", "default", "first", "SETNAME", "x"))
	hello.expect("%7\r\n")

	long := c.raw(1)
	long.send("*2\r\n$4\r\nAUTH\r\n$100000\r\n")
	if got := long.expectEnd(); got != "-ERR Protocol error: unauthenticated bulk length\r\n" {
		t.Errorf("a long password got %q", got)
	}
	many := c.raw(1)
	many.send("*1000\r\n")
	if got := many.expectEnd(); got != "-ERR Protocol error: unauthenticated multibulk length\r\n" {
		t.Errorf("many arguments got %q", got)
	}

	write("the second one")
	other := c.raw(1)
	awaitTrue(t, "the new password is in force", func() bool {
		other.send(resp("AUTH", "the second one"))
		line := make([]byte, 5)
		other.expectAny(line)
		if string(line) == "+OK\r\n" {
			return true
		}
		other.expect(wrong[5:])
		return false
	})
	other.send(resp("AUTH", "first"))
	other.expect(wrong)

	if _, err := New(Config{Index: testConfig(config.RoutingAny), Open: nilOpen, Maps: newFakeMaps()}); err == nil || !strings.Contains(err.Error(), "password") {
		t.Errorf("a server without password, not on purpose: %v", err)
	}
}

// FuzzRESP feeds the parser path of a connection with arbitrary bytes, in arbitrary portions, and
// compares what comes out with the same bytes in one portion.
func FuzzRESP(f *testing.F) {
	f.Add([]byte(resp("GET", "a")+"PING\r\n"+resp("SET", "", "x")), uint8(3))
	f.Add([]byte("*1\r\n$-1\r\n"), uint8(1))
	f.Add([]byte("SET 'a b' \"c\\n\"\n*0\r\n*2\r\n$1\r\na\r\n$"), uint8(2))
	f.Add([]byte(resp("MSET", "a", "\r\n", "", "*1\r\n")+resp("MULTI")+resp("EXEC")), uint8(0))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\n\r\nSET a b\r\n"), uint8(9))
	f.Add([]byte("PING \"a\\x4\\x41\\\"\" 'b\\'' \t\v\r\n\"\n"), uint8(4))
	f.Add([]byte("*1\r\n$04\r\nPING\r\n*01\r\n$4\r\nPING\r\n*1\n$4\r\n"), uint8(5))
	f.Fuzz(func(t *testing.T, stream []byte, portion uint8) {
		whole := parseAll(t, stream, len(stream)+1)
		parts := parseAll(t, stream, int(portion)+1)
		if whole != parts {
			t.Fatalf("%q in one portion is\n%s\nin portions of %d\n%s", stream, whole, int(portion)+1, parts)
		}
	})
}

// parseAll renders the commands of a stream that arrives in portions, and the error that ends it.
func parseAll(t *testing.T, stream []byte, portion int) string {
	var b strings.Builder
	var fr frames
	var args [][]byte
	begin := 0
	for end := min(portion, len(stream)); ; end = min(end+portion, len(stream)) {
		for {
			n, err := fr.next(stream[begin:end], false)
			if err != nil {
				fmt.Fprintf(&b, "error %v", err)
				return b.String()
			}
			if n == 0 {
				break
			}
			frame := bytes.Clone(stream[begin : begin+n])
			begin += n
			got, ok := split(frame, args[:0])
			if !ok {
				b.WriteString("unbalanced")
				return b.String()
			}
			if len(got) > maxArgs {
				t.Fatalf("%d arguments", len(got))
			}
			args = got
			fmt.Fprintf(&b, "%q\n", got)
		}
		if end == len(stream) {
			return b.String()
		}
	}
}
