package dex_test

import (
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
)

// Ranges move beside operations on others: in each phase some are nobody's to serve, and each of
// these goes from client to client meanwhile, with a few operations of its new owner after each
// move. Most of them are cut out of a range that one client has, so that Give divides leaves whose
// other keys are in use, and gives the middle of what it keeps.

const (
	mostMovers = 3  // in a phase
	mostCut    = 14 // ranges that there are before no more are cut
	edge       = 6  // keys at each end of a range, of which operations are in some of the runs
)

// atEdges reports whether operations are about the keys at the ends of ranges, and half of them
// delete: leaves on both sides of an end are merged, and split, all the time.
func (o *owners) atEdges() bool { return o.seed%4 >= 2 }

// movers are the ranges that move in the phase that begins.
func (o *owners) movers() (all []*owned) {
	for range o.r.IntN(mostMovers + 1) {
		g := o.ranges[o.r.IntN(len(o.ranges))]
		if g.by == nil || g.moving {
			continue
		}
		if n := g.high - g.low; len(o.ranges) < mostCut && n >= 8 && o.r.IntN(4) > 0 {
			g = o.cut(g, g.low+o.r.Uint64N(n/2)&^1, g.high-o.r.Uint64N(n/2)&^1)
		}
		g.moving = true
		all = append(all, g)
	}
	return all
}

// cut makes the keys from low up to high of g a range of their own. Both are even: of two keys
// beside each other each belongs to one of its owner's sessions.
func (o *owners) cut(g *owned, low, high uint64) *owned {
	i := slices.Index(o.ranges, g)
	middle := &owned{start: g.start, end: g.end, low: low, high: high, by: g.by, epoch: g.epoch}
	parts := []*owned{middle}
	if low > g.low {
		middle.start = simKey(low)
		parts = []*owned{{start: g.start, end: middle.start, low: g.low, high: low, by: g.by, epoch: g.epoch}, middle}
	}
	if high < g.high {
		middle.end = simKey(high)
		parts = append(parts, &owned{start: middle.end, end: g.end, low: high, high: g.high, by: g.by, epoch: g.epoch})
	}
	o.ranges = slices.Replace(o.ranges, i, i+1, parts...)
	return middle
}

// moveBeside moves g a few times, and lets its owner use it in between.
func (o *owners) moveBeside(g *owned, r *rand.Rand) error {
	for range 2 + r.IntN(3) {
		if len(o.living) == 0 {
			return nil
		}
		to := o.living[r.IntN(len(o.living))]
		if g.by == to {
			to = o.living[r.IntN(len(o.living))]
		}
		if err := o.moveTo(g, to); err != nil {
			return err
		}
		c := g.by
		if c == nil || c.p.Dead() {
			return nil // who notices its death makes it an orphan
		}
		o.counts.beside++
		if _, err := o.in(c, "use what has moved", func() error {
			s, err := c.x.Session()
			if err != nil {
				return err
			}
			for range 10 {
				number := g.low + r.Uint64N(g.high-g.low)
				if o.atEdges() {
					number = o.nearEdge(g, r)
				}
				if err := o.operate(s, simKey(number), r); err != nil {
					return err
				}
			}
			return s.Close()
		}); err != nil {
			return err
		}
	}
	return nil
}

// nearEdge is the number of a key at one of the ends of g.
func (o *owners) nearEdge(g *owned, r *rand.Rand) uint64 {
	n := r.Uint64N(min(edge, g.high-g.low))
	if r.IntN(2) == 0 {
		return g.low + n
	}
	return g.high - 1 - n
}

// remove deletes a key.
func (o *owners) remove(s index.Session, key []byte) error {
	m := o.model[string(key)]
	o.counts.ops++
	m.begin("")
	if err := s.Delete(key); err != nil && !errors.Is(err, index.ErrNotFound) {
		return err
	}
	m.ack()
	return nil
}
