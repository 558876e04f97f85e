package partition

import (
	"math/bits"
	"slices"
)

// A piece is a range on its way through a plan.
type piece struct {
	start, end []byte
	owner      uint32
	epoch      uint64
	weight     uint64
	member     int // position of the owner in the plan; free = it has none yet
}

const free = -1

// plan is a map that is being rebalanced: its pieces, in key order.
type plan struct {
	current   *Map
	members   []Server
	measure   measure
	tolerance int // percent of a share
	total     uint64
	fine      uint64 // less than that is not moved

	pieces []piece
	load   []uint64 // by member: the weight of its pieces
}

// quota returns the weight of the first i of n fair shares of total.
func quota(total uint64, n, i int) uint64 {
	hi, lo := bits.Mul64(total, uint64(i))
	q, _ := bits.Div64(hi, lo, uint64(n))
	return q
}

// share returns the fair share of the member at position i. Shares differ by at most 1 and sum up
// to the total.
func (p *plan) share(i int) uint64 {
	return quota(p.total, len(p.members), i+1) - quota(p.total, len(p.members), i)
}

// excess returns the excess over its share of the member at position i; 0 within the tolerance.
func (p *plan) excess(i int) uint64 {
	share := p.share(i)
	if p.load[i] <= share || p.load[i]-share <= max(p.fine, share/100*uint64(p.tolerance)) {
		return 0
	}
	return p.load[i] - share
}

// deficit returns how far the member at position i is below its share.
func (p *plan) deficit(i int) uint64 {
	if share := p.share(i); share > p.load[i] && share-p.load[i] > p.fine {
		return share - p.load[i]
	}
	return 0
}

func newPlan(current *Map, members []Server, o Options) *plan {
	p := &plan{current: current, members: members, measure: o.measure(len(members)), tolerance: o.Tolerance, load: make([]uint64, len(members))}
	p.total = p.measure.weight(nil, nil)
	if _, ok := o.weighs(len(members)).(loaded); ok {
		p.fine = fineWeight
	}
	for i := range current.Ranges {
		s := current.Span(i)
		c := piece{s.Start, s.End, s.Owner, s.Epoch, p.measure.weight(s.Start, s.End), free}
		at, ok := slices.BinarySearchFunc(members, s.Owner, func(m Server, id uint32) int { return int(int64(m.ID) - int64(id)) })
		if ok {
			c.member = at
			p.load[at] += c.weight
		}
		p.pieces = append(p.pieces, c)
	}
	return p
}

// shedExcess takes from every member its excess over its share: at the ends of its ranges for
// neighbours that have room, then from its highest keys downwards for any member with room.
func (p *plan) shedExcess() {
	for i := range p.members {
		p.toNeighbours(i)
	}
	for i := range p.members {
		over := p.excess(i)
		for at := len(p.pieces) - 1; at >= 0 && over > p.fine; {
			if p.pieces[at].member != i || p.pieces[at].weight == 0 {
				at-- // there is nothing to move
				continue
			}
			high := true
			part, ok := p.split(at, over, high)
			if !ok {
				high = false
				part, ok = p.split(at, over, high)
			}
			if ok && p.pieces[part].weight > 0 {
				over -= min(over, p.pieces[part].weight)
				p.assign(part, free)
			}
			// nothing more can be cut off; if nothing was, one key exceeds the share
			if part == at {
				at--
			}
		}
	}
}

// toNeighbours moves a member's excess to members whose ranges adjoin its own, the largest part
// first.
func (p *plan) toNeighbours(i int) {
	for over := p.excess(i); over > p.fine; {
		best, to, high, most := -1, 0, false, uint64(0)
		for at, c := range p.pieces {
			if c.member != i || c.weight == 0 {
				continue
			}
			for _, up := range []bool{true, false} {
				if n := p.neighbour(at, up); n >= 0 && n != i {
					if w := min(over, p.deficit(n)); w > most && (w >= c.weight || p.measure.cut(c.start, c.end, w, up) != nil) {
						best, to, high, most = at, n, up, w
					}
				}
			}
		}
		if best < 0 {
			return
		}
		at, ok := p.split(best, most, high)
		if !ok || p.pieces[at].weight == 0 {
			return
		}
		over -= min(over, p.pieces[at].weight)
		p.assign(at, to)
	}
}

// neighbour returns the member that has the keys above the piece at a position, or below; free if
// none has.
func (p *plan) neighbour(at int, above bool) int {
	if above {
		at++
	} else {
		at--
	}
	if at < 0 || at >= len(p.pieces) {
		return free
	}
	return p.pieces[at].member
}

// assign gives the piece at a position to a member, or to none.
func (p *plan) assign(at, to int) {
	c := &p.pieces[at]
	if c.member != free {
		p.load[c.member] -= c.weight
	}
	if c.member = to; to != free {
		p.load[to] += c.weight
	}
}

// split cuts w off the weight of the piece at a position, at its upper or lower end, and returns
// the position of the part that was cut off: the whole piece if it weighs no more than w.
func (p *plan) split(at int, w uint64, high bool) (part int, ok bool) {
	c := p.pieces[at]
	if c.weight <= w {
		return at, true
	}
	key := p.measure.cut(c.start, c.end, w, high)
	if key == nil {
		return at, false
	}
	low, up := c, c
	low.end, up.start = key, key
	low.weight, up.weight = p.measure.weight(c.start, key), p.measure.weight(key, c.end)
	p.pieces[at] = low
	p.pieces = slices.Insert(p.pieces, at+1, up)
	if high {
		at++
	}
	return at, true
}

// assignFree hands the free pieces, in key order, to members below their shares: to neighbours if
// they have room, else filling one member after the other. Where one key exceeds a neighbour's
// room, the neediest member gets it. A piece that a member shed returns to it only if no other has
// room.
func (p *plan) assignFree() {
	for at := 0; at < len(p.pieces); at++ {
		for p.pieces[at].member == free {
			to, high := p.receiver(at)
			if to < 0 {
				p.assign(at, p.lightest())
				continue
			}
			room := p.deficit(to)
			part, ok := p.split(at, room, high)
			if n := p.neediest(p.pieces[at].owner); !ok && n >= 0 && p.deficit(n) > room {
				to, high, room = n, false, p.deficit(n)
				part, ok = p.split(at, room, high)
			}
			if !ok { // one key exceeds the room: with it, but no more
				rest := p.pieces[at].weight - room
				if part, ok = p.split(at, rest, !high); ok && high {
					part++
				} else if ok {
					part--
				} else {
					part = at
				}
			}
			p.assign(part, to)
		}
	}
}

// littleRoom is the part of the total below which no piece is made for a neighbour.
const littleRoom = 64

// receiver returns the member that gets the free piece at a position, or a part of it, and the end
// that it gets: the neighbour with most room (the lower one if equal, or if it has room for all),
// else the neediest member; -1 if none has room.
func (p *plan) receiver(at int) (to int, high bool) {
	c := p.pieces[at]
	best, room := free, uint64(0)
	for _, up := range []bool{false, true} {
		n := p.neighbour(at, up)
		if n == free || p.members[n].ID == c.owner {
			continue
		}
		r := p.deficit(n)
		if r > 0 && r >= c.weight {
			return n, up
		}
		if r > room && r >= p.total/littleRoom {
			best, room, high = n, r, up
		}
	}
	if best != free {
		return best, high
	}
	return p.neediest(c.owner), false
}

// neediest returns the member that is farthest below its share, the first of equals; -1 if none is
// below. So consecutive pieces go to the same member while it has room, and are cut only at its
// share.
func (p *plan) neediest(not uint32) int {
	best := -1
	for i, m := range p.members {
		if r := p.deficit(i); m.ID != not && r > 0 && (best < 0 || r > p.deficit(best)) {
			best = i
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

// result puts the pieces together. Adjacent pieces of the same owner and epoch become one range. If
// there are more than half of MaxRanges, adjacent ones of the same owner do, under a new epoch.
func (p *plan) result() *Map {
	for at := range p.pieces {
		if c := &p.pieces[at]; c.owner != p.members[c.member].ID {
			c.owner, c.epoch = p.members[c.member].ID, p.current.Generation+1
		}
	}
	next := &Map{Generation: p.current.Generation + 1, Index: p.current.Index, Servers: p.members}
	for _, c := range p.pieces {
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
