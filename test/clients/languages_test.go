//go:build languages

package clients

import (
	"bufio"
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// programLimit is how long all checks of a program may take.
const programLimit = 10 * time.Minute

// ycsb is go-ycsb's driver, as make clients builds it, with what loads and asks 1,000 records.
var ycsb = []string{"../../bin/ycsb", "recordcount=1000", "operationcount=1000", "threadcount=4", "silence=false"}

// TestLanguages runs the programs of other languages. Each prints a line for each check, and ends
// with an error status where one fails. make clients installs what they need.
func TestLanguages(t *testing.T) {
	for name, program := range map[string][]string{
		"tools":  {"programs/tools"},
		"python": {"/usr/bin/python3", "programs/python.py"}, // that of Debian, which has its packages
		"ruby":   {"/usr/bin/ruby", "programs/ruby.rb"},
		"php":    {"/usr/bin/php", "programs/php.php"},
		"perl":   {"/usr/bin/perl", "programs/perl.pl"},
		"node":   {"node", "../../bin/clients/node/checks.js"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, _ context.Context, address string) {
				host, port, err := net.SplitHostPort(address)
				if err != nil {
					t.Fatal(err)
				}
				runs(t, append(program, host, port)...)
			})
		})
	}
}

// TestYCSB is go-ycsb with each type that its records have in an index: an operation that failed
// has a line of its own.
func TestYCSB(t *testing.T) {
	for _, kind := range []string{"hash", "string"} {
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, _ context.Context, address string) {
				for _, phase := range []string{"dotransactions=false", "dotransactions=true"} {
					args := append(ycsb[:len(ycsb):len(ycsb)], "redis.addr="+address, "redis.datatype="+kind, "table="+kind, phase)
					if out := runs(t, args...); strings.Contains(out, "_ERROR") || !strings.Contains(out, "Count: ") {
						t.Errorf("operations failed, or none was done:\n%s", out)
					}
				}
			})
		})
	}
}

// runs runs a program, shows its lines as they come, and returns them.
func runs(t *testing.T, command ...string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), programLimit)
	defer stop()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.WaitDelay = time.Second
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		t.Fatalf("%v: make clients installs what it needs", err)
	}
	var all strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
		all.WriteString(lines.Text() + "\n")
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%s: %v", strings.Join(command, " "), err)
	}
	return all.String()
}
