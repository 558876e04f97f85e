package resp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/users"
)

// TestTableOfCommands: a command that needs a right on keys says where they are, and each one has a
// slot in which it is counted.
func TestTableOfCommands(t *testing.T) {
	if len(CommandNames) > count.MaxSlots {
		t.Errorf("%d commands are to be counted in %d slots", len(CommandNames), count.MaxSlots)
	}
	for name, k := range commands {
		if onKeys := k.kind.Known(); onKeys != (k.keys.step > 0 || k.counted || k.paired) || onKeys && k.keys.first != 1 && k.run == nil {
			t.Errorf("%s needs right %d on its keys, and has them at %+v", name, k.needs, k.keys)
		}
	}
	var tally count.Tally
	tally.Slot = count.MaxSlots - 1
	tally.Count(count.OK)
	front := count.Front{Sum: &count.Counters{}}
	tally.Publish(&front, 0)
	if n := front.N[count.MaxSlots-1][count.OK].Load(); n != 1 {
		t.Errorf("the last slot counted %d of 1", n)
	}
}

// TestDialogue: what clients and tools ask before they start is answered for what they name.
func TestDialogue(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	r := c.raw(1)
	f := func(want string, command ...string) {
		t.Helper()
		r.Send(computeservertest.Command(command...))
		r.Expect(want)
	}
	const get = "*6\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n"
	const mset = "*6\r\n$4\r\nmset\r\n:-3\r\n*1\r\n+write\r\n:1\r\n:-1\r\n:2\r\n"
	f("*3\r\n"+get+"$-1\r\n"+mset, "COMMAND", "INFO", "GET", "nope", "mset")
	f("*4\r\n$10\r\nappendonly\r\n$2\r\nno\r\n$4\r\nsave\r\n$0\r\n\r\n", "CONFIG", "GET", "[a-b]*", "SAVE", "sa?e")
	f("*4\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n", "CONFIG", "GET", "maxmemory*")
	f("*4\r\n$23\r\nslowlog-log-slower-than\r\n$5\r\n10000\r\n$15\r\nslowlog-max-len\r\n$3\r\n128\r\n", "CONFIG", "GET", "slowlog*")
	f("*0\r\n", "LATENCY", "LATEST")
	f("*0\r\n", "LATENCY", "HISTORY", "command")
	f(":0\r\n", "LATENCY", "RESET")
	f("$12\r\n# Keyspace\r\n\r\n", "INFO", "keyspace")
	f("$48\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n", "INFO", "replication")
	f("+OK\r\n", "CLIENT", "CAPA", "redirect")
	f("+OK\r\n", "CLIENT", "MAINT_NOTIFICATIONS", "ON")
	for _, all := range [][]string{{"INFO"}, {"INFO", "everything"}, {"INFO", "Server", "default"}} {
		r.Send(computeservertest.Command(all...) + computeservertest.Command("ECHO", "end"))
		var text strings.Builder
		for line := ""; line != "$3\r\n"; text.WriteString(line) {
			line = r.Line()
		}
		r.Expect("end\r\n")
		for _, section := range []string{"Server", "Clients", "Memory", "Stats", "Replication", "Cluster", "Partition", "Keyspace"} {
			if n := strings.Count(text.String(), "# "+section+"\r\n"); n != 1 {
				t.Errorf("%q shows section %s %d times", all, section, n)
			}
		}
	}
	// no command, and no reply
	for _, nothing := range []string{"*0\r\n", "*-1\r\n", "*-5\r\n", "\r\n"} {
		r.Send(nothing + "PING\r\n" + nothing)
		r.Expect("+PONG\r\n")
	}
	f("+PONG\r\n", "PING")
}

// TestClientListShowsOwn: a user that may not read every key sees the connections of its own name.
func TestClientListShowsOwn(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"password": "secret", "users.acl": "user u on >u ~a* +@all\nuser v on >v ~b* +@all\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCluster(t, config.RoutingOwner, func(l *limits) {
		l.Users = directory(t, users.Config{PasswordFile: filepath.Join(dir, "password"), UsersFile: filepath.Join(dir, "users.acl")})
	}, 1)
	c.split([]uint32{1})
	var all []*computeservertest.Conn
	for _, login := range [][]string{{"default", "secret"}, {"u", "u"}, {"u", "u"}, {"v", "v"}} {
		r := c.raw(1)
		r.Send(computeservertest.Command("AUTH", login[0], login[1]))
		r.Expect("+OK\r\n")
		all = append(all, r)
	}
	for i, want := range []map[string]int{{"default": 1, "u": 2, "v": 1}, {"u": 2}, {"u": 2}, {"v": 1}} {
		all[i].Send(computeservertest.Command("CLIENT", "LIST") + computeservertest.Command("ECHO", "end"))
		var text strings.Builder
		for line := ""; line != "$3\r\n"; text.WriteString(line) {
			line = all[i].Line()
		}
		all[i].Expect("end\r\n")
		for _, user := range []string{"default", "u", "v"} {
			if n := strings.Count(text.String(), " user="+user+" "); n != want[user] {
				t.Errorf("connection %d sees %d of user %s, want %d", i, n, user, want[user])
			}
		}
	}
}
