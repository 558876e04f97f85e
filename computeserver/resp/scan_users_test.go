package resp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/users"
)

// TestScanReadsNoKeysOfOthers: SCAN of a user of some prefixes reads these only. It takes as many
// steps as they have keys, whatever else there is, and does not wait for keys of others that have
// no server.
func TestScanReadsNoKeysOfOthers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"password": "secret", "users.acl": "user u on >u ~n:* %W~o:* ~q:* ~q:1* +@all\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCluster(t, config.RoutingOwner, func(l *limits) {
		l.Limit = 200 * time.Millisecond
		l.Users = directory(t, users.Config{PasswordFile: filepath.Join(dir, "password"), UsersFile: filepath.Join(dir, "users.acl")})
	}, 1, 2)
	c.split([]uint32{1, 2}, "m")
	x := computeservertest.Command
	var fill strings.Builder
	for _, prefix := range []string{"a:", "n:", "o:", "p:", "q:", "z:"} {
		for i := range 20 {
			fill.WriteString(x("SET", fmt.Sprintf("%s%02d", prefix, i), "v"))
		}
	}
	r := c.raw(2)
	r.Send(x("AUTH", "secret") + fill.String())
	r.Expect(strings.Repeat("+OK\r\n", 1+6*20))
	// it has none of the user's keys
	c.servers[1].core.Sessions.Block("a memory server of the keys below m is away")

	r = c.raw(2)
	r.Send(x("AUTH", "u", "u"))
	r.Expect("+OK\r\n")
	keys, steps := scanned(r, "COUNT", "4")
	if len(keys) != 40 || keys[0] != "n:00" || keys[19] != "n:19" || keys[20] != "q:00" || keys[39] != "q:19" || steps > 40/4+1 {
		t.Errorf("%d steps, %d keys: %q", steps, len(keys), keys)
	}
}
