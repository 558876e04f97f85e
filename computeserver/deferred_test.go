package computeserver

import (
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestDeferredMoveUnderLoad: of three servers one is to give a range for which there is no memory.
// Programs at all three write and read its keys meanwhile, and scan across it; the range moves when
// there is memory.
func TestDeferredMoveUnderLoad(t *testing.T) {
	full := &atomic.Bool{}
	c := newCluster(t, config.RoutingOwner, ownersFull(t, full), 1, 2, 3)
	m := c.split([]uint32{1, 2, 3}, "h", "q")
	state := func(id uint32, start string) (ownership.RangeStatus, bool) {
		for _, r := range c.servers[id].core.Ranges() {
			if string(r.Start) == start {
				return r, true
			}
		}
		return ownership.RangeStatus{}, false
	}
	all := []*computeservertest.Conn{c.raw(1), c.raw(2), c.raw(3)}
	for _, r := range all {
		r.Send(computeservertest.Command("SET", "a", "0") + computeservertest.Command("SET", "e", "0") + computeservertest.Command("SET", "k", "0"))
		r.Expect("+OK\r\n+OK\r\n+OK\r\n")
	}
	full.Store(true)
	next := *m
	next.Generation++
	next.Ranges = []partition.Range{m.Ranges[0], {Start: []byte("d"), Owner: 2, Epoch: next.Generation}, m.Ranges[2]}
	c.publish(&next)
	for round := range 5 {
		v := string(rune('1' + round))
		for _, r := range all {
			r.Send(computeservertest.Command("SET", "e", v) + computeservertest.Command("GET", "e") + computeservertest.Command("MGET", "e", "k") + computeservertest.Command("RANGE", "a", "z"))
			r.Expect("+OK\r\n$1\r\n" + v + "\r\n*2\r\n$1\r\n" + v + "\r\n$1\r\n0\r\n*6\r\n$1\r\na\r\n$1\r\n0\r\n$1\r\ne\r\n$1\r\n" + v + "\r\n$1\r\nk\r\n$1\r\n0\r\n")
		}
	}
	computeservertest.Await(t, "server 1 says why", func() bool { r, ok := state(1, "d"); return ok && r.State == ownership.RangeServing && r.PoolFull })
	full.Store(false)
	computeservertest.Await(t, "the range moves", func() bool { r, ok := state(2, "d"); return ok && r.State == ownership.RangeServing && !r.PoolFull })
	for _, r := range all {
		r.Send(computeservertest.Command("GET", "e"))
		r.Expect("$1\r\n5\r\n")
	}
	all[0].Send(computeservertest.Command("SET", "e", "9"))
	all[0].Expect("+OK\r\n")
}
