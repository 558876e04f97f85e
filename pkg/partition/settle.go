package partition

import (
	"slices"
	"time"
)

// Servers that join, and servers that are chosen to leave, seldom come alone: a pool grows by
// several, a template that changed brings a new server and takes an old one away, an autoscaler
// changes its mind. Planned one by one, ranges move twice, or there and back. So the map waits
// until the members that it should have were the same for a moment. Nothing is lost by that: a
// server that leaves serves until then. An owner that is gone is another matter. Its keys wait, so
// the map changes at once, and takes everything along.

const (
	// Settling is how long the members that a map should have must have been the same before it
	// changes for their sake, if all owners are there. An autoscaler that changes its mind more
	// slowly than that moves ranges each time: it has stabilization windows of its own.
	Settling = 5 * time.Second

	// settlingMost bounds the wait, as a multiple, if the members go on changing.
	settlingMost = 4
)

// settling is what is remembered of members that a map does not have yet.
type settling struct {
	members []uint32      // that the map should have, as of the last step
	changed time.Duration // when they became these
	waits   bool          // the map waits for them to settle
	since   time.Duration // since when
}

// settled returns the members by which the next map is planned: those that it should have, or, as
// long as these may still change, those that it has. Then m says that it waits.
func (v View) settled(members []Server, m *settling) []Server {
	var ids []uint32
	for _, s := range members {
		ids = append(ids, s.ID)
	}
	if !slices.Equal(ids, m.members) {
		m.members, m.changed = ids, v.Now
	}
	present, voluntary := v.present(members)
	since := v.Now
	if m.waits {
		since = m.since
	}
	m.since = since
	m.waits = voluntary && v.Now-m.changed < v.Settle && v.Now-since < settlingMost*v.Settle
	if m.waits {
		return present
	}
	return members
}

// present returns the members that the map has, with those that were chosen to leave and own ranges
// still. It reports whether only servers that join, or were chosen to leave, make these differ from
// the members that the map should have.
func (v View) present(members []Server) (present []Server, voluntary bool) {
	if v.Map == nil {
		return nil, false
	}
	final := v.Map.Final()
	stays := v
	stays.Servers = slices.Clone(v.Servers)
	stays.Servers = slices.DeleteFunc(stays.Servers, func(s Observed) bool {
		_, is := v.Map.Server(s.ID)
		return !is || s.Leaving && !final.owns(s.ID)
	})
	for i := range stays.Servers {
		stays.Servers[i].Leaving = false
	}
	present = stays.members()
	return present, len(present) > 0 && !slices.Equal(present, members) && v.unsuited(final, present) == ""
}
