package envtest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/pkg/partition"
)

// homes are who holds which keys at the homes of indexes: the owners by each map, until it stops.
type homes struct {
	mu      sync.Mutex
	stopped bool
	held    map[string][]*rpcv1.Holding
	asked   int // how often one was asked
}

func (h *homes) holdings(encoded []byte) (held []*rpcv1.Holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	m, err := partition.Unmarshal(encoded)
	if err != nil { // there is none yet
		return nil
	}
	if h.stopped {
		return h.held[m.Index]
	}
	for i := range m.Ranges {
		span := m.Span(i)
		owner, _ := m.Server(span.Owner)
		held = append(held, &rpcv1.Holding{Start: span.Start, End: span.End, Name: owner.Name})
	}
	h.held[m.Index] = held
	return held
}

// set stops handovers, or lets them go on.
func (h *homes) set(stopped bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = stopped
}

func (h *homes) times() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked
}

// TestMovesHoldUpNobody: four indexes, as many as are worked on at once, wait for keys that are not
// handed over. A fifth one is looked at as if they were not there, and their homes are asked a few
// times meanwhile.
func TestMovesHoldUpNobody(t *testing.T) {
	c := newCluster(t)
	h := &homes{held: map[string][]*rpcv1.Holding{}}
	c.fleet.Holdings = h.holdings
	c.start(0)
	var names []string
	for i := range 5 {
		names = append(names, fmt.Sprintf("demo%d", i))
		c.create(index, names[i])
	}
	for _, name := range names {
		c.available(name)
	}
	c.settled(names[4])
	h.set(true)
	swaps := func() (n int) {
		for _, call := range c.fleet.Changes() {
			if strings.HasPrefix(call, "swap ") {
				n++
			}
		}
		return n
	}
	before := swaps()
	for _, name := range names[:4] {
		pool := &dmv1.DMComputePool{}
		c.patch(name+"-compute", pool, func() { pool.Spec.Replicas = 3 })
	}
	c.equal("maps that were changed", 4, func() any { return swaps() - before })
	asked, begun := h.times(), time.Now()
	last := &dmv1.DMIndex{}
	c.patch(names[4], last, func() { last.Spec.Recovery.OnDataLoss = dmv1.OnDataLossRecreate })
	c.eventually("the fifth is looked at", func() string {
		if is := c.index(names[4]); is.Status.ObservedGeneration != last.Generation {
			return fmt.Sprintf("generation %d of %d", is.Status.ObservedGeneration, last.Generation)
		}
		return ""
	})
	t.Logf("the fifth was looked at after %v; homes were asked %d times meanwhile", time.Since(begun), h.times()-asked)
	if n := h.times() - asked; n > 100 {
		t.Errorf("homes were asked %d times before the fifth index was looked at", n)
	}
	h.set(false)
	begun = time.Now()
	c.fleet.HoldingsChanged()
	for _, name := range names[:4] {
		c.eventually("keys of "+name+" have moved", func() string {
			if n := c.differentOwners(name); n != 3 {
				return fmt.Sprintf("%d servers own keys", n)
			}
			return ""
		})
		c.available(name)
	}
	t.Logf("all keys have moved after %v", time.Since(begun))
}
