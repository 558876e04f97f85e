package resp

import (
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// quiet is a connection of a server whose network is left out.
func (of *cluster) quiet(id uint32) *conn {
	s := of.servers[id].resp
	c := &conn{s: s, account: account{of: &s.budget}}
	c.login, _ = s.users.Anyone()
	return c
}

// feed runs a pipeline and returns its replies.
func (c *conn) feed(pipeline []byte) ([]byte, error) {
	c.in, c.begin, c.out = pipeline, 0, c.out[:0]
	err := c.run()
	c.settle()
	c.tally.Publish(c.s.front, 0)
	return c.out, err
}

// allocationsOf is how often f allocates: the least that some runs come to, since what other
// goroutines allocate meanwhile counts as well.
func allocationsOf(f func()) float64 {
	least := testing.AllocsPerRun(200, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(200, f))
	}
	return least
}

// TestHotPathAllocatesNothing counts what GET and SET of a pipeline allocate, the index's own doing
// apart.
func TestHotPathAllocatesNothing(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	conn := c.quiet(1)
	if out, err := conn.feed([]byte(computeservertest.Command("SET", "key", "value"))); err != nil || string(out) != "+OK\r\n" {
		t.Fatalf("SET gave %q, %v", out, err)
	}
	gets := []byte("")
	for range 32 {
		gets = append(gets, computeservertest.Command("GET", "key")...)
	}
	allocations := allocationsOf(func() {
		if out, err := conn.feed(gets); err != nil || len(out) != 32*len("$5\r\nvalue\r\n") {
			t.Fatalf("%q, %v", out, err)
		}
	})
	if allocations != 0 {
		t.Errorf("32 GETs allocate %v times", allocations)
	}
	// The index of these tests copies key and value of a SET and may grow its tree; nothing else
	// may allocate.
	set := []byte(computeservertest.Command("SET", "key", "value"))
	if allocations := allocationsOf(func() { _, _ = conn.feed(set) }); allocations > 2 {
		t.Errorf("a SET allocates %v times beyond the index's two", allocations-2)
	}
}

// TestModifyingAllocatesNothing: a command that reads a pair and changes it allocates no more than
// a SET of what it leaves. The index of these tests copies key and value.
func TestModifyingAllocatesNothing(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	conn := c.quiet(1)
	for _, command := range [][]string{
		{"INCR", "n"}, {"INCRBY", "n", "-7"}, {"DECRBY", "n", "3"}, {"GETSET", "k", "value"}, {"SET", "k", "value", "GET"}, {"SET", "k", "value", "IFEQ", "value"},
		{"SETRANGE", "k", "2", "abc"}, {"DELIFEQ", "k", "nope"}, {"SET", "k", "value", "IFNE", "value"},
	} {
		one := []byte(computeservertest.Command(command...))
		if allocations := allocationsOf(func() { _, _ = conn.feed(one) }); allocations > 2 {
			t.Errorf("%q allocates %v times beyond the index's two", command, allocations-2)
		}
	}
}

// TestExpiringAllocatesNothing: where pairs may expire, a command allocates no more than a SET does
// where they do not.
func TestExpiringAllocatesNothing(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, pairsExpire, 1)
	c.split([]uint32{1})
	conn := c.quiet(1)
	for _, command := range [][]string{
		{"SET", "k", "value", "EX", "100"}, {"GET", "k"}, {"TTL", "k"}, {"EXPIRE", "k", "200"}, {"EXPIRE", "k", "100", "GT"}, {"GETEX", "k", "PX", "100000"}, {"SET", "k", "value", "XX", "KEEPTTL"},
		{"SETEX", "k", "100", "value"}, {"SETNX", "k", "value"}, {"INCR", "n"}, {"PERSIST", "k"}, {"SET", "k", "value"}, {"DEL", "none"},
		{"HSET", "h", "a", "value"}, {"HSET", "h", "a", "other", "b", "more"}, {"HSETNX", "h", "a", "no"}, {"HGET", "h", "a"}, {"HGETALL", "h"}, {"HLEN", "h"}, {"HEXISTS", "h", "z"}, {"HINCRBY", "h", "n", "1"}, {"HDEL", "h", "z"},
	} {
		one := []byte(computeservertest.Command(command...))
		if allocations := allocationsOf(func() { _, _ = conn.feed(one) }); allocations > 2 {
			t.Errorf("%q allocates %v times beyond the index's two", command, allocations-2)
		}
	}
}

func pairsExpire(l *limits) { l.Expiry = config.ExpiryEnabled }

func BenchmarkPipeline(b *testing.B) {
	for _, command := range []string{"PING", "GET", "SET", "SET EX", "HSET", "HGET", "ZADD", "ZRANGE"} {
		b.Run(command, func(b *testing.B) {
			var adjust func(*limits)
			if command == "SET EX" || command[0] == 'H' {
				adjust = pairsExpire
			}
			if command[0] == 'Z' {
				adjust = func(l *limits) { l.Expiry, l.SortedSets = config.ExpiryEnabled, true }
			}
			c := newCluster(b, config.RoutingOwner, adjust, 1)
			c.split([]uint32{1})
			conn := c.quiet(1)
			var pipeline []byte
			for i := range 32 {
				switch command {
				case "PING":
					pipeline = append(pipeline, computeservertest.Command("PING")...)
				case "GET":
					pipeline = append(pipeline, computeservertest.Command("GET", fmt.Sprint("key", i))...)
				case "SET EX":
					pipeline = append(pipeline, computeservertest.Command("SET", fmt.Sprint("key", i), "value", "EX", "100")...)
				case "HSET": // one of ten fields
					pipeline = append(pipeline, computeservertest.Command("HSET", fmt.Sprint("key", i/10), fmt.Sprint("field", i%10), "value")...)
				case "HGET":
					pipeline = append(pipeline, computeservertest.Command("HGET", fmt.Sprint("key", i/10), fmt.Sprint("field", i%10))...)
				case "ZADD": // another score each
					pipeline = append(pipeline, computeservertest.Command("ZINCRBY", "set", "1", fmt.Sprint("member", i))...)
				case "ZRANGE":
					for n := range 4 {
						if _, err := conn.feed([]byte(computeservertest.Command("ZADD", "set", "1", fmt.Sprint("member", 4*i+n)))); err != nil {
							b.Fatal(err)
						}
					}
					pipeline = append(pipeline, computeservertest.Command("ZRANGE", "set", "0", "99")...)
				default:
					pipeline = append(pipeline, computeservertest.Command("SET", fmt.Sprint("key", i), "value")...)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.feed(pipeline); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/command")
		})
	}
}
