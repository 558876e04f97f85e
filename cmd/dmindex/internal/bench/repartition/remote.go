package repartition

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	sdk "github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
	"github.com/dmindex/dmindex/pkg/partition"
)

// remoteLooks is how often a run at a remote index asks its servers what they hold, once the map
// has changed.
const remoteLooks = 20 * time.Millisecond

// ScaleNow is what a run at a remote index says when somebody is to scale it.
const ScaleNow = "scale it to"

// doRemote does the run at an index that is there, with nothing in it but, if it is loaded, the
// records. Somebody else scales it, when the run says so.
func (r *Run) doRemote(ctx context.Context) (*Result, error) {
	if !r.Loaded {
		if err := r.load(ctx); err != nil {
			return nil, err
		}
	}
	c, err := sdk.Connect(ctx, *r.Remote)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r.From = len(serversOf(c.Map()))
	return r.measure(ctx, c, func(ctx context.Context) (local.Scaled, error) {
		before := c.Map() // what follows may be quick
		r.say("%s %d compute servers", ScaleNow, r.From+1)
		return awaitScaled(ctx, c, before, r.From+1)
	})
}

// serversOf are the servers that have ranges.
func serversOf(m *partition.Map) (ids []uint32) {
	for _, r := range m.Ranges {
		if !slices.Contains(ids, r.Owner) {
			ids = append(ids, r.Owner)
		}
	}
	return ids
}

// awaitScaled waits until n servers hold what the map gives them, and nothing is left to be done.
// Time counts from the first map on that moves anything of what is known.
func awaitScaled(ctx context.Context, c *sdk.Client, known *partition.Map, n int) (s local.Scaled, err error) {
	var began time.Time
	tick := time.NewTicker(remoteLooks)
	defer tick.Stop()
	for {
		m := c.Map()
		if moves := partition.Moves(known, m); len(moves) > 0 {
			if began.IsZero() {
				began = time.Now()
			}
			s.Stages = append(s.Stages, local.Stage{At: time.Since(began), Moves: moves})
		}
		known = m
		if !began.IsZero() && len(m.Planned) == 0 && len(serversOf(m)) == n && allHeld(m, c.Status(ctx)) {
			s.Took = time.Since(began)
			return s, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, fmt.Errorf("wait for %d compute servers that own ranges: there are %d: %w", n, len(serversOf(m)), ctx.Err())
		}
	}
}

// allHeld reports whether every server serves what a map gives it, and has nothing else.
func allHeld(m *partition.Map, all []sdk.ServerStatus) bool {
	for _, s := range all {
		if s.Reply == nil || s.Reply.MapGeneration != m.Generation {
			return false
		}
		if slices.ContainsFunc(s.Reply.Ranges, func(r *rpcv1.OwnedRange) bool { return r.State != "Serving" }) {
			return false
		}
		for i := range m.Ranges {
			if span := m.Span(i); span.Owner == s.Server.ID && !covers(s.Reply.Ranges, span.Start, span.End) {
				return false
			}
		}
	}
	return true
}

// covers reports whether ranges, which ascend, have all keys from start up to end.
func covers(ranges []*rpcv1.OwnedRange, start, end []byte) bool {
	for _, r := range ranges {
		if bytes.Compare(r.Start, start) > 0 {
			return false
		}
		if len(r.End) == 0 {
			return true
		}
		if bytes.Compare(r.End, start) > 0 {
			start = r.End
		}
		if len(end) > 0 && bytes.Compare(start, end) >= 0 {
			return true
		}
	}
	return false
}
