package resp

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/pubsub"
)

// element reads one reply or push of strings and numbers, in RESP3.
func element(t *testing.T, from *bufio.Reader) (kind byte, parts []string) {
	t.Helper()
	line, err := from.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	kind, line = line[0], strings.TrimSuffix(line[1:], "\r\n")
	var n int
	switch _, _ = fmt.Sscanf(line, "%d", &n); kind {
	case '>', '*':
		for range n {
			_, part := element(t, from)
			parts = append(parts, part...)
		}
	case '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(from, b); err != nil {
			t.Fatal(err)
		}
		parts = []string{string(b[:n])}
	default:
		parts = []string{line}
	}
	return kind, parts
}

// TestPushesBetweenReplies: while others publish, a connection sends random pipelines that
// subscribe, unsubscribe and ask. Messages stand between its replies, each whole, from the
// confirmation of a subscription until that of its end, in their order, and none is missing in
// between.
func TestPushesBetweenReplies(t *testing.T) {
	rnd := computeservertest.Seeded(t)
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	s := c.servers[1].resp
	turns := make(chan struct{}, 100)
	var publishers sync.WaitGroup
	defer publishers.Wait()
	defer close(turns)
	channels := []string{"a", "b", "c"}
	for _, channel := range channels {
		publishers.Go(func() {
			n := 0
			for range turns {
				s.Publish(&pubsub.Message{Channel: []byte(channel), Payload: fmt.Appendf(nil, "%d%s", n, strings.Repeat(".", n%3000))})
				n++
			}
		})
	}
	r := c.raw(1)
	r.Send(computeservertest.Command("HELLO", "3") + computeservertest.Command("ECHO", "begin"))
	from := bufio.NewReader(r.NC)
	for line := ""; line != "begin\r\n"; {
		line, _ = from.ReadString('\n')
	}
	// the number of the last message of each channel that is subscribed to; -1 = none yet
	heard, messages := map[string]int{}, 0
	for round := range 300 {
		var pipeline strings.Builder
		var want []string
		for n := range 1 + rnd.IntN(8) {
			channel := channels[rnd.IntN(len(channels))]
			switch rnd.IntN(4) {
			case 0:
				pipeline.WriteString(computeservertest.Command("SUBSCRIBE", channel))
				want = append(want, "subscribe "+channel)
			case 1:
				pipeline.WriteString(computeservertest.Command("UNSUBSCRIBE", channel))
				want = append(want, "unsubscribe "+channel)
			default:
				text := fmt.Sprint(round, "-", n, strings.Repeat("x", rnd.IntN(5000)))
				pipeline.WriteString(computeservertest.Command("ECHO", text))
				want = append(want, text)
			}
		}
		for range 40 {
			turns <- struct{}{}
		}
		r.Send(pipeline.String())
		for len(want) > 0 {
			kind, parts := element(t, from)
			switch {
			case kind == '$' && parts[0] == want[0]:
				want = want[1:]
			case kind == '>' && parts[0] == "message":
				messages++
				last, listens := heard[parts[1]]
				var n int
				fmt.Sscanf(parts[2], "%d", &n)
				if !listens || last >= 0 && n != last+1 || len(parts[2]) != len(fmt.Sprint(n))+n%3000 {
					t.Fatalf("round %d: message %.20q came on %s, behind %d, subscribed %v", round, parts[2], parts[1], last, listens)
				}
				heard[parts[1]] = n
			case kind == '>' && parts[0]+" "+parts[1] == want[0]:
				if parts[0] == "unsubscribe" {
					delete(heard, parts[1])
				} else if _, there := heard[parts[1]]; !there {
					heard[parts[1]] = -1
				}
				if parts[2] != fmt.Sprint(len(heard)) {
					t.Fatalf("round %d: %q; there are %d subscriptions", round, parts, len(heard))
				}
				want = want[1:]
			default:
				t.Fatalf("round %d: %c %.80q came, and %.80q is wanted", round, kind, parts, want)
			}
		}
	}
	if messages == 0 {
		t.Error("no message came")
	}
}

// TestSubscriberDoesNotRead: a client that does not take its messages is cut when as many wait as
// may, or as the budget has room for; others get all, and the budget is whole then.
func TestSubscriberDoesNotRead(t *testing.T) {
	for _, buffers := range []int64{256 << 20, 2 << 20} {
		c := newCluster(t, config.RoutingOwner, func(l *limits) { l.MaxBuffers = buffers }, 1)
		c.split([]uint32{1})
		s := c.servers[1].resp
		stuck, reads := c.raw(1), c.raw(1)
		for _, r := range []*computeservertest.Conn{stuck, reads} {
			r.Send(computeservertest.Command("SUBSCRIBE", "c"))
			r.Expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
		}
		payload := strings.Repeat("x", 512<<10)
		sent := 0
		from := bufio.NewReader(reads.NC)
		if buffers < mostPushes { // which one client alone takes
			reads.Send(computeservertest.Command("UNSUBSCRIBE", "c"))
			reads.Expect("*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n")
		}
		for ; s.core.Count.SubscribersCut.Load() == 0 && sent < 200; sent++ {
			s.Publish(&pubsub.Message{Channel: []byte("c"), Payload: []byte(payload)})
			if buffers < mostPushes {
				continue
			}
			if _, parts := element(t, from); len(parts) != 3 || parts[2] != payload {
				t.Fatalf("%.60q came", parts)
			}
		}
		if least := int(min(buffers, mostPushes) / 2 / (512 << 10)); sent < least || sent == 200 {
			t.Errorf("with buffers of %d bytes a client was cut after %d messages", buffers, sent)
		}
		computeservertest.Await(t, "the client that does not read is gone", func() bool { return len(s.connections()) == 1 })
		reads.Send(computeservertest.Command("UNSUBSCRIBE", "c") + computeservertest.Command("ECHO", "end"))
		for parts := []string{""}; parts[0] != "end"; {
			_, parts = element(t, from)
		}
		computeservertest.Await(t, "the budget is whole", func() bool { return s.budget.used.Load() == 0 })
	}
}

// TestBoundsOfSubscriptions: a connection has a bounded number of subscriptions, and of patterns,
// and names are bounded. A command beyond a bound does nothing.
func TestBoundsOfSubscriptions(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	r := c.raw(1)
	ask := func(args ...string) string {
		t.Helper()
		r.Send(computeservertest.Command(args...))
		return r.SkipReply()
	}
	patterns := []string{"PSUBSCRIBE"}
	for i := range maxOwnPatterns {
		patterns = append(patterns, fmt.Sprint("p", i, "*"))
	}
	r.Send(computeservertest.Command(patterns...))
	for range maxOwnPatterns {
		r.SkipReply()
	}
	const many = "-ERR a connection has at most 10000 subscriptions, of them 1000 to patterns; use further connections\r\n"
	if got := ask("PSUBSCRIBE", "p1*", "other"); got != many {
		t.Errorf("a pattern too many gave %q", got)
	}
	if got := ask("PSUBSCRIBE", "p1*"); got != "*3\r\n" {
		t.Errorf("a pattern that there is gave %q", got)
	}
	names := []string{"SUBSCRIBE"}
	for i := range maxSubscriptions - maxOwnPatterns {
		names = append(names, fmt.Sprint("c", i))
	}
	if got := ask(append(names, "x")...); got != many {
		t.Errorf("a channel too many gave %q", got)
	}
	r.Send(computeservertest.Command(names...))
	for range maxSubscriptions - maxOwnPatterns {
		r.SkipReply()
	}
	if got := ask("SSUBSCRIBE", "x"); got != many {
		t.Errorf("a channel too many gave %q", got)
	}
	long := strings.Repeat("x", pubsub.MaxName+1)
	if got := ask("SUBSCRIBE", long); !strings.HasPrefix(got, "-ERR the name of a channel, or a pattern, has at most 1024 bytes, this one has 1025") {
		t.Errorf("a long name gave %q", got)
	}
	other := c.raw(1)
	other.Send(computeservertest.Command("PUBLISH", long, "x") + computeservertest.Command("PUBLISH", "p7x", "x"))
	if got := other.Line(); !strings.HasPrefix(got, "-ERR the name of a channel has at most 1024 bytes") {
		t.Errorf("a long name gave %q", got)
	}
	other.Expect(":1\r\n")
	_ = r.NC.Close()
	s := c.servers[1].resp
	computeservertest.Await(t, "its subscriptions are gone", func() bool { return s.topics.Names(pubsub.Patterns)+s.topics.Names(pubsub.Channels) == 0 })
	computeservertest.Await(t, "the budget is whole", func() bool { return s.budget.used.Load() == 0 })
}

// TestSubscriberMayBeSilent: a connection that has subscribed is not ended for its silence, and
// CLIENT LIST and INFO tell of it. It ends with its server.
func TestSubscriberMayBeSilent(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, func(l *limits) { l.Idle = 20 * time.Millisecond }, 1)
	c.split([]uint32{1})
	s := c.servers[1].resp
	r := c.raw(1)
	r.Send(computeservertest.Command("HELLO", "3") + computeservertest.Command("SUBSCRIBE", "c", "d") + computeservertest.Command("PSUBSCRIBE", "p*") + computeservertest.Command("SSUBSCRIBE", "s") + computeservertest.Command("CLIENT", "INFO") + computeservertest.Command("INFO"))
	var text strings.Builder
	for line := ""; !strings.HasPrefix(line, "dmindex_index_cache_hits"); text.WriteString(line) {
		line = r.Line()
	}
	for _, want := range []string{" sub=2 psub=1 ssub=1 ", "\r\npubsub_clients:1\r\n", "\r\npubsub_channels:2\r\n", "\r\npubsub_patterns:1\r\n", "\r\npubsubshard_channels:1\r\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not there: %s", want, text.String())
		}
	}
	for range 3 { // one after the other
		c.raw(1).ExpectEnd()
	}
	s.Publish(&pubsub.Message{Channel: []byte("c"), Payload: []byte("hello")})
	for line := ""; line != "hello\r\n"; {
		line = r.Line()
	}
	s.BeginDrain(time.Minute)
	if forced := s.Drain(time.Minute); forced != 0 {
		t.Errorf("%d connections were closed by force", forced)
	}
	r.ExpectEnd()
}
