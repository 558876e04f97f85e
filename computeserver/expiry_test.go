package computeserver

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/pkg/index"
)

// expiring are commands that know when pairs expire, with %s for their key. Deadlines that are told
// are absolute, or a good way from the next whole second.
var expiring = []string{
	"TTL %s", "PTTL %s", "EXPIRETIME %s", "PEXPIRETIME %s", "PERSIST %s", "EXPIRE %s 10", "EXPIRE %s -1", "GETEX %s", "GETEX %s EX 10", "GETEX %s PERSIST",
	"SET %s 1", "TTL %s", "PTTL %s", "EXPIRETIME %s", "PEXPIRETIME %s", "PERSIST %s",
	"SET %s 1 PX 100499", "TTL %s", "SET %s 2", "TTL %s", "SET %s 3 pxat 33000000001499", "TTL %s x", "EXPIRETIME %s", "PEXPIRETIME %s", "GET %s", "PERSIST %s", "PEXPIRETIME %s",
	"SET %s 4 EXAT 33000000000", "SET %s 5 KEEPTTL", "PEXPIRETIME %s", "GET %s", "SET %s 6 XX KEEPTTL GET", "PEXPIRETIME %s", "SET %s 7 NX KEEPTTL", "SET %s 8 NX EX 5", "PEXPIRETIME %s", "GET %s", "SET %s 9 GET", "PEXPIRETIME %s",
	"SET %s 1 EX 10 EX 10", "SET %s 1 EX 10 PX 10", "SET %s 1 EX 10 KEEPTTL", "SET %s 1 KEEPTTL EX 10", "SET %s 1 EX", "SET %s 1 EX x", "SET %s 1 EX 0", "SET %s 1 EX -1", "SET %s 1 PX 0", "SET %s 1 EXAT 0", "SET %s 1 EX 1.5", "SET %s 1 EX 9223372036854775807", "SET %s 1 PX 9223372036854775807", "SET %s 1 EX x NOPE", "GET %s",
	"SET %s 1 PXAT 9223372036854775807", "PEXPIRETIME %s", "SET %s 1 EXAT 9223372036854775", "PEXPIRETIME %s", "SET %s 1 EXAT 9223372036854776",
	"SET %s 1 PXAT 1", "GET %s", "EXISTS %s", "SET %s 1 EXAT 1 GET", "GET %s",
	"SETEX %s 100 v", "GET %s", "PSETEX %s 100499 w", "TTL %s", "GET %s", "SETEX %s 0 v", "SETEX %s x v", "PSETEX %s -1 v", "SETEX %s 10", "GET %s",
	"INCR %s", "SET %s 1 EXAT 33000000000", "INCR %s", "PEXPIRETIME %s", "APPEND %s 3", "PEXPIRETIME %s", "SETRANGE %s 0 4", "PEXPIRETIME %s", "INCRBYFLOAT %s 0.5", "PEXPIRETIME %s", "GETSET %s 1", "PEXPIRETIME %s",
	"EXPIREAT %s 33000000000", "SETNX %s 2", "PEXPIRETIME %s", "GETDEL %s", "SETNX %s 3", "PEXPIRETIME %s",
	"EXPIREAT %s 33000000000", "EXPIREAT %s 33000000000 NX", "EXPIREAT %s 33000000000 GT", "EXPIREAT %s 33000000000 LT", "EXPIREAT %s 33000000001 GT", "EXPIREAT %s 33000000000 lt", "EXPIREAT %s 33000000002 xx", "EXPIREAT %s 33000000003 XX GT", "EXPIREAT %s 33000000004 XX LT", "EXPIREAT %s 33000000001 XX LT", "EXPIRETIME %s",
	"PERSIST %s", "PERSIST %s", "EXPIREAT %s 33000000000 XX", "EXPIREAT %s 33000000000 GT", "EXPIREAT %s 33000000000 XX GT", "EXPIREAT %s 33000000000 XX LT", "EXPIREAT %s 33000000000 LT", "PERSIST %s", "EXPIREAT %s 33000000000 NX", "PEXPIRETIME %s",
	"EXPIRE %s 10 NX XX", "EXPIRE %s 10 NX GT", "EXPIRE %s 10 GT LT", "EXPIRE %s 10 NOPE", "EXPIRE %s x NOPE", "EXPIRE %s x", "EXPIRE %s 1.5", "EXPIRE %s", "EXPIRE %s 9223372036854775807", "EXPIRE %s -9223372036854775808", "PEXPIRE %s 9223372036854775807", "EXPIREAT %s 9223372036854775807",
	"PEXPIRE %s 100499", "TTL %s", "PEXPIREAT %s 33000000001234", "PEXPIRETIME %s", "EXPIRETIME %s", "EXPIRE %s 0", "GET %s", "SET %s 1", "PEXPIRE %s -1", "GET %s", "SET %s 1", "EXPIREAT %s 1", "EXISTS %s", "SET %s 1", "PEXPIREAT %s -9223372036854775808", "EXISTS %s", "SET %s 1", "PEXPIRE %s -9223372036854775808", "EXISTS %s",
	"SET %s 1", "GETEX %s", "GETEX %s EXAT 33000000000", "PEXPIRETIME %s", "GETEX %s", "PEXPIRETIME %s", "GETEX %s persist", "PEXPIRETIME %s", "GETEX %s PERSIST", "GETEX %s PXAT 33000000000001", "PEXPIRETIME %s", "GETEX %s PX 100499", "TTL %s",
	"GETEX %s EX", "GETEX %s EX x", "GETEX %s EX 0", "GETEX %s PX -5", "GETEX %s NOPE", "GETEX %s NOPE 1", "GETEX %s EX 10 PERSIST", "GETEX %s PERSIST EX 10", "GETEX %s PERSIST PERSIST", "GETEX %s EXAT 1 EXAT 33000000000", "PEXPIRETIME %s", "GETEX %s EX 1 PX 1", "GETEX %s EX 9223372036854775807", "GETEX %s EXAT 1", "GET %s",
}

// expires makes pairs of a cluster's index expire, by clocks that are off by what the test says.
func expires(off *[3]atomic.Int64) func(*Config) {
	return func(cfg *Config) {
		cfg.Index.Expiry, cfg.stays, cfg.trustsClock = config.ExpiryEnabled, true, true
		id := cfg.ID
		cfg.Clock = func() int64 { return time.Now().UnixMilli() + off[id].Load() }
	}
}

// TestExpiryAgainstRedis: commands that know when pairs expire are answered byte by byte as a real
// redis-server answers, at the owner of the key and at another server, in RESP2 and RESP3, alone
// and in a pipeline.
func TestExpiryAgainstRedis(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.split([]uint32{1, 2}, "m")
	for _, protocol := range []string{"2", "3"} {
		newPair(t, c, protocol).askOnKeys(expiring)
	}
}

// mostOff is how far the clocks of these tests are off, in milliseconds: a day.
const mostOff = 24 * 3600 * 1000

// TestExpiredIsAbsent: a pair that has expired is to each command as one that was never there, and
// what it is not there for is as it would be. This holds at every server as soon as one has said
// so, whatever their clocks: the one that is behind does not see the pair again.
func TestExpiredIsAbsent(t *testing.T) {
	for _, routing := range []string{config.RoutingAny, config.RoutingOwner} {
		t.Run(routing, func(t *testing.T) {
			var off [3]atomic.Int64
			c := newCluster(t, routing, expires(&off), 1, 2)
			if routing == config.RoutingOwner {
				c.split([]uint32{1, 2}, "m")
			}
			off[2].Store(-mostOff)
			one, two := newTalk(c, 1), newTalk(c, 2)
			ask := func(k *talk, args ...string) string {
				k.Send(computeservertest.Command(args...))
				return wholeReply(t, k.from)
			}
			for n, command := range []string{
				"GET %s", "EXISTS %s %s", "MGET %s %s", "TTL %s", "PEXPIRETIME %s", "GETEX %s", "GETEX %s EX 1000", "PERSIST %s", "EXPIRE %s 1000", "EXPIRE %s -1", "DEL %s", "DELEX %s", "DELIFEQ %s 7", "GETDEL %s",
				"SETNX %s 1", "SET %s 1 XX", "SET %s 1 NX", "SET %s 1 NX EX 1000", "SET %s 1 XX KEEPTTL", "SET %s 1 KEEPTTL", "SET %s 1 GET", "SET %s 1", "SET %s 1 IFEQ 7", "SET %s 1 IFNE 7", "GETSET %s 1", "INCR %s", "DECRBY %s 5", "INCRBYFLOAT %s 1.5", "APPEND %s x", "SETRANGE %s 3 x", "SETRANGE %s 3 ''",
			} {
				expired, never := fmt.Sprintf("c%02d", n), fmt.Sprintf("d%02d", n)
				on := func(key string) []string { return words(strings.ReplaceAll(command, "%s", key)) }
				if got := ask(one, "SET", expired, "7", "PX", "5000"); got != "+OK\r\n" {
					t.Fatal(got)
				}
				off[1].Add(5000)
				if got, want := ask(one, on(expired)...), ask(one, on(never)...); got != want {
					t.Errorf("%q gave %q of a pair that had expired, and %q without one", command, got, want)
				}
				for _, conn := range []*talk{one, two} {
					for _, look := range []string{"GET", "EXISTS", "EXPIRETIME"} {
						if got, want := ask(conn, look, expired), ask(conn, look, never); got != want && (look != "EXPIRETIME" || len(got) != len(want)) {
							t.Errorf("%s after %q gave %q of a pair that had expired, and %q without one", look, command, got, want)
						}
					}
				}
			}
			// what a scan, or a count, leaves out does not come back either
			for n, look := range [][]string{{"RANGE", "e", "f"}, {"RANGE", "e", "f", "REV"}, {"RANGE", "e", "f", "LIMIT", "2"}, {"RANGE", "e", "f", "LIMIT", "2", "REV"}, {"SCAN", "0", "MATCH", "e*", "COUNT", "1000"}, {"DBSIZE"}} {
				var pairs, live []string
				for i := range 150 { // more than one piece has
					key := fmt.Sprintf("e%d-%03d", n, i)
					if i%50 != 7 {
						ask(one, "SET", key, "7", "PX", "5000")
						pairs = append(pairs, key)
					} else {
						ask(one, "SET", key, "8")
						live = append(live, key)
					}
				}
				off[1].Add(5000)
				got := ask(one, look...)
				if slices.Contains(look, "REV") {
					slices.Reverse(live)
					slices.Reverse(pairs)
				}
				if slices.Contains(look, "LIMIT") { // what is behind the last one is not told
					live, pairs = live[:2], pairs[:56]
				}
				for _, key := range pairs {
					if strings.Contains(got, key) {
						t.Errorf("%q has %s, which had expired", look, key)
					}
					if back := ask(two, "GET", key); back != "$-1\r\n" {
						t.Fatalf("after %q %s is back at a server whose clock is behind: %q", look, key, back)
					}
				}
				for _, key := range live {
					if look[0] != "DBSIZE" && !strings.Contains(got, key) {
						t.Errorf("%q lacks %s: %q", look, key, got)
					}
				}
				ask(one, append([]string{"DEL"}, live...)...)
				for i := range 150 {
					ask(one, "DEL", fmt.Sprintf("e%d-%03d", n, i))
				}
			}
		})
	}
}

// TestScanMeetsPairWrittenAgain: a pair that had expired when a scan met it, and was written again
// before the scan could remove it, is in its place.
func TestScanMeetsPairWrittenAgain(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingAny, expires(&off), 1)
	other, err := c.store.Open().Session()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }() // nothing depends on it
	k := newTalk(c, 1)
	ask := func(args ...string) string {
		k.Send(computeservertest.Command(args...))
		return wholeReply(t, k.from)
	}
	for _, look := range [][]string{{"RANGE", "s", "s3"}, {"RANGE", "s", "s3", "REV"}, {"RANGE", "s", "s3", "LIMIT", "3"}} {
		for n := range 5 {
			ask("SET", fmt.Sprint("s", n), "7")
		}
		ask("PEXPIRE", "s1", "5000")
		ask("PEXPIRE", "s3", "5000")
		off[1].Add(5000)
		var again atomic.Bool
		c.store.BeforeOperation(func(key []byte) {
			if string(key) == "s1" && again.CompareAndSwap(false, true) {
				if err := other.Upsert(key, expiry.AppendStored(nil, []byte("9"), expiry.Mark{})); err != nil {
					t.Error(err)
				}
			}
		})
		want := "*6\r\n$2\r\ns0\r\n$1\r\n7\r\n$2\r\ns1\r\n$1\r\n9\r\n$2\r\ns2\r\n$1\r\n7\r\n"
		if slices.Contains(look, "REV") {
			want = "*6\r\n$2\r\ns2\r\n$1\r\n7\r\n$2\r\ns1\r\n$1\r\n9\r\n$2\r\ns0\r\n$1\r\n7\r\n"
		}
		if got := ask(look...); got != want || !again.Load() {
			t.Errorf("%q gave %q; want %q", look, got, want)
		}
		c.store.BeforeOperation(nil)
	}
}

// TestExpiryWaitsForTheLog: nothing is told of an expiry before it is durable: a crash could bring
// the pair back.
func TestExpiryWaitsForTheLog(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingAny, expires(&off), 1)
	k := newTalk(c, 1)
	ask := func(args ...string) string {
		k.Send(computeservertest.Command(args...))
		return wholeReply(t, k.from)
	}
	for _, look := range [][]string{{"GET", "k"}, {"MGET", "k", "j"}, {"TTL", "k"}, {"RANGE", "", ""}, {"SETNX", "k", "2"}, {"EXPIRE", "k", "10"}} {
		c.store.Log(func(uint64) error { return nil }) // what is before is durable
		for _, key := range []string{"j", "k"} {
			if got := ask("SET", key, "1", "PX", "5000"); got != "+OK\r\n" {
				t.Fatal(got)
			}
		}
		off[1].Add(5000)
		c.store.Log(func(uint64) error { return fmt.Errorf("the log does not answer: %w", index.ErrTimeout) })
		if got := ask(look...); got[0] != '-' {
			t.Errorf("%q gave %q before it is durable that the pair is gone", look, got)
		}
		c.store.Log(nil)
	}
}

// TestNothingExpires: an index whose pairs do not expire refuses what asks for a deadline, with the
// field that says so, and answers what asks for one.
func TestNothingExpires(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	r := c.raw(1)
	const refused = "-ERR pairs of this index do not expire, and nothing was done: its spec.expiry is Disabled"
	r.Send(computeservertest.Command("SET", "k", "1"))
	r.Expect("+OK\r\n")
	for _, command := range []string{"SET k 2 EX 10", "SET k 2 PXAT 33000000000000 GET", "SET k 2 IFEQ 1 PX 5", "SETEX k 10 2", "PSETEX k 10 2", "EXPIRE k 10", "PEXPIREAT k 1", "GETEX k EX 10"} {
		r.Send(computeservertest.Command(words(command)...))
		if got := r.Line(); !strings.HasPrefix(got, refused) {
			t.Errorf("%s gave %q", command, got)
		}
	}
	for _, x := range [][2]string{{"TTL k", ":-1\r\n"}, {"PEXPIRETIME k", ":-1\r\n"}, {"TTL none", ":-2\r\n"}, {"PERSIST k", ":0\r\n"}, {"GETEX k", "$1\r\n1\r\n"}, {"GETEX k PERSIST", "$1\r\n1\r\n"}, {"SET k 3 KEEPTTL", "+OK\r\n"}, {"SET k 4 XX KEEPTTL GET", "$1\r\n3\r\n"}, {"GET k", "$1\r\n4\r\n"}} {
		r.Send(computeservertest.Command(words(x[0])...))
		r.Expect(x[1])
	}
}

// TestExpiryIsOfItsKinds: an expiry that this server does not know, or that the kind does not have,
// is refused, and so is a condition that is for another kind.
func TestExpiryIsOfItsKinds(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingAny, expires(&off), 1)
	core := c.servers[1].core
	for _, op := range []*rpcv1.Operation{
		{Kind: rpcv1.Operation_UPSERT, Expiry: rpcv1.Operation_AFTER, Number: 1000},
		{Kind: rpcv1.Operation_STORE, Expiry: rpcv1.Operation_AT + 1, Number: 1000},
		{Kind: rpcv1.Operation_STORE, Condition: rpcv1.Operation_EQUAL},
		{Kind: rpcv1.Operation_SWAP, Condition: rpcv1.Operation_EXPIRES},
		{Kind: rpcv1.Operation_EXPIRE, Condition: rpcv1.Operation_PRESENT, Expiry: rpcv1.Operation_NEVER},
		{Kind: rpcv1.Operation_EXPIRE, Condition: rpcv1.Operation_EXPIRES_LATER + 1},
	} {
		op.Key = []byte("k")
		if got := engine.CodeOf(core.Check(op)); got != rpcv1.Outcome_UNSUPPORTED {
			t.Errorf("%v is answered %v", op, got)
		}
	}
	if err := core.Check(&rpcv1.Operation{Kind: rpcv1.Operation_EXPIRE, Condition: rpcv1.Operation_EXPIRES_LATER, Expiry: rpcv1.Operation_AT, Number: 1, Key: []byte("k")}); err != nil {
		t.Error(err)
	}
}

// talk is a connection to a server, and what it sends.
type talk struct {
	*computeservertest.Conn
	from *bufio.Reader
}

func newTalk(c *cluster, id uint32) *talk {
	conn := c.raw(id)
	return &talk{conn, bufio.NewReader(conn.NC)}
}

// pair is a server and a real redis-server, which are asked the same.
type pair struct {
	t           *testing.T
	protocol    string
	ours, redis *talk
}

func newPair(t *testing.T, c *cluster, protocol string) *pair {
	t.Helper()
	redis := computeservertest.NewRedis(t)
	p := &pair{t, protocol, newTalk(c, 1), &talk{redis, bufio.NewReader(redis.NC)}}
	for _, k := range []*talk{p.ours, p.redis} {
		k.Send(computeservertest.Command("HELLO", protocol) + computeservertest.Command("PING"))
		for line := ""; line != "+PONG\r\n"; {
			line, _ = k.from.ReadString('\n')
		}
	}
	return p
}

// ask sends commands in one pipeline and compares the replies.
func (p *pair) ask(commands ...[]string) {
	p.t.Helper()
	var send strings.Builder
	for _, args := range commands {
		send.WriteString(computeservertest.Command(args...))
	}
	p.ours.Send(send.String())
	p.redis.Send(send.String())
	for _, args := range commands {
		if got, want := wholeReply(p.t, p.ours.from), wholeReply(p.t, p.redis.from); got != want {
			p.t.Fatalf("RESP%s: %q gave %q; Redis says %q", p.protocol, args, got, want)
		}
	}
}

// askOnKeys asks commands, with %s for their key, alone and then in one pipeline: of a key of the
// server that is asked, and of a key of the other one. The keys are not there before, nor after.
func (p *pair) askOnKeys(commands []string) {
	p.t.Helper()
	for _, key := range []string{"a", "x"} {
		key += p.protocol
		var all [][]string
		for _, command := range commands {
			args := words(strings.ReplaceAll(command, "%s", key))
			all = append(all, args)
			p.ask(args)
		}
		p.ask([]string{"DEL", key})
		p.ask(all...)
		p.ask([]string{"DEL", key})
	}
}

// TestSweepersRemove: what has expired goes without a request, each pair by one server.
func TestSweepersRemove(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { expires(&off)(cfg); cfg.stays = false }, 1, 2)
	c.split([]uint32{1, 2}, "m")
	k := newTalk(c, 1)
	for i := range 100 {
		k.Send(computeservertest.Command("SET", fmt.Sprintf("%c%03d", "ax"[i%2], i), "7", "PX", fmt.Sprint(100_000*(1+i%4/2))))
		if got := wholeReply(t, k.from); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
	for id := range off {
		off[id].Store(100_000)
	}
	computeservertest.Await(t, "half of the pairs are gone", func() bool { return c.store.Len() == 50 })
	for id, s := range c.servers {
		computeservertest.Await(t, "they were counted", func() bool { return s.core.Count.Swept.Load() >= 25 })
		if n := s.core.Count.Swept.Load(); n != 25 {
			t.Errorf("server %d removed %d pairs", id, n)
		}
	}
}
