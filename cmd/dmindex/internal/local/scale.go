package local

import (
	"context"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/partition"
)

// scaleLooks is how often Scale looks what has to be done next. The operator is told by watches.
const scaleLooks = 10 * time.Millisecond

// Scaled says how a change of the compute servers went.
type Scaled struct {
	// from the first new map until the servers hold what the last one gives them
	Took   time.Duration
	Stages []Stage // in their order
}

// Stage is one new map.
type Stage struct {
	At    time.Duration // since the first
	Moves []partition.Move
}

// Scale does the operator's part when the first n compute servers are to have all ranges: what
// partition.Step says, until nothing is left to do. One call at a time, while Run has the servers
// ready; the design's ranges must have owners.
func (l *Local) Scale(ctx context.Context, n int) (s Scaled, err error) {
	if n < 1 || n > len(l.members) {
		return s, fmt.Errorf("scale to %d compute servers: there are 1 to %d", n, len(l.members))
	}
	began := time.Now()
	tick := time.NewTicker(scaleLooks)
	defer tick.Stop()
	v := partition.View{Index: identity, Keys: partition.KeyType(l.config.KeyType), AtomicPrefix: l.config.AtomicPrefix, Desired: n, Owned: true}
	for {
		v.Now = time.Since(began)
		if err := l.observe(&v, n); err != nil {
			return s, err
		}
		a, err := partition.Step(v)
		if err != nil {
			return s, err
		}
		v.Memory = a.Memory
		switch {
		case a.Swap != nil:
			encoded, err := a.Swap.Marshal(nil)
			if err != nil {
				return s, err
			}
			if err := l.attached[0].Control.SwapMap(v.Map.Generation, a.Swap.Generation, encoded, openLimit); err != nil {
				return s, fmt.Errorf("change the partition map: %w", err)
			}
			s.Stages = append(s.Stages, Stage{time.Since(began), a.Moves})
		case a.Waiting == "":
			s.Took = time.Since(began)
			return s, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, fmt.Errorf("scale to %d compute servers: %s: %w", n, a.Waiting, ctx.Err())
		}
	}
}

// observe reads what partition.Step wants to know.
func (l *Local) observe(v *partition.View, n int) error {
	generation, encoded, err := l.attached[0].Control.Map(0, 0, openLimit)
	if err == nil && generation > 0 {
		v.Map, err = partition.Unmarshal(encoded)
	}
	if err != nil {
		return fmt.Errorf("read the partition map: %w", err)
	}
	held, err := l.attached[0].Control.Holdings(openLimit)
	if err != nil {
		return fmt.Errorf("read who holds what: %w", err)
	}
	v.Holdings = nil
	for _, h := range held {
		v.Holdings = append(v.Holdings, partition.Holding{Start: h.Start, End: h.End, Pod: h.Name, Orphan: h.Fenced, Settled: len(h.Inherits) == 0})
	}
	v.Servers = nil
	for i, m := range l.members {
		if i >= n && v.Map != nil {
			if _, owns := v.Map.Server(m.ID); !owns {
				continue // it has gone, or has not come yet
			}
		}
		v.Servers = append(v.Servers, partition.Observed{ID: m.ID, Pod: m.Name, RPC: m.RPC, RESP: m.RESP, Ready: true, Answered: true, Identity: identity,
			Leaving: i >= n})
	}
	return nil
}
