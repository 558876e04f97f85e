package resp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/users"
)

// TestBuffersHaveShares: halves of commands of some users leave room in the buffers for others. A
// connection counts with the user that it shows last.
func TestBuffersHaveShares(t *testing.T) {
	const limit = 16 << 20
	dir := t.TempDir()
	for name, text := range map[string]string{"password": "secret", "users.acl": "user a on >a ~* +@all\nuser b on >b ~* +@all\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCluster(t, config.RoutingOwner, func(l *limits) {
		l.MaxBuffers = limit
		l.Users = directory(t, users.Config{PasswordFile: filepath.Join(dir, "password"), UsersFile: filepath.Join(dir, "users.acl")})
	}, 1)
	c.split([]uint32{1})
	s, x := c.servers[1].resp, computeservertest.Command
	half := "*9\r\n$1000000\r\n" + strings.Repeat("x", 500<<10) // half a MiB of the buffers
	free := int64(limit)
	held := func(user string) int64 {
		s.budget.mu.Lock()
		defer s.budget.mu.Unlock()
		if u := s.budget.shares[user]; u != nil {
			return u.used.Load()
		}
		return 0
	}
	var hogs []*computeservertest.Conn
	for _, user := range []string{"a", "b"} {
		for range 40 {
			r := c.raw(1)
			r.Send(x("AUTH", "secret") + x("AUTH", user, user))
			r.Expect("+OK\r\n+OK\r\n")
			_, _ = r.NC.Write([]byte(half)) // it may be refused before it has arrived
			hogs = append(hogs, r)
		}
		computeservertest.Await(t, "a user holds what it may", func() bool { return held(user) > free/2 })
		free = limit - s.budget.used.Load()
	}
	r := c.raw(1)
	r.Send(x("AUTH", "secret"))
	r.Expect("+OK\r\n")
	large := strings.Repeat("y", 100<<10)
	for range 3 {
		r.Send(x("ECHO", large))
		if head := r.SkipReply(); head[0] != '$' {
			t.Fatalf("another user's reply is %q", head)
		}
	}
	for _, h := range append(hogs, r) {
		_ = h.NC.Close()
	}
	computeservertest.Await(t, "the budget is whole", func() bool {
		s.budget.mu.Lock()
		defer s.budget.mu.Unlock()
		return s.budget.used.Load() == 0 && len(s.budget.shares) == 0
	})
}
