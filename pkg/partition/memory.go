package partition

import (
	"slices"
	"time"
)

// Memory is what whoever runs Step remembers from one step to the next. Nothing depends on it but
// how soon load is a reason to move ranges: without it, as after a restart, that takes longer. A
// value; steps make a new one.
type Memory struct {
	generation uint64        // of the map that was seen last
	since      time.Duration // when it was seen first

	skewed      bool // somebody has more than it may, and another map would be better
	skewedSince time.Duration

	loads  []known // ascending by ID: what servers said last
	lapses []lapse // owners that have no lease and do not answer; see Lapse
}

// lapse is since when an owner has been seen without a lease.
type lapse struct {
	id    uint32
	since time.Duration
}

type known struct {
	id   uint32
	at   time.Duration
	load Load
}

// How long things are remembered, and how long they must last.
const (
	// LoadRemembered is how long what a server said of its load stands for it when it says nothing
	// any more.
	LoadRemembered = 2 * time.Minute

	// SkewPatience is how long a server must have more than its share, and another map be better,
	// before ranges move for it.
	SkewPatience = 15 * time.Second

	// leveled is how far from its share a server may stay when ranges move because of load, in
	// percent.
	leveled = 10
)

// Load is what a server did of late.
type Load struct {
	Rate float64   // operations a second
	Keys []KeyLoad // a sample of them; together they come to Rate
}

// Rebalance says when load is a reason to move ranges.
type Rebalance struct {
	// MaxShare is how much of the load a server may have, in percent of the mean of all; above it
	// ranges move. 0: never.
	MaxShare int

	// MinInterval is how long a partition map stays as it is, at least, before ranges move because
	// of load.
	MinInterval time.Duration
}

// MapAge is for how long the partition map has been what it is, as far as is remembered.
func (m Memory) MapAge(now time.Duration) time.Duration { return now - m.since }

// next is the memory after what is seen in v.
func (m Memory) next(v View) Memory {
	if generation := v.Map.generation(); m.generation != generation {
		m.generation, m.since = generation, v.Now
		m.skewed = false
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

// lapseOf says since when an owner has been without a lease, if it is.
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

// sample is the load of all owners: as they say it, or said it of late; one that nothing is known
// of is taken for average. nil if nothing is known at all.
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

// Shares are the operations a second that each server of a map, in its order, is asked for by its
// ranges.
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
