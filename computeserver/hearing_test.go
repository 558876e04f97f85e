package computeserver

import (
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestOtherUserHearsNoMore: a connection that becomes another user's ends if that one may not have
// what the former subscribed to, or monitor; also if it was that user's before.
func TestOtherUserHearsNoMore(t *testing.T) {
	c, _, _ := withUsers(t, "user all on >a ~* +@all allchannels\nuser some on >s ~* +@all &s*\n")
	for _, hears := range []string{"MONITOR", "SUBSCRIBE other", "PSUBSCRIBE o*"} {
		k := newTalk(c.cluster, 1)
		send := func(commands ...string) {
			all := ""
			for _, command := range commands {
				all += computeservertest.Command(words(command)...)
			}
			k.Send(all)
		}
		send("HELLO 3 AUTH some s", "SUBSCRIBE s", "ECHO first")
		upTo(t, k.from, "first\r\n")
		send("ECHO second")
		upTo(t, k.from, "second\r\n")
		send("AUTH all a", hears, "AUTH some s", "ECHO third")
		upTo(t, k.from, "third\r\n")
		send("ECHO fourth")
		if got, err := io.ReadAll(k.from); strings.Contains(string(got), "fourth") {
			t.Errorf("%s of another user goes on: %q, %v", hears, got, err)
		}
	}
}

// TestRightsAfterMessages: a connection that waited to run a command, as its client took messages
// slowly, runs nothing for a user that has lost a right meanwhile, and is sent no later message.
func TestRightsAfterMessages(t *testing.T) {
	const rules = "user some on >s ~* +@all &s*\n"
	c, _, more := withUsers(t, rules)
	slow, other, works := newTalk(c.cluster, 1), newTalk(c.cluster, 1), newTalk(c.cluster, 1)
	for _, k := range []*talk{slow, other} {
		k.Send(computeservertest.Command("HELLO", "3", "AUTH", "some", "s") + computeservertest.Command("SUBSCRIBE", "s"+k.NC.LocalAddr().String()) + computeservertest.Command("ECHO", "ready"))
		upTo(t, k.from, "ready\r\n")
	}
	works.Send(computeservertest.Command("AUTH", "secret"))
	upTo(t, works.from, "+OK\r\n")
	publish := func(text string) {
		t.Helper()
		works.Send(computeservertest.Command("PUBLISH", "s"+slow.NC.LocalAddr().String(), text))
		if got := wholeReply(t, works.from); got != ":1\r\n" {
			t.Fatalf("PUBLISH gave %q", got)
		}
	}
	for range 24 { // more than the network takes
		publish(strings.Repeat("x", 1<<20))
	}
	slow.Send(computeservertest.Command("SET", "k", "v"))
	computeservertest.Await(t, "the command waits for its turn", func() bool {
		all := make([]byte, 1<<20)
		return slices.ContainsFunc(strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n"), func(stack string) bool {
			return strings.Contains(stack, "(*conn).readTurn") && strings.Contains(stack, "sync.(*Mutex).Lock")
		})
	})
	replaceFile(t, more, strings.Replace(rules, "&s*", "&t*", 1))
	if got, err := io.ReadAll(other.from); len(got) > 0 {
		t.Fatalf("a connection of the user is sent %q, %v", got, err)
	}
	publish("too late")
	got, err := io.ReadAll(slow.from)
	if s := string(got); strings.Contains(s, "too late") || !strings.HasSuffix(s, "xxxx\r\n") {
		t.Errorf("the connection is sent %q at last, %v", s[max(0, len(s)-80):], err)
	}
	works.Send(computeservertest.Command("EXISTS", "k"))
	if got := wholeReply(t, works.from); got != ":0\r\n" {
		t.Errorf("EXISTS gave %q", got)
	}
}
