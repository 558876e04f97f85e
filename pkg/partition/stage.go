package partition

import (
	"bytes"
	"slices"

	"github.com/dmindex/dmindex/pkg/keyrange"
)

// In a design whose ranges have owners, keys do not move with the map. The map says who should own
// them, and the holdings at the home memory server say who does. A new map moves ranges in stages,
// so that each server hands over to, or takes over from, one other at a time, and only a few
// ranges. The next stage waits until its servers are done with the last one. Ranges of servers that
// are gone move at once. The rest of a change is stored in the map, so that the next stage is not
// planned anew.
//
// A server may keep keys that the map gives to another one, for want of memory or of holdings, and
// serve them for as long as that lasts. That does not stop a change for good: after Stalled the
// next stage does not wait for these keys. So a leaving server has no keys by the map in the end,
// and is deleted. When it ends it gives its grants as a whole, which needs no memory and no
// holding.

// together bounds the ranges that one stage moves from one server to another. Keys of all of them
// wait until each was written back and taken.
const together = 4

// Holding is a range of keys and the compute server that holds it, by the home memory server.
type Holding struct {
	Start, End []byte // an empty End is the upper end of the key space
	Pod        string // of the holder; empty if that is not known
	Orphan     bool   // the holder has ended
	Settled    bool   // the holder has replayed the logs of earlier ones
}

// stage returns the next map on the way from current to target, and its moves. gone reports whether
// a server need not be waited for. Leaving servers stay in the map while they own something, and
// then while they hold something: if there is no memory to give a range to its new owner they still
// serve it, and other servers get their address from the map. So does a server that holds something
// and was taken for gone. It returns nil if everything left has to wait; waits then names a server
// that it waits for.
func (v View) stage(target *Map, gone func(id uint32) bool) (next *Map, moves []Move, waits string) {
	busy := v.busy(v.Memory.MapAge(v.Now) >= Stalled)
	type pair struct{ from, to uint32 }
	var chosen []Move
	count := map[pair]int{}
	for _, m := range Moves(v.Map, target) {
		way := pair{m.From, m.To}
		switch {
		case gone(m.From):
		case count[way] > 0 && count[way] < together:
			count[way]++
		case busy[m.From] || busy[m.To]:
			if waits == "" {
				who := m.From
				if busy[m.To] {
					who = m.To
				}
				waits = v.Map.name(who)
			}
			continue
		default:
			busy[m.From], busy[m.To] = true, true
			count[way]++
		}
		chosen = append(chosen, m)
	}
	hidden := v.hidden(gone)
	if len(chosen) == 0 && waits != "" && len(hidden) == 0 {
		return nil, nil, waits
	}
	next = &Map{Generation: v.Map.Generation + 1, Index: v.Map.Index}
	eachPiece(v.Map, target, func(start, end []byte, was, is Range) {
		r := Range{Start: start, Owner: was.Owner, Epoch: was.Epoch}
		if was.Owner == is.Owner || slices.ContainsFunc(chosen, func(m Move) bool { return m.covers(start) }) {
			r.Owner, r.Epoch = is.Owner, is.Epoch
		}
		if n := len(next.Ranges); n > 0 && next.Ranges[n-1].Owner == r.Owner && next.Ranges[n-1].Epoch == r.Epoch {
			return
		}
		next.Ranges = append(next.Ranges, r)
	})
	for _, m := range Moves(next, target) {
		next.Planned = append(next.Planned, Planned{m.Start, m.End, m.To})
	}
	next.Servers = slices.Clone(target.Servers)
	for _, s := range append(hidden, v.Map.Servers...) {
		stays := next.owns(s.ID) || v.holds(s.Name) && !gone(s.ID)
		at, is := slices.BinarySearchFunc(next.Servers, s.ID, func(s Server, id uint32) int { return int(int64(s.ID) - int64(id)) })
		if stays && !is {
			next.Servers = slices.Insert(next.Servers, at, s)
		}
	}
	if slices.Equal(next.Servers, v.Map.Servers) && len(chosen) == 0 && len(next.Planned) == len(v.Map.Planned) {
		return v.Map, nil, waits
	}
	return next, chosen, waits
}

// hidden returns the living servers that hold something and are not in the map: they were away for
// so long that their ranges went to others, and came back before these had them. Other servers know
// their address by the map alone, so this waits for no range.
func (v View) hidden(gone func(id uint32) bool) (servers []Server) {
	for _, s := range v.Servers {
		if _, known := v.Map.Server(s.ID); !known && v.holds(s.Pod) && !gone(s.ID) {
			servers = append(servers, s.server())
		}
	}
	return servers
}

func (m Move) covers(key []byte) bool {
	return keyrange.Contains(m.Start, m.End, key)
}

// busy returns the servers that are not done with the map: owners by the map that do not hold their
// keys, settled, and holders of keys that it gives to others. With stalled, keys that are served by
// a living holder make nobody busy.
func (v View) busy(stalled bool) map[uint32]bool {
	busy := map[uint32]bool{}
	for i := range v.Map.Ranges {
		s := v.Map.Span(i)
		at, name := s.Start, v.Map.name(s.Owner)
		ended := false
		for _, h := range v.Holdings {
			if ended || len(h.End) > 0 && bytes.Compare(h.End, at) <= 0 || len(s.End) > 0 && bytes.Compare(h.Start, s.End) >= 0 {
				continue
			}
			others := h.Pod != name && !h.Orphan
			kept := others && stalled && h.Settled && h.Pod != ""
			if bytes.Compare(at, h.Start) < 0 || !kept && (h.Pod != name || h.Orphan || !h.Settled) {
				busy[s.Owner] = true
			}
			if others && !kept {
				for _, o := range v.Map.Servers {
					busy[o.ID] = busy[o.ID] || o.Name == h.Pod
				}
			}
			at, ended = h.End, len(h.End) == 0
		}
		if !ended && keyrange.Before(at, s.End) {
			busy[s.Owner] = true
		}
	}
	return busy
}

// holds reports whether a living server holds anything.
func (v View) holds(pod string) bool {
	return slices.ContainsFunc(v.Holdings, func(h Holding) bool { return h.Pod == pod && !h.Orphan })
}
