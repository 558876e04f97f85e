package resp

import (
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestMessagesBesideExec: a message that comes while EXEC runs stands before or behind its reply,
// not among the replies of its commands, also where one of these ends the subscription.
func TestMessagesBesideExec(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	const hello = ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$5\r\nhello\r\n"
	const ended = ">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n"
	for _, row := range [][2]string{
		{"UNSUBSCRIBE", hello + "*4\r\n:1\r\n$1\r\nx\r\n" + ended + "$1\r\ny\r\n"},
		{"PING", "*4\r\n:1\r\n$1\r\nx\r\n+PONG\r\n$1\r\ny\r\n" + hello},
	} {
		conn := c.quiet(1)
		conn.resp3 = true
		feed := func(want string, commands ...[]string) {
			t.Helper()
			var all []byte
			for _, args := range commands {
				all = append(all, computeservertest.Command(args...)...)
			}
			if out, err := conn.feed(all); err != nil || string(out) != want {
				t.Errorf("%s: %q gave\n%q, %v; want\n%q", row[0], commands, out, err, want)
			}
		}
		feed("$1\r\nz\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", []string{"ECHO", "z"}, []string{"SUBSCRIBE", "a"})
		feed("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n"+row[1],
			[]string{"MULTI"}, []string{"PUBLISH", "a", "hello"}, []string{"ECHO", "x"}, []string{row[0]}, []string{"ECHO", "y"}, []string{"EXEC"})
		conn.unsubscribeAll()
		conn.account.close()
	}
}
