package partition

import (
	"slices"
	"time"
)

// Memory is what the caller of Step keeps from one step to the next. It affects only how soon load
// moves ranges, and a change goes on that stands still: without it, as after a restart, that takes
// longer. It is a value; each step returns a new one.
type Memory struct {
	generation uint64        // of the map that was seen last
	since      time.Duration // when it was seen first

	loaded      bool // there was load under this map
	skewed      bool // a server exceeds its bound, and another map would be better
	skewedSince time.Duration

	loads  []known // ascending by ID: the last reports of servers
	lapses []lapse // owners that have no lease and do not answer; see Lapse

	settling settling
}

// lapse says since when an owner has been seen without a lease.
type lapse struct {
	id    uint32
	since time.Duration
}

type known struct {
	id   uint32
	at   time.Duration
	load Load
}

// How long reports are remembered, and how long conditions must last.
const (
	// LoadRemembered is how long a server's last report of its load is used when it reports no
	// more.
	LoadRemembered = 2 * time.Minute

	// SkewPatience is how long a server must exceed its bound, and another map be better, before
	// ranges move.
	SkewPatience = 15 * time.Second

	// FirstPatience is SkewPatience under a map that divides the keys by their width alone, whose
	// age does not count.
	FirstPatience = 2 * time.Second

	watchSkew  = 5 * time.Second // see Actions.Watch: while a server exceeds its bound
	watchFirst = 5 * time.Second // before there is load, under a map by width

	// leveled is how far from its share a server may remain when ranges move because of load, in
	// percent.
	leveled = 10
)

// Load is the recent load of a server.
type Load struct {
	Rate float64   // operations a second
	Keys []KeyLoad // a sample of them; their rates sum up to Rate
}

// Rebalance says when load is a reason to move ranges.
type Rebalance struct {
	// MaxShare is the load above which ranges move from a server, in percent of the mean of all
	// servers. 0: never.
	MaxShare int

	// MinInterval is the least age of a partition map before ranges move because of load.
	MinInterval time.Duration
}

// MapAge returns for how long the partition map has been unchanged, as far as is remembered.
func (m Memory) MapAge(now time.Duration) time.Duration { return now - m.since }

// next returns the memory after the view v.
func (m Memory) next(v View) Memory {
	if generation := v.Map.generation(); m.generation != generation {
		m.generation, m.since = generation, v.Now
		m.skewed, m.loaded = false, false
	}
	loads := slices.DeleteFunc(slices.Clone(m.loads), func(k known) bool { return v.Now-k.at > LoadRemembered })
	for _, s := range v.Servers {
		if s.Load == nil {
			continue
		}
		at, ok := slices.BinarySearchFunc(loads, s.ID, func(k known, id uint32) int { return int(int64(k.id) - int64(id)) })
		if !ok {
			loads = slices.Insert(loads, at, known{})
		}
		loads[at] = known{s.ID, v.Now, *s.Load}
	}
	m.loads = loads
	var lapses []lapse
	for _, s := range v.Servers {
		if v.lapses(s) {
			since, is := m.lapseOf(s.ID)
			if !is {
				since = v.Now
			}
			lapses = append(lapses, lapse{s.ID, since})
		}
	}
	m.lapses = lapses
	return m
}

// lapseOf returns since when an owner has been without a lease, if it is.
func (m Memory) lapseOf(id uint32) (since time.Duration, is bool) {
	for _, l := range m.lapses {
		if l.id == id {
			return l.since, true
		}
	}
	return 0, false
}

func (m *Map) generation() uint64 {
	if m == nil {
		return 0
	}
	return m.Generation
}

// sample returns the load of all owners, by their last reports. An owner without a report counts as
// average. It returns nil if there is no report at all.
func (m Memory) sample(current *Map) (all []KeyLoad) {
	rate := 0.0
	for _, k := range m.loads {
		all = append(all, k.load.Keys...)
		rate += k.load.Rate
	}
	if len(m.loads) == 0 {
		return nil
	}
	rate /= float64(len(m.loads))
	for _, s := range current.Servers {
		var starts [][]byte
		for _, r := range current.Ranges {
			if r.Owner == s.ID {
				starts = append(starts, r.Start)
			}
		}
		if _, ok := slices.BinarySearchFunc(m.loads, s.ID, func(k known, id uint32) int { return int(int64(k.id) - int64(id)) }); ok {
			continue
		}
		for _, start := range starts {
			all = append(all, KeyLoad{start, rate / float64(len(starts))})
		}
	}
	return all
}

// Shares returns the operations a second on the ranges of each server of the map, in its order.
func (m *Map) Shares(load []KeyLoad) []float64 {
	shares := make([]float64, len(m.Servers))
	for _, k := range load {
		owner := m.Owner(k.Key)
		if at, ok := slices.BinarySearchFunc(m.Servers, owner, func(s Server, id uint32) int { return int(int64(s.ID) - int64(id)) }); ok {
			shares[at] += k.Rate
		}
	}
	return shares
}
