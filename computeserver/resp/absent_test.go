package resp

import (
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestAbsentCommandsSayWhy: a command that Redis has and an index has not is unknown, in the words
// of Redis, by which clients go, and then with why.
func TestAbsentCommandsSayWhy(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	r := c.raw(1)
	for _, x := range [][]string{
		{"an index has no lists", "lpush", "k", "v"},
		{"an index has no sets but sorted ones", "SADD", "k", "v"},
		{"", "NOPE", "k"},
		{"", strings.Repeat("x", longestAbsent+1)},
	} {
		r.Send(computeservertest.Command(x[1:]...))
		got := r.Line()
		if !strings.HasPrefix(got, "-ERR unknown command '"+x[1]+"', with args beginning with: ") || !strings.Contains(got, x[0]) || strings.Contains(got, "COMMAND LIST") != (x[0] != "") {
			t.Errorf("%q gave %q", x[1:], got)
		}
	}
	for name := range absent {
		if lookupCommand([]byte(name)) != nil || len(name) > longestAbsent {
			t.Errorf("%s is there, or its name is longer than any that is looked for", name)
		}
	}
}
