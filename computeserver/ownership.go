package computeserver

import (
	"bytes"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
)

// ownership is which keys this server is in charge of: the newest partition map that it saw. Maps
// of older generations are passed over, whatever way they come.
//
// With the designs that share everything a change of the map takes effect at once, since a request
// that is still served by the former owner is served rightly. With designs whose ranges have owners
// the map says where requests go; whether this server may serve them is another matter
// (range_manager.go, served.go).
type ownership struct {
	env  env.Env
	self uint32
	any  bool // whoever gets a request serves it

	newest atomic.Pointer[partition.Map]
	// newest, but for keys whose move is deferred: the server that serves them stands in their
	// owner's place
	routed atomic.Pointer[partition.Map]

	mu       env.Mutex
	watchers []env.Event      // set when routed changes, or what this server serves
	changed  func()           // unless nil: called when newest changes
	since    time.Duration    // when newest came
	served   []partition.Span // here
	kept     []partition.Span // deferred: this server's, whatever newest says
	// deferred, served by other servers, as far as this one knows (seek.go)
	seen []partition.Span
}

func newOwnership(e env.Env, self uint32, any bool) *ownership {
	return &ownership{env: e, self: self, any: any, mu: e.NewMutex()}
}

// current is the newest map; nil before the first.
func (o *ownership) current() *partition.Map { return o.newest.Load() }

// route is the map by which requests are placed; nil before the first.
func (o *ownership) route() *partition.Map { return o.routed.Load() }

// serve says which keys this server serves, after its table has changed, and to which it keeps
// although the map gives them to others.
func (o *ownership) serve(served, kept []partition.Span) {
	o.mu.Lock()
	o.served, o.kept = served, kept
	o.reroute()
	o.mu.Unlock()
	o.poke()
}

// arrived returns when the newest map came.
func (o *ownership) arrived() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since
}

// see says which other servers serve keys that the map gives to another one.
func (o *ownership) see(seen []partition.Span) {
	o.mu.Lock()
	o.seen = seen
	o.reroute()
	o.mu.Unlock()
	o.poke()
}

// unsee says that a server does not serve a key, or below, the keys right below it.
func (o *ownership) unsee(server uint32, key []byte, below bool) {
	o.mu.Lock()
	before := len(o.seen)
	o.seen = slices.DeleteFunc(slices.Clone(o.seen), func(s partition.Span) bool {
		_, has := spanOf([]partition.Span{s}, key, below)
		return has && s.Owner == server
	})
	changed := len(o.seen) < before
	if changed {
		o.reroute()
	}
	o.mu.Unlock()
	if changed {
		o.poke()
	}
}

// reroute makes routed follow. Another server that was seen to serve keys which are served here
// now, or that has left the map, is forgotten. Called under mu.
func (o *ownership) reroute() {
	if m := o.newest.Load(); m != nil {
		o.seen = slices.DeleteFunc(slices.Clone(o.seen), func(s partition.Span) bool {
			_, there := m.Server(s.Owner)
			return !there || slices.ContainsFunc(o.served, func(own partition.Span) bool {
				_, _, both := keyrange.Intersect(s.Start, s.End, own.Start, own.End)
				return both
			})
		})
		o.routed.Store(overlay(m, slices.Concat(o.kept, o.seen)))
	}
}

// overlay returns m with other owners of some keys; the first of spans that holds a key counts.
func overlay(m *partition.Map, spans []partition.Span) *partition.Map {
	if len(spans) == 0 {
		return m
	}
	starts := make([][]byte, 0, len(m.Ranges)+2*len(spans))
	for _, r := range m.Ranges {
		starts = append(starts, r.Start)
	}
	for _, s := range spans {
		starts = append(starts, s.Start)
		if len(s.End) > 0 {
			starts = append(starts, s.End)
		}
	}
	slices.SortFunc(starts, bytes.Compare)
	out := &partition.Map{Generation: m.Generation, Index: m.Index, Servers: m.Servers, Planned: m.Planned}
	for _, start := range slices.CompactFunc(starts, bytes.Equal) {
		r := m.Ranges[m.At(start)]
		r.Start = start
		if i := slices.IndexFunc(spans, func(s partition.Span) bool {
			return keyrange.Contains(s.Start, s.End, start)
		}); i >= 0 {
			r.Owner = spans[i].Owner
		}
		if n := len(out.Ranges); n == 0 || out.Ranges[n-1].Owner != r.Owner || out.Ranges[n-1].Epoch != r.Epoch {
			out.Ranges = append(out.Ranges, r)
		}
	}
	return out
}

// generation is that of the newest map, 0 before the first.
func (o *ownership) generation() uint64 {
	if m := o.current(); m != nil {
		return m.Generation
	}
	return 0
}

// apply makes m the newest map and says so, unless one at least as new is there. m must be valid.
func (o *ownership) apply(m *partition.Map) bool {
	o.mu.Lock()
	if m.Generation <= o.generation() {
		o.mu.Unlock()
		return false
	}
	o.newest.Store(m)
	o.since = o.env.Now()
	o.reroute()
	changed := o.changed
	o.mu.Unlock()
	if changed != nil {
		changed()
	}
	o.poke()
	return true
}

// onChange makes f be called when the map changes; it must not wait. nil ends that.
func (o *ownership) onChange(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed = f
}

// poke lets all who wait look again.
func (o *ownership) poke() {
	o.mu.Lock()
	watchers := o.watchers
	o.watchers = nil
	o.mu.Unlock()
	for _, w := range watchers {
		w.Set()
	}
}

// placement is where a key's requests belong.
type placement uint8

const (
	placeHere    placement = iota // this server is in charge
	placeThere                    // another server is
	placeUnknown                  // there is no map yet
)

// place says where the requests of key belong under m, and whose they are.
func (o *ownership) place(m *partition.Map, key []byte) (placement, uint32) {
	switch {
	case o.any:
		return placeHere, o.self
	case m == nil:
		return placeUnknown, 0
	}
	if owner := m.Owner(key); owner != o.self {
		return placeThere, owner
	}
	return placeHere, o.self
}

// awaitOther waits until requests are placed by another map than seen, or this server serves other
// keys, for at most limit.
func (o *ownership) awaitOther(seen *partition.Map, limit time.Duration) {
	o.mu.Lock()
	if o.route() != seen {
		o.mu.Unlock()
		return
	}
	w := o.env.NewEvent()
	o.watchers = append(o.watchers, w)
	o.mu.Unlock()
	if w.Wait(limit) {
		return
	}
	o.mu.Lock()
	for i := range o.watchers {
		if o.watchers[i] == w {
			o.watchers = append(o.watchers[:i], o.watchers[i+1:]...)
			break
		}
	}
	o.mu.Unlock()
}
