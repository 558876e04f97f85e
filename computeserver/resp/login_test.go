package resp

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/accept"
)

// withPassword is a server whose password is "secret".
func withPassword(t testing.TB, adjust func(*limits)) (*cluster, *running) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, config.RoutingAny, func(l *limits) {
		l.Users = directory(t, users.Config{PasswordFile: file})
		if adjust != nil {
			adjust(l)
		}
	}, 1)
	return c, c.servers[1]
}

const authRight = "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n"

// TestSilentConnectionsTakeNoPlaces: however many connections never authenticate, a client with
// the password is served at once, and they take little memory and end when the limit is over.
func TestSilentConnectionsTakeNoPlaces(t *testing.T) {
	const bound = 48 << 20 // of both sides of the connections
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	silent := int(min(10_000, files.Cur*3/5)) // most of the other sides are ended by then
	c, s := withPassword(t, func(l *limits) { l.AuthLimit, l.MaxConnections = 3*time.Second, 2 })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	all := make([]net.Conn, silent)
	for i := range all {
		nc, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		all[i] = nc
	}
	began := time.Now()
	r := c.raw(1)
	r.Send(authRight + "PING\r\n")
	r.Expect("+OK\r\n+PONG\r\n")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a client was served after %v", took)
	}
	runtime.ReadMemStats(&after)
	t.Logf("%d connections", silent)
	if grew := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse); grew > bound {
		t.Errorf("%d silent connections take %d bytes, want at most %d", silent, grew, bound)
	}
	for i, nc := range all {
		_ = nc.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := io.Copy(io.Discard, nc); n > 0 || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatalf("silent connection %d got %d bytes and was not ended: %v", i, n, err)
		}
	}
	computeservertest.Await(t, "all others are forgotten", func() bool { return s.core.Count.Connections.Load() == 1 })
	if open, ended := s.resp.Anonymous(); open != 0 || ended != uint64(silent) {
		t.Errorf("%d connections wait and %d were ended, want 0 and %d", open, ended, silent)
	}
	r.Send("PING\r\n")
	r.Expect("+PONG\r\n")
}

// TestSlowLogins: a connection that sends its password byte by byte, or wrong ones again and again,
// ends when the limit is over.
func TestSlowLogins(t *testing.T) {
	c, _ := withPassword(t, func(l *limits) { l.AuthLimit = 300 * time.Millisecond })
	for _, send := range []string{"*1\r\n$4\r\nPING\r\n", "*2\r\n$4\r\nAUTH\r\n$5\r\nwrong\r\n", "\r\n"} {
		r := c.raw(1)
		began := time.Now()
		for { // without a pause, until the server ends it
			if _, err := r.NC.Write([]byte(send[:1])); err != nil {
				break
			}
			send = send[1:] + send[:1]
			if time.Since(began) > time.Minute {
				t.Fatalf("a connection that sends %q goes on", send)
			}
		}
	}
}

// TestBeforeAuth: what a connection may send before it authenticates is bounded.
func TestBeforeAuth(t *testing.T) {
	c, _ := withPassword(t, nil)
	f := func(send, want string) {
		t.Helper()
		r := c.raw(1)
		r.Send(send)
		if got := r.ExpectEnd(); got != "-ERR Protocol error: "+want+"\r\n" {
			t.Errorf("%.60q gave %.200q, want %q", send, got, want)
		}
	}
	f("*2\r\n$4\r\nAUTH\r\n$536870912\r\n", "invalid bulk length")
	f("*2\r\n$4\r\nAUTH\r\n$1000000\r\n", "unauthenticated bulk length")
	f("*1000000000\r\n", "invalid multibulk length")
	f("*65536\r\n", "unauthenticated multibulk length")
	f(strings.Repeat("x", maxInline+1), "too big inline request")
	f(strings.Repeat("\r\n", maxAnonymousBytes/2+1), "too many bytes before AUTH")

	r := c.raw(1)
	go func() { _, _ = io.WriteString(r.NC, strings.Repeat("PING\r\n", 1<<20)) }()
	if got := r.ExpectEnd(); len(got) > 16*maxAnonymousBytes {
		t.Errorf("commands without end gave %d bytes", len(got))
	}
}

// TestPlacesOfClients: those that have authenticated are bounded; the next one is told so when it
// has shown the password, and RESET gives a place back.
func TestPlacesOfClients(t *testing.T) {
	c, s := withPassword(t, func(l *limits) { l.MaxConnections = 1 })
	first, second := c.raw(1), c.raw(1)
	first.Send(authRight)
	first.Expect("+OK\r\n")
	second.Send(authRight)
	if got := second.ExpectEnd(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("the second client got %q", got)
	}
	if n := s.core.Count.Refused.Load(); n != 1 {
		t.Errorf("%d are counted as refused", n)
	}
	first.Send("RESET\r\nPING\r\n")
	first.Expect("+RESET\r\n-NOAUTH Authentication required.\r\n")
	_ = second.NC.Close()
	computeservertest.Await(t, "one connection waits", func() bool { open, _ := s.resp.Anonymous(); return open == 1 })
	third := c.raw(1)
	third.Send(authRight)
	third.Expect("+OK\r\n")
	first.Send(authRight)
	if got := first.ExpectEnd(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("the first client got %q when it came again", got)
	}
	_ = third.NC.Close()
	computeservertest.Await(t, "all are forgotten", func() bool { return s.core.Count.Connections.Load() == 0 })
	fourth := c.raw(1)
	fourth.Send(authRight)
	fourth.Expect("+OK\r\n")
}

// TestFailedLogins: wrong passwords are counted, and slow down the next connections of their host:
// also those with the right one, so that nobody learns from the time which it is.
func TestFailedLogins(t *testing.T) {
	c, s := withPassword(t, nil)
	wrong := c.raw(1)
	for i := range 10 {
		wrong.Send(computeservertest.Command("AUTH", fmt.Sprint("wrong", i)))
		wrong.Expect("-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	}
	if n := s.resp.logins.Total(); n != 10 {
		t.Errorf("%d failed logins are counted, want 10", n)
	}
	for _, send := range []string{"*2\r\n$4\r\nAUTH\r\n$5\r\nwrong\r\n", authRight} {
		began := time.Now()
		r := c.raw(1)
		r.Send(send)
		if r.Line(); time.Since(began) < accept.Penalty*9/10 {
			t.Errorf("%q was answered after %v", send, time.Since(began))
		}
	}
}

// TestWrongPasswordsEndTheConnection: a connection may guess a few times, whether or not it has
// logged in, and however much it sends at once.
func TestWrongPasswordsEndTheConnection(t *testing.T) {
	c, s := withPassword(t, func(l *limits) { l.AuthLimit = 2 * time.Second })
	for n, first := range []string{authRight, ""} {
		r := c.raw(1)
		r.Send(first)
		if first != "" {
			r.Expect("+OK\r\n")
		}
		go func() { _, _ = io.WriteString(r.NC, strings.Repeat("AUTH wrong\r\n", 5000)) }()
		// The server resets a connection that has sent more.
		got, _ := io.ReadAll(r.NC)
		if answers := strings.Count(string(got), "WRONGPASS"); answers > accept.MostWrong {
			t.Errorf("logged in first: %v: %d passwords were looked at", first != "", answers)
		}
		if total := s.resp.logins.Total(); total > uint64(n+1)*accept.MostWrong {
			t.Errorf("logged in first: %v: %d failed logins are counted", first != "", total)
		}
	}
}

// TestPlacesForTheDefaultUser: a user that opens all the connections that it gets does not keep the
// user default out.
func TestPlacesForTheDefaultUser(t *testing.T) {
	c, _ := withPassword(t, func(l *limits) {
		dir := t.TempDir()
		for name, text := range map[string]string{"password": "secret", "users.acl": "user u on >p ~u:* +@read\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l.Users = directory(t, users.Config{PasswordFile: filepath.Join(dir, "password"), UsersFile: filepath.Join(dir, "users.acl")})
		l.MaxConnections = 8
	})
	for n := range 9 {
		r := c.raw(1)
		r.Send(computeservertest.Command("AUTH", "u", "p"))
		if n < 7 {
			r.Expect("+OK\r\n")
		} else if got := r.ExpectEnd(); got != "-ERR max number of clients reached\r\n" {
			t.Errorf("connection %d of a user got %q", n+1, got)
		}
	}
	r := c.raw(1)
	r.Send(authRight)
	r.Expect("+OK\r\n")
}
