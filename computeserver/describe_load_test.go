package computeserver

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestDescribeSaysTheLoad asks two servers.
func TestDescribeSaysTheLoad(t *testing.T) {
	j := computeservertest.NewClock()
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) { cfg.Env = j }, 1, 2)
	c.split([]uint32{1, 2}, "m")
	r := c.raw(1)
	for range 50 {
		r.Send(computeservertest.Command("SET", "apple", "red") + computeservertest.Command("GET", "apple") + computeservertest.Command("GET", "banana") + computeservertest.Command("GET", "zebra"))
		r.Expect("+OK\r\n$3\r\nred\r\n$-1\r\n$-1\r\n")
	}
	j.By.Add(int64(2 * time.Second)) // so that nobody has to wait for a look at the rate
	for id, want := range map[uint32]string{1: "apple banana", 2: "zebra"} {
		reply, err := c.servers[id].calls.Describe((&caller{}).newContext(t.Context()), &rpcv1.DescribeComputeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		keys := ""
		for _, k := range reply.Load.Keys {
			keys += " " + string(k.Key)
		}
		if keys != " "+want || reply.Load.OperationsPerSecond <= 0 {
			t.Errorf("server %d: keys%s, %.1f a second", id, keys, reply.Load.OperationsPerSecond)
		}
	}
}
