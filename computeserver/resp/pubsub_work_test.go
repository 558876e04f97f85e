package resp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/pubsub"
)

// TestGlobWork: a match takes no more comparisons than work says, but for some.
func TestGlobWork(t *testing.T) {
	rnd := computeservertest.Seeded(t)
	text := func(of string, n int) []byte {
		b := make([]byte, rnd.IntN(n))
		for i := range b {
			b[i] = of[rnd.IntN(len(of))]
		}
		return b
	}
	f := func(pattern, key []byte) {
		g := newGlob(pattern, pubsub.MaxName)
		if _, steps := g.match(key); steps > g.work()*(len(key)+2)+len(g.items) {
			t.Errorf("%q takes %d steps with %q; its work is %d", pattern, steps, key, g.work())
		}
	}
	for range 5_000 {
		f(text("aaaaab*?", 40), text("aaaaaab", 60))
	}
	f([]byte("*"+strings.Repeat("a", 511)+"b*"), []byte(strings.Repeat("a", 1024)))
	f([]byte("a*"+strings.Repeat("*?a", 300)+"b"), []byte(strings.Repeat("a", 1024)))
}

// TestPatternsTakeBoundedWork: patterns that take long to match are refused where there are many of
// them, and a list of channels ends that would take long.
func TestPatternsTakeBoundedWork(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	s := c.servers[1].resp
	conn := c.quiet(1)
	conn.resp3 = true
	heavy := func(i int) string { return fmt.Sprint("*", strings.Repeat("a", 900), i, "*") }
	ask := func(args ...string) string {
		out, err := conn.feed([]byte(computeservertest.Command(args...)))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	taken := 0
	for ; strings.HasPrefix(ask("PSUBSCRIBE", heavy(taken)), ">3\r\n"); taken++ {
	}
	if most := pubsub.MaxWork / 900; taken == 0 || taken > most {
		t.Errorf("%d patterns are accepted, at most %d are right", taken, most)
	}
	if got := ask("PSUBSCRIBE", heavy(taken)); !strings.HasPrefix(got, "-ERR connections of this server, or those of this user, have subscribed to as many patterns as possible") {
		t.Errorf("one pattern too many gave %q", got)
	}
	if got := ask("PSUBSCRIBE", "news.*"); !strings.HasPrefix(got, ">3\r\n") {
		t.Errorf("a pattern that takes little gave %q", got)
	}
	ask("PUNSUBSCRIBE", heavy(0))
	if got := ask("PSUBSCRIBE", heavy(taken)); !strings.HasPrefix(got, ">3\r\n") {
		t.Errorf("a pattern in place of another one gave %q", got)
	}
	for i := range 2_000 {
		ask("SUBSCRIBE", fmt.Sprint(strings.Repeat("a", 1000), i))
	}
	if got := ask("PUBSUB", "CHANNELS", "*"+strings.Repeat("a", 500)+"b*"); !strings.HasPrefix(got, "-ERR there are too many channels for one reply") {
		t.Errorf("a list that takes long gave %.200q", got)
	}
	if of := s.Subscriptions(&rpcv1.ListSubscriptionsRequest{List: true, Pattern: []byte("a*7")}); of.More || len(of.Channels) != 200 {
		t.Errorf("%d channels are listed, more %v", len(of.Channels), of.More)
	}
	conn.unsubscribeAll()
	conn.account.close()
	if n := s.topics.Names(pubsub.Patterns); n != 0 {
		t.Errorf("%d patterns are left", n)
	}
}
