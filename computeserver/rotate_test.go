package computeserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
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
		cfg.Users.PasswordFile, cfg.AllowNoPassword = file(cfg.ID), false
		if cfg.ID == 3 {
			cfg.Limit = time.Second
		}
	}, 1, 2, 3)
	c.split([]uint32{1, 2}, "m")
	hasty := c.raw(3)
	hasty.Send(computeservertest.Command("AUTH", "old") + computeservertest.Command("SET", "z", "1"))
	hasty.Expect("+OK\r\n")
	if got := hasty.Line(); !strings.HasPrefix(got, "-UNAVAILABLE ") || !strings.Contains(got, "the password is wrong") {
		t.Errorf("a write while the servers have different passwords: %q", got)
	}
	if n := c.store.Len(); n != 0 {
		t.Errorf("%d keys were stored", n)
	}
	r := c.raw(1)
	r.Send(computeservertest.Command("AUTH", "old") + computeservertest.Command("SET", "z", "2") + computeservertest.Command("SETNX", "z", "3"))
	computeservertest.Await(t, "the writes were refused", func() bool { return c.servers[1].core.Count.Forwarded.Load() > 2 })
	write(1, "another") // of another length, so that the file is seen to have changed
	r.Expect("+OK\r\n+OK\r\n:0\r\n")
}
