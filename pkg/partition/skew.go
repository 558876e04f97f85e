package partition

import (
	"bytes"
	"fmt"
	"slices"
)

// skew is the load of the busiest server in relation to the mean.
type skew struct {
	server  uint32
	percent float64 // of the mean; 100 is even
}

// skewOf returns the skew of a map under a load. ok is false if the load is too small to tell.
func skewOf(m *Map, load []KeyLoad) (s skew, ok bool) {
	sum := total(load)
	if len(m.Servers) < 2 || sum < float64(len(m.Servers)*TrustedRate) {
		return s, false
	}
	for i, rate := range m.Shares(load) {
		if percent := 100 * rate / sum * float64(len(m.Servers)); percent > s.percent {
			s = skew{m.Servers[i].ID, percent}
		}
	}
	return s, true
}

// level returns the map that evens out the load, if that is due: for a while one server has
// exceeded its bound and another map would have been markedly better, the map is old enough, and
// all members report their load. Moves without a gain would be repeated forever. One look is not
// enough for either condition: it sees one sample, and a map made for a sample suits that one
// better than the next.
//
// A map by width was made by nobody who knew a load, as the first one of an index is. The first
// load divides it after FirstPatience, whatever its age: text keys would all lie on one server
// until then. If that load is even, the first one that is skewed does. The map is another one then.
func (v View) level(members []Server, a *Actions) (target *Map, reason string, err error) {
	m := &a.Memory
	better := false
	defer func() { m.skewed = m.skewed && better }()
	if v.Rebalance.MaxShare == 0 || len(v.Map.Planned) > 0 || !v.allSay(members) {
		return nil, "", nil
	}
	load := m.sample(v.Map)
	is, ok := skewOf(v.Map, load)
	m.loaded = m.loaded || ok
	patience, interval, watch := SkewPatience, v.Rebalance.MinInterval, watchSkew
	if v.Map.ByWidth(v.options(nil, 0)) {
		patience, interval, watch = FirstPatience, 0, FirstPatience
		if !m.loaded {
			a.Watch = watchFirst
		}
	}
	if !ok || is.percent <= float64(v.Rebalance.MaxShare) {
		return nil, "", nil
	}
	a.Watch = watch
	target, moves, err := Plan(v.Map, members, v.options(load, leveled))
	if err != nil || len(moves) == 0 {
		return nil, "", err
	}
	will, _ := skewOf(target, load)
	if is.percent-will.percent < max(leveled, (is.percent-100)/4) {
		return nil, "", nil // one key exceeds a share: no map helps
	}
	better = true
	if !m.skewed {
		m.skewed, m.skewedSince = true, v.Now
	}
	if v.Now-m.skewedSince < patience || v.Now-m.since < interval || v.Owned && len(v.busy(false)) > 0 {
		return nil, "", nil
	}
	return target, fmt.Sprintf("compute server %s had %.0f%% of the mean load", v.Map.name(is.server), is.percent), nil
}

// ByWidth reports whether the map divides the keys by width alone, among several servers, as New
// does where it is told no load.
func (m *Map) ByWidth(o Options) bool {
	if len(m.Servers) < 2 || len(m.Ranges) > len(m.Servers) {
		return false
	}
	o.Load = nil
	even, err := New(m.Index, m.Servers, o)
	return err == nil && slices.EqualFunc(m.Ranges, even.Ranges, func(a, b Range) bool { return a.Owner == b.Owner && bytes.Equal(a.Start, b.Start) })
}

// allSay reports whether every member reports its load, so that the load of all is known.
func (v View) allSay(members []Server) bool {
	said := 0
	for _, s := range v.Servers {
		if s.Load != nil && v.belongs(s) {
			said++
		}
	}
	return said == len(members)
}

func (v View) options(load []KeyLoad, tolerance int) Options {
	return Options{Keys: v.Keys, KeyBytes: v.KeyBytes, AtomicPrefix: v.AtomicPrefix, Load: load, Tolerance: tolerance, Separate: v.Separate}
}
