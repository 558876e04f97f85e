package engine

import (
	"context"
	"slices"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// run runs operations as RESP does, or as a stream does.
func (w *ownWorld) run(p *simenv.Process, c *Engine, ops []*rpcv1.Operation, forwarded bool, limit time.Duration) []*rpcv1.Outcome {
	if w.OneIn(2) {
		return c.Do(ops, forwarded, limit, 0)
	}
	s := &simParts{w: w, out: make([]*rpcv1.Outcome, len(ops)), all: p.NewEvent()}
	out, waits := c.DoParts(ops, forwarded, limit, 0, s)
	for i, o := range out {
		if !slices.Contains(waits, i) {
			if s.out[i] != nil {
				w.Report("%v is answered by its lane and by the worker", ops[i])
			}
			s.out[i] = o
		}
	}
	for slices.Contains(s.out, nil) {
		s.all.Wait(env.Forever) // the program waits for its limit
	}
	return s.out
}

// simParts takes the outcomes of lanes. It admits most of them, and some streams end meanwhile.
type simParts struct {
	w   *ownWorld
	out []*rpcv1.Outcome
	all env.Event
}

func (s *simParts) Park() bool { return !s.fails(20) }
func (s *simParts) Leave()     {}
func (s *simParts) Gone() bool { return s.fails(50) }

func (*simParts) Context() context.Context { return context.Background() }

// fails happens in one of n cases, but not where every key has to be served within a time.
func (s *simParts) fails(n int) bool {
	return s.w.begun && !s.w.quiet && !s.w.calm && s.w.OneIn(n)
}

func (s *simParts) Answered(at []int, out []*rpcv1.Outcome) {
	for _, i := range at {
		if s.out[i] == nil {
			s.out[i] = out[i]
		}
	}
	s.all.Set()
}
