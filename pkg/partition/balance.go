package partition

import (
	"bytes"
	"math/bits"
	"slices"
	"sort"
)

// A piece is a range on its way through a plan.
type piece struct {
	start, end []byte
	owner      uint32
	epoch      uint64
	weight     uint64
}

// plan is a map that is being rebalanced: pieces that stay, and pieces that look for an owner.
type plan struct {
	current *Map
	members []Server
	measure measure
	total   uint64

	kept []([]piece) // by member, in key order
	load []uint64    // by member: the weight of what it keeps
	free []piece     // without an owner
}

// quota is the weight of the first i of n fair shares of total.
func quota(total uint64, n, i int) uint64 {
	hi, lo := bits.Mul64(total, uint64(i))
	q, _ := bits.Div64(hi, lo, uint64(n))
	return q
}

// share is the fair share of the member at position i. Shares differ by at most 1 and sum up to the total.
func (p *plan) share(i int) uint64 {
	return quota(p.total, len(p.members), i+1) - quota(p.total, len(p.members), i)
}

func newPlan(current *Map, members []Server, measure measure) *plan {
	p := &plan{
		current: current, members: members, measure: measure, total: measure.weight(nil, nil),
		kept: make([][]piece, len(members)), load: make([]uint64, len(members)),
	}
	for i := range current.Ranges {
		s := current.Span(i)
		c := piece{s.Start, s.End, s.Owner, s.Epoch, measure.weight(s.Start, s.End)}
		at, ok := slices.BinarySearchFunc(members, s.Owner, func(m Server, id uint32) int { return int(int64(m.ID) - int64(id)) })
		if !ok {
			p.free = append(p.free, c)
			continue
		}
		p.kept[at] = append(p.kept[at], c)
		p.load[at] += c.weight
	}
	return p
}

// shed takes from every member what it has above its share, from its highest keys downwards.
func (p *plan) shed() {
	for i := range p.members {
		share, kept := p.share(i), p.kept[i]
		for at := len(kept) - 1; at >= 0 && p.load[i] > share; at-- {
			c := kept[at]
			if c.weight == 0 {
				continue // moving it would help nobody
			}
			if over := p.load[i] - share; c.weight > over {
				low, high, ok := p.split(c, c.weight-over)
				if !ok {
					break
				}
				kept[at], c = low, high
			} else {
				kept = slices.Delete(kept, at, at+1)
			}
			p.load[i] -= c.weight
			p.free = append(p.free, c)
		}
		p.kept[i] = kept
	}
	sort.Slice(p.free, func(a, b int) bool { return bytes.Compare(p.free[a].start, p.free[b].start) < 0 })
}

// split cuts c where w of its weight lies below.
func (p *plan) split(c piece, w uint64) (low, high piece, ok bool) {
	key := p.measure.cut(c.start, c.end, w)
	if key == nil {
		return c, piece{}, false
	}
	low, high = c, c
	low.end, high.start = key, key
	low.weight, high.weight = p.measure.weight(c.start, key), p.measure.weight(key, c.end)
	return low, high, true
}

// give hands the free pieces, in key order, to members below their shares, filling one after the other. A piece that a member
// shed goes back to it only if nobody has room.
func (p *plan) give() {
	for i := 0; i < len(p.free); i++ {
		c := p.free[i]
		to := p.neediest(c.owner)
		if to < 0 {
			to = p.lightest()
		} else if room := p.share(to) - p.load[to]; c.weight > room {
			if low, high, ok := p.split(c, room); ok {
				c = low
				p.free = slices.Insert(p.free, i+1, high)
			}
		}
		if c.owner != p.members[to].ID {
			c.owner, c.epoch = p.members[to].ID, p.current.Generation+1
		}
		p.kept[to] = append(p.kept[to], c)
		p.load[to] += c.weight
	}
}

// neediest is the member with most room below its share, the first of equals; -1 if none has any. Two pieces in a row thus go
// to the same member while it has room, and a cut is needed only at its share.
func (p *plan) neediest(not uint32) int {
	best, room := -1, uint64(0)
	for i, m := range p.members {
		if r := p.share(i); m.ID != not && r > p.load[i] && r-p.load[i] > room {
			best, room = i, r-p.load[i]
		}
	}
	return best
}

func (p *plan) lightest() int {
	best := 0
	for i := range p.members {
		if p.load[i] < p.load[best] {
			best = i
		}
	}
	return best
}

// result puts the pieces together again. Neighbours of the same owner and epoch become one range; when there would be more
// than half of MaxRanges, neighbours of the same owner do, under a new epoch.
func (p *plan) result() *Map {
	all := slices.Concat(p.kept...)
	sort.Slice(all, func(a, b int) bool { return bytes.Compare(all[a].start, all[b].start) < 0 })
	next := &Map{Generation: p.current.Generation + 1, Index: p.current.Index, Servers: p.members}
	for _, c := range all {
		if n := len(next.Ranges); n > 0 && next.Ranges[n-1].Owner == c.owner && next.Ranges[n-1].Epoch == c.epoch {
			continue
		}
		next.Ranges = append(next.Ranges, Range{Start: c.start, Owner: c.owner, Epoch: c.epoch})
	}
	if len(next.Ranges) > MaxRanges/2 {
		next.Ranges = joined(next.Ranges, next.Generation)
	}
	return next
}

func joined(ranges []Range, epoch uint64) []Range {
	out := ranges[:0]
	for _, r := range ranges {
		if n := len(out); n > 0 && out[n-1].Owner == r.Owner {
			out[n-1].Epoch = epoch
			continue
		}
		out = append(out, r)
	}
	return out
}
