package partition

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Options of planning.
type Options struct {
	Keys     KeyType
	KeyBytes int // of the longest key, with Bytes; 0 = not known. No boundary is longer.

	// AtomicPrefix is the end of the prefixes that groups of Bytes keys have: no new boundary lies
	// within a group, if it is the same for all maps of the index. It does not end with 0xff. Empty
	// = there are no groups.
	AtomicPrefix string

	// Load is a sample of the requested keys and their rates. If it sums up to TrustedRate for each
	// server, boundaries follow it, and are keys of the sample. Otherwise all servers get equal
	// widths of the key space.
	Load []KeyLoad

	// Tolerance is the excess over its share that a server may keep, in percent of the share.
	Tolerance int

	Separate int // ranges that there may be, counted as by Map.Separate; 0 = MaxSeparate
}

// KeyLoad is a key and the operations a second that it stands for.
type KeyLoad struct {
	Key  []byte
	Rate float64
}

// TrustedRate is the rate of operations a second for each server from which on a sample of load is
// trusted.
const TrustedRate = 10

// Move is one range that changes its owner.
type Move struct {
	Start, End []byte // End is empty at the upper end of the key space
	From, To   uint32
	Epoch      uint64 // of the range under its new owner
}

// String describes the move.
func (m Move) String() string {
	return fmt.Sprintf("%s from server %d to %d", Interval(m.Start, m.End), m.From, m.To)
}

// New returns the first map of an index, of generation 1: one range for each server, in the order
// of their IDs, of equal weight by Options.
func New(index string, servers []Server, o Options) (*Map, error) {
	members, err := sortedMembers(servers)
	if err != nil {
		return nil, err
	}
	measure := o.measure(len(members))
	total := measure.weight(nil, nil)
	m := &Map{Generation: 1, Index: index, Servers: members}
	for i, s := range members {
		start := []byte(nil)
		if i > 0 {
			if start = measure.cut(nil, nil, quota(total, len(members), i), false); start == nil {
				continue // one key exceeds a share; the server gets nothing
			}
			if last := m.Ranges[len(m.Ranges)-1].Start; bytes.Compare(last, start) >= 0 {
				continue
			}
		}
		m.Ranges = append(m.Ranges, Range{Start: start, Owner: s.ID, Epoch: 1})
	}
	return m, m.Validate()
}

// EqualWidth returns the first map of an index, in which every server owns the same width of the
// key space. For Uint64 keys that are spread evenly that is a fair share. Printable Bytes keys lie
// between 0x20 and 0x7e, so most of them go to one or two servers: plan with Load, or use
// ByBoundaries. keyBytes is the length of the longest key, if keys are Bytes; 0 = not known.
func EqualWidth(index string, servers []Server, keys KeyType, keyBytes int) (*Map, error) {
	return New(index, servers, Options{Keys: keys, KeyBytes: keyBytes})
}

// ByBoundaries returns the first map of an index with given boundaries, ascending. The ranges
// between them go to the servers in turn, in the order of their IDs.
func ByBoundaries(index string, servers []Server, boundaries [][]byte) (*Map, error) {
	members, err := sortedMembers(servers)
	if err != nil {
		return nil, err
	}
	m := &Map{Generation: 1, Index: index, Servers: members, Ranges: []Range{{Owner: members[0].ID, Epoch: 1}}}
	for i, b := range boundaries {
		m.Ranges = append(m.Ranges, Range{Start: slices.Clone(b), Owner: members[(i+1)%len(members)].ID, Epoch: 1})
	}
	return m, m.Validate()
}

// Plan returns the map that follows current if the servers are members, and the moves that lead
// there. Equal input gives equal output. The ranges of servers that are gone move, and from each
// remaining server its excess over its share. They go to servers below their share, preferably to
// neighbours. Where there would be too many separate ranges (MaxSeparate), the lightest go to
// neighbours too. Ranges that do not move keep their epochs; the others get the new generation as
// theirs.
//
// Members whose addresses changed make a new generation without moves. If nothing changes at all,
// next is current.
//
// Plan balances at every call. The caller decides before whether an imbalance is worth moving
// ranges.
func Plan(current *Map, members []Server, o Options) (next *Map, moves []Move, err error) {
	if err := current.Validate(); err != nil {
		return nil, nil, fmt.Errorf("plan a partition map: %w", err)
	}
	sorted, err := sortedMembers(members)
	if err != nil {
		return nil, nil, err
	}
	p := newPlan(current, sorted, o)
	p.shedExcess()
	p.assignFree()
	p.unite(cmp.Or(o.Separate, MaxSeparate))
	next = p.result()
	if slices.Equal(next.Servers, current.Servers) && slices.EqualFunc(next.Ranges, current.Ranges, Range.equal) {
		return current, nil, nil
	}
	if err := next.Validate(); err != nil {
		return nil, nil, fmt.Errorf("plan a partition map: %w", err)
	}
	return next, Moves(current, next), nil
}

func (r Range) equal(o Range) bool {
	return r.Owner == o.Owner && r.Epoch == o.Epoch && bytes.Equal(r.Start, o.Start)
}

// Moves returns the ranges whose owners differ between two maps of one index, in key order.
func Moves(old, new *Map) (moves []Move) {
	eachPiece(old, new, func(start, end []byte, was, is Range) {
		if was.Owner == is.Owner {
			return
		}
		if n := len(moves); n > 0 && bytes.Equal(moves[n-1].End, start) && moves[n-1].From == was.Owner && moves[n-1].To == is.Owner {
			moves[n-1].End = end
			return
		}
		moves = append(moves, Move{Start: start, End: end, From: was.Owner, To: is.Owner, Epoch: is.Epoch})
	})
	return moves
}

// eachPiece calls visit with each piece of the key space between boundaries of either map, and the
// ranges that it belongs to.
func eachPiece(old, new *Map, visit func(start, end []byte, was, is Range)) {
	i, j := 0, 0
	start := []byte(nil)
	for i < len(old.Ranges) && j < len(new.Ranges) {
		was, is := old.end(i), new.end(j)
		end := was
		switch {
		case len(was) == 0 || len(is) > 0 && bytes.Compare(is, was) < 0:
			end = is
		}
		visit(start, end, old.Ranges[i], new.Ranges[j])
		if len(end) == 0 {
			return
		}
		if bytes.Equal(end, was) {
			i++
		}
		if bytes.Equal(end, is) {
			j++
		}
		start = end
	}
}

func (o Options) measure(servers int) measure {
	m := o.weighs(servers)
	if o.AtomicPrefix != "" && o.Keys == Bytes {
		return whole{m, []byte(o.AtomicPrefix)}
	}
	return m
}

func (o Options) weighs(servers int) measure {
	w := width{o.Keys, o.KeyBytes}
	if total(o.Load) >= float64(servers*TrustedRate) {
		if l := newLoaded(w, o.Load); l != nil {
			return l
		}
	}
	return w
}

func total(load []KeyLoad) (rate float64) {
	for _, k := range load {
		rate += k.Rate
	}
	return rate
}

func sortedMembers(servers []Server) ([]Server, error) {
	if len(servers) == 0 {
		return nil, errors.New("plan a partition map: there is no server to own anything; keep at least one")
	}
	sorted := slices.Clone(servers)
	slices.SortFunc(sorted, func(a, b Server) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	for i := 1; i < len(sorted); i++ {
		if sorted[i].ID == sorted[i-1].ID {
			return nil, fmt.Errorf("plan a partition map: server ID %d is used twice", sorted[i].ID)
		}
	}
	return sorted, nil
}
