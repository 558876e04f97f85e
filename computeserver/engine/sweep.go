package engine

import (
	"bytes"
	"errors"
	"time"

	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/pkg/partition"
)

// A pair that has expired takes memory until somebody meets it. The sweeper meets them all: it goes
// round the ranges that the partition map gives to this server, also where every server serves
// every key. So one server meets a pair in a round.
//
// A step is a piece of a scan (scan.scanLocal), which removes what has expired. So the sweeper does
// to the index what a scan of a program may do at any moment, and nothing else: a pair that was
// written again stays, and a range that this server does not serve is left alone.
//
// What bounds it:
//
//   - A step holds one session, for one piece, and ends it early when a handover waits for that.
//   - It does nothing while requests wait for a session, and when the server drains.
//   - There are sweepPause between steps. Where a quarter of the pairs of a piece, or more, had
//     expired, the sweeper goes on earlier, but rests three times as long as the step took. So it
//     uses a quarter of one session at most.
//   - A round takes sweepRound at least.
const (
	sweepPause = 100 * time.Millisecond
	sweepRest  = time.Millisecond // the least
	sweepRound = time.Second
)

// sweeper is the sweeper of a server. It belongs to one goroutine.
type sweeper struct {
	c     *Engine
	from  []byte // where the next step begins
	scan  scan   // of each step
	heads pairs  // of sorted sets, of the step under way
}

// Sweep removes pairs that have expired, until End. It is for indexes whose pairs may expire.
func (c *Engine) Sweep() {
	w := newSweeper(c)
	for !c.stopped.Load() {
		c.stopSweep.Wait(w.step())
	}
}

func newSweeper(c *Engine) *sweeper {
	w := &sweeper{c: c, scan: scan{c: c, sweeps: true}}
	w.scan.visit = func(key, value []byte, is expiry.Mark) bool {
		if is.Type == expiry.SortedSet {
			w.heads.add(key, value, is)
		}
		return true
	}
	return w
}

// step goes over one piece, and returns how long the sweeper rests then.
func (w *sweeper) step() time.Duration {
	c, s := w.c, &w.scan
	if c.ends.Load() || c.Blocked() != nil || c.Sessions.Waiters() > 0 {
		return sweepPause
	}
	m := c.View.Current()
	span, ok := ownSpan(m, c.Self, w.from)
	if !ok {
		w.from = w.from[:0]
		return sweepRound
	}
	s.rest.Start, s.rest.End = append(s.rest.Start[:0], span.Start...), span.End
	if bytes.Compare(w.from, span.Start) > 0 {
		s.rest.Start = append(s.rest.Start[:0], w.from...)
	}
	s.rest.KeysOnly, s.rest.Wait, s.ended = true, sweepPause, false
	began := c.Env.Now()
	w.heads.clear()
	err := s.scanLocal(m, s.fixNearEnd(s.rest))
	c.sweepHeads(&w.heads)
	took := c.Env.Now() - began
	pairs, expired := s.read.len(), len(s.passed)
	c.Count.Swept.Add(uint64(expired))
	switch {
	case errors.Is(err, errOverloaded), errors.Is(err, errNotOpen): // it goes on from here
	case err != nil || s.ended || s.empty(): // after an error the rest waits for the next round
		if w.from = append(w.from[:0], span.End...); len(w.from) == 0 {
			return sweepRound
		}
	default:
		w.from = append(w.from[:0], s.rest.Start...)
	}
	if expired > 0 && 4*expired >= pairs {
		return min(max(3*took, sweepRest), sweepPause)
	}
	return sweepPause
}

// ownSpan returns the first range of a server that has keys from a key on.
func ownSpan(m *partition.Map, server uint32, from []byte) (partition.Span, bool) {
	if m == nil {
		return partition.Span{}, false
	}
	for i := m.At(from); i < len(m.Ranges); i++ {
		if span := m.Span(i); span.Owner == server {
			return span, true
		}
	}
	return partition.Span{}, false
}
