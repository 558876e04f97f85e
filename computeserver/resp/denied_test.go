package resp

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/users"
)

// TestDeniedCommandsTouchNoKey: a command that its user may not run is refused before anything is
// READ for it, in a pipeline too.
func TestDeniedCommandsTouchNoKey(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"password": "secret", "users.acl": "user u on >u ~a* +@all\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCluster(t, config.RoutingOwner, func(l *limits) {
		l.Users = directory(t, users.Config{PasswordFile: filepath.Join(dir, "password"), UsersFile: filepath.Join(dir, "users.acl")})
	}, 1)
	c.split([]uint32{1})
	conn, b := c.quiet(1), &batches{}
	x := computeservertest.Command
	if out, err := conn.feed([]byte(x("AUTH", "u", "u") + x("PING") + x("PING"))); err != nil || string(out) != "+OK\r\n+PONG\r\n+PONG\r\n" {
		t.Fatalf("%q, %v", out, err)
	}
	c.store.BeforeBatch(b.note)
	const denied = "-NOPERM No permissions to access a key\r\n"
	out, err := conn.feed([]byte(x("GET", "b1") + x("GET", "b2") + x("GET", "b3") + x("SET", "b1", "v") + x("SET", "b2", "v") + x("DEL", "b3") +
		x("GET", "a1") + x("GET", "b1") + x("GET", "a2") + x("SET", "a1", "v") + x("SET", "b1", "v") + x("SET", "a2", "v")))
	want := strings.Repeat(denied, 6) + "$-1\r\n" + denied + "$-1\r\n+OK\r\n" + denied + "+OK\r\n"
	if err != nil || string(out) != want {
		t.Errorf("%q, %v", out, err)
	}
	if want := []string{"prepare 2", "look up 2"}; !slices.Equal(b.all, want) {
		t.Errorf("done together: %q, want %q", b.all, want)
	}
}
