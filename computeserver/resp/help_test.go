package resp

import (
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestHelp: every command with subcommands says which there are, each on a line of its own, as
// simple strings, as Redis does.
func TestHelp(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	conn := c.quiet(1)
	all := 0
	for _, k := range commands {
		if !k.subs {
			continue
		}
		all++
		out, err := conn.feed([]byte(computeservertest.Command(k.name, "help")))
		lines := strings.Split(string(out), "\r\n")
		if err != nil || len(lines) < 6 || lines[1] != "+"+strings.ToUpper(k.name)+" <subcommand> [<arg> [value] [opt] ...]. Subcommands are:" || lines[len(lines)-3] != "+HELP" {
			t.Fatalf("%s HELP gave %q, %v", k.name, out, err)
		}
		for _, line := range lines[1 : len(lines)-1] {
			if line[0] != '+' || strings.Count(line, "[") != strings.Count(line, "]") {
				t.Errorf("%s HELP has the line %q", k.name, line)
			}
		}
	}
	if all < 10 {
		t.Errorf("%d commands have subcommands", all)
	}
	if out, _ := conn.feed([]byte(computeservertest.Command("SLOWLOG", "HELP"))); !strings.HasPrefix(string(out), "*7\r\n+SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n+GET [count]\r\n+LEN\r\n+RESET\r\n+    the last pipelines") {
		t.Errorf("SLOWLOG HELP gave %q", out)
	}
	if out, _ := conn.feed([]byte(computeservertest.Command("AUTH", "default", "x") + computeservertest.Command("AUTH", "x"))); !strings.HasPrefix(string(out), "+OK\r\n-ERR AUTH <password> called without any password configured for the default user") {
		t.Errorf("AUTH without a password gave %q", out)
	}
}
