package computeserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
)

// TestRotatedPassword forwards writes to a server that knows another password: nothing is done, and
// the writes are done when both know the same.
func TestRotatedPassword(t *testing.T) {
	dir := t.TempDir()
	file := func(id uint32) string { return filepath.Join(dir, fmt.Sprint("password-", id)) }
	write := func(id uint32, password string) {
		t.Helper()
		if err := os.WriteFile(file(id), []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(1, "old")
	write(2, "another")
	write(3, "old")
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) {
		cfg.PasswordFile, cfg.AllowNoPassword = file(cfg.ID), false
		if cfg.ID == 3 {
			cfg.Limit = time.Second
		}
	}, 1, 2, 3)
	c.split([]uint32{1, 2}, "m")
	hasty := c.raw(3)
	hasty.send(resp("AUTH", "old") + resp("SET", "z", "1"))
	hasty.expect("+OK\r\n")
	if got := hasty.line(); !strings.HasPrefix(got, "-UNAVAILABLE ") || !strings.Contains(got, "the password is wrong") {
		t.Errorf("a write while the servers have different passwords: %q", got)
	}
	if n := c.store.Len(); n != 0 {
		t.Errorf("%d keys were stored", n)
	}
	r := c.raw(1)
	r.send(resp("AUTH", "old") + resp("SET", "z", "2") + resp("SETNX", "z", "3"))
	awaitTrue(t, "the writes were refused", func() bool { return c.servers[1].core.count.forwarded.Load() > 2 })
	write(1, "another") // of another length, so that the file is seen to have changed
	r.expect("+OK\r\n+OK\r\n:0\r\n")
}
