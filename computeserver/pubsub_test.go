package computeserver

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// listening are dialogues of one connection about subscriptions.
var listening = [][]string{
	{"SUBSCRIBE a", "UNSUBSCRIBE a", "PING", "GET k"},
	{"SUBSCRIBE a b a", "UNSUBSCRIBE b", "UNSUBSCRIBE c", "UNSUBSCRIBE", "UNSUBSCRIBE", "PING x"},
	{"PSUBSCRIBE a* b?", "SUBSCRIBE a", "PUNSUBSCRIBE a*", "UNSUBSCRIBE", "PUNSUBSCRIBE", "PUNSUBSCRIBE", "PUNSUBSCRIBE x"},
	{"SSUBSCRIBE a", "SUBSCRIBE a", "SSUBSCRIBE b", "SUNSUBSCRIBE a", "SUNSUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE a", "PING"},
	{"UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE a b", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "PUBLISH a", "PUBLISH a b c", "SPUBLISH a", "PUBSUB"},
	{"SUBSCRIBE ''", "UNSUBSCRIBE ''", "SUBSCRIBE a", "SUBSCRIBE b", "RESET", "HELLO 2 SETNAME x y", "GET k", "UNSUBSCRIBE"},
	{"SUBSCRIBE a", "PING", "PING hello", "PING a b", "ping ''", "RESET", "PING"},
	{"SUBSCRIBE a", "GET k", "CLIENT GETNAME", "CONFIG GET nope", "MULTI", "NOPE a", "GET", "EXEC", "UNSUBSCRIBE", "GET k"},
	{"MULTI", "SUBSCRIBE a", "PSUBSCRIBE b", "EXEC", "UNSUBSCRIBE a", "PUNSUBSCRIBE"},
	{"MULTI", "PUBLISH a 1", "SUBSCRIBE a", "UNSUBSCRIBE a", "PUBLISH a 1", "PUBSUB NUMPAT", "EXEC", "GET k"},
	{"MULTI", "SUBSCRIBE", "EXEC", "MULTI", "SUBSCRIBE a", "DISCARD", "PING"},
	{"SUBSCRIBE a", "SUBSCRIBE a", "SUBSCRIBE b b", "UNSUBSCRIBE a a", "UNSUBSCRIBE b"},
	{"PUBLISH none x", "SPUBLISH none x", "PUBSUB NUMSUB", "PUBSUB NUMSUB a b a", "PUBSUB NUMPAT", "PUBSUB CHANNELS", "PUBSUB CHANNELS a*", "PUBSUB SHARDCHANNELS", "PUBSUB SHARDNUMSUB a", "pubsub numpat"},
	{"CLIENT REPLY OFF", "SUBSCRIBE a", "UNSUBSCRIBE a", "CLIENT REPLY ON", "PING"},
	{"CLIENT REPLY SKIP", "SUBSCRIBE a", "UNSUBSCRIBE a", "PING"},
	{"SUBSCRIBE a", "CLIENT REPLY OFF", "PING x", "RESET", "CLIENT REPLY ON", "PING"},
	{"PSUBSCRIBE [a]", "PSUBSCRIBE [a", "PSUBSCRIBE \\a", "PUNSUBSCRIBE [a]", "PUNSUBSCRIBE [a", "PUNSUBSCRIBE \\a"},
}

// everything is what a connection is sent until a mark that it asks for last.
func everything(t *testing.T, k *talk) string {
	t.Helper()
	k.Send(computeservertest.Command("UNSUBSCRIBE") + computeservertest.Command("PUNSUBSCRIBE") + computeservertest.Command("SUNSUBSCRIBE") + computeservertest.Command("ECHO", "the end"))
	return upTo(t, k.from, "the end\r\n")
}

func upTo(t *testing.T, from *bufio.Reader, mark string) string {
	t.Helper()
	var b strings.Builder
	for !strings.HasSuffix(b.String(), mark) {
		line, err := from.ReadString('\n')
		if b.WriteString(line); err != nil {
			t.Fatalf("%v behind %q", err, b.String())
		}
	}
	return b.String()
}

// TestSubscriptionsAgainstRedis: what a connection that subscribes is sent is byte by byte what a
// real redis-server sends, in RESP2 and RESP3, each command alone and all in one pipeline.
func TestSubscriptionsAgainstRedis(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	for _, protocol := range []string{"2", "3"} {
		for _, pipelined := range []bool{false, true} {
			p := newPair(t, c, protocol)
			for _, dialogue := range listening {
				if protocol == "3" && strings.Contains(strings.Join(dialogue, " "), "RESET") {
					continue // which ends RESP3
				}
				var got [2]string
				for i, k := range []*talk{p.ours, p.redis} {
					var all strings.Builder
					for _, command := range dialogue {
						all.WriteString(computeservertest.Command(words(command)...))
						if !pipelined {
							k.Send(all.String())
							all.Reset()
						}
					}
					k.Send(all.String())
					got[i] = everything(t, k)
				}
				if got[0] != got[1] {
					t.Errorf("RESP%s, pipelined %v: %q gave\n%q, and Redis\n%q", protocol, pipelined, dialogue, got[0], got[1])
				}
			}
		}
	}
}

// TestMessagesAgainstRedis: one connection listens, and another one publishes: both are sent what a
// real redis-server sends, message by message.
func TestMessagesAgainstRedis(t *testing.T) {
	for _, protocol := range []string{"2", "3"} {
		c := newCluster(t, config.RoutingOwner, nil, 1)
		c.split([]uint32{1})
		p := newPair(t, c, protocol)
		again := func(k *talk) *talk {
			address := k.NC.RemoteAddr()
			conn := computeservertest.Dial(t, address.Network(), address.String())
			return &talk{conn, bufio.NewReader(conn.NC)}
		}
		var got [2]strings.Builder
		for i, k := range []*talk{p.ours, p.redis} {
			publisher := again(k)
			b := &got[i]
			listen := func(command string, replies int) {
				k.Send(computeservertest.Command(words(command)...))
				for range replies {
					b.WriteString(message(t, k.from))
				}
			}
			publish := func(command string, messages int) {
				publisher.Send(computeservertest.Command(words(command)...))
				b.WriteString(wholeReply(t, publisher.from))
				for range messages {
					b.WriteString(message(t, k.from))
				}
			}
			listen("SUBSCRIBE news sport", 2)
			publish("PUBLISH news hello", 1)
			publish("PUBLISH news ''", 1)
			publish("PUBLISH sport "+strings.Repeat("x", 70_000), 1)
			publish("PUBLISH other hello", 0)
			listen("PSUBSCRIBE n?ws", 1)
			publish("PUBLISH news twice", 2)
			publish("PUBLISH nxws once", 1)
			publish("SPUBLISH news sharded", 0)
			listen("SSUBSCRIBE news", 1)
			publish("SPUBLISH news sharded", 1)
			publish("PUBSUB NUMSUB news nope", 0)
			publish("PUBSUB CHANNELS s*", 0)
			publish("PUBSUB SHARDCHANNELS", 0)
			publish("PUBSUB NUMPAT", 0)
			publish("CLIENT KILL TYPE normal", 0)
			listen("UNSUBSCRIBE news", 1)
			publish("PUBLISH news pattern", 1)
			listen("PING", 1)
			listen("PUNSUBSCRIBE", 1)
			publish("PUBLISH news gone", 0)
			publish("PUBLISH sport stays", 1)
			publish("CLIENT KILL TYPE pubsub", 0)
			if _, err := k.from.ReadByte(); err == nil {
				t.Errorf("RESP%s: a connection that was killed is sent something", protocol)
			}
			publish("PUBSUB NUMSUB sport", 0)
		}
		if got[0].String() != got[1].String() {
			t.Errorf("RESP%s gave\n%q, and Redis\n%q", protocol, got[0].String(), got[1].String())
		}
	}
}

// message reads a reply or a push of strings and numbers.
func message(t *testing.T, from *bufio.Reader) string {
	t.Helper()
	line, err := from.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var n int
	switch _, _ = fmt.Sscanf(line[1:], "%d", &n); line[0] {
	case '*', '>':
		for range n {
			line += message(t, from)
		}
	case '$':
		if n >= 0 {
			b := make([]byte, n+2)
			for read := 0; read < len(b); {
				more, err := from.Read(b[read:])
				if read += more; err != nil {
					t.Fatal(err)
				}
			}
			line += string(b)
		}
	}
	return line
}
