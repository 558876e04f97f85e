package resp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestSlowLog: a pipeline that takes long is noted with its first command, cut, and one that is
// fast is not.
func TestSlowLog(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	log := newSlowLog()
	c.store.Log(log.wait)
	s := c.servers[1].resp
	r := c.raw(1)
	slowly := func(replies int, commands ...string) {
		t.Helper()
		r.Send(strings.Join(commands, ""))
		<-log.asked
		began := time.Now()
		computeservertest.Await(t, "the time that is slow is over", func() bool { return time.Since(began) > s.limits.Load().SlowAfter })
		log.end <- nil
		for range replies {
			r.SkipReply()
		}
	}
	x := computeservertest.Command
	r.Send(x("CLIENT", "SETNAME", "me"))
	r.Expect("+OK\r\n")
	s.slow.reset() // on a busy machine that was slow
	first := s.slow.next
	slowly(1, x("SET", "a", strings.Repeat("v", 200)))
	slowly(2, x("SET", "b", "1"), x("GET", "b"))
	many := []string{"MSET"}
	for i := range 20 {
		many = append(many, fmt.Sprint("k", i), "v")
	}
	slowly(1, x(many...))
	slowly(1, "\r\n*0\r\nSET c 1\r\n")
	all := s.slow.latest(-1)
	want := [][]string{
		{"SET", "c", "1"},
		append(slices.Clone(many[:31]), "... (10 more arguments)"),
		{"SET", "b", "1", "... (a pipeline of 2 commands)"},
		{"SET", "a", strings.Repeat("v", 128) + "... (72 more bytes)"},
	}
	if len(all) != len(want) {
		t.Fatalf("%d entries: %+v", len(all), all)
	}
	for i, e := range all {
		if e.number != first+int64(len(want)-1-i) || e.took < s.limits.Load().SlowAfter || e.name != "me" || e.address != r.NC.LocalAddr().String() || !slices.Equal(e.args, want[i]) {
			t.Errorf("entry %d: %+v, want %q", i, e, want[i])
		}
	}
	ask := c.quiet(1) // of which nothing is noted
	expect := func(want, commands string) {
		t.Helper()
		if got, err := ask.feed([]byte(commands)); err != nil || string(got) != want {
			t.Errorf("%q gave %q (%v), want %q", commands, got, err, want)
		}
	}
	expect(fmt.Sprintf("*1\r\n*6\r\n:%d\r\n:%d\r\n:%d\r\n*3\r\n$3\r\nSET\r\n$1\r\nc\r\n$1\r\n1\r\n$%d\r\n%s\r\n$2\r\nme\r\n", all[0].number, all[0].at.Unix(), all[0].took.Microseconds(), len(all[0].address), all[0].address), x("SLOWLOG", "GET", "1"))
	expect("-ERR count should be greater than or equal to -1\r\n-ERR value is not an integer or out of range\r\n:4\r\n+OK\r\n*0\r\n",
		x("SLOWLOG", "GET", "-2")+x("SLOWLOG", "GET", "x")+x("SLOWLOG", "LEN")+x("SLOWLOG", "RESET")+x("SLOWLOG", "GET"))
	for range 2 * slowEntries {
		s.slow.add(slowEntry{})
	}
	if all := s.slow.latest(-1); len(all) != slowEntries || all[0].number-all[slowEntries-1].number != slowEntries-1 {
		t.Errorf("%d entries", len(all))
	}
}

// TestSlowLogShowsNoPasswords: of commands with passwords the log has the names.
func TestSlowLogShowsNoPasswords(t *testing.T) {
	f := func(want string, sent string) {
		t.Helper()
		if got := strings.Join(shownCommand([]byte(sent)), " "); got != want {
			t.Errorf("%q is shown as %q, want %q", sent, got, want)
		}
	}
	x := computeservertest.Command
	f("AUTH (redacted)", x("AUTH", "secret"))
	f("auth (redacted) (redacted)", x("auth", "user", "secret"))
	f("AUTH (redacted)", "AUTH secret\r\n")
	f("HELLO 3 (redacted) (redacted) (redacted)", x("HELLO", "3", "AUTH", "user", "secret"))
	f("HELLO", x("HELLO"))
	f("GET secret", x("GET", "secret"))
	f("", x("GET", "secret")[:10])
}

// TestSlowWithoutText: what is shown to everybody has nothing that a client sent but the name of a
// command.
func TestSlowWithoutText(t *testing.T) {
	var s Server
	for _, args := range [][]string{{"GET", "k"}, {"secret"}, {"zAdd", "k"}} {
		s.slow.add(slowEntry{took: time.Second, commands: 3, args: args})
	}
	var got []string
	for _, p := range s.Slow(2) {
		got = append(got, fmt.Sprint(p.Command, " ", p.Took, " ", p.Commands))
	}
	if want := []string{"zadd 1s 3", "unknown 1s 3"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := len(s.Slow(16)); n != 3 {
		t.Errorf("%d pipelines", n)
	}
}
