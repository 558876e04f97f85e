package ownership

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
)

// View is which keys this server is in charge of: the newest partition map that it saw. Maps
// of older generations are passed over, whatever way they come.
//
// With the designs that share everything a change of the map takes effect at once, since a request
// that is still served by the former owner is served rightly. With designs whose ranges have owners
// the map says where requests go; whether this server may serve them is another matter
// (manager.go, table.go).
type View struct {
	env  env.Env
	self uint32
	Any  bool // whoever gets a request serves it

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
	// deferred, served by other servers, as far as this one knows (engine/seek.go)
	seen []partition.Span
}

// NewView is of a server that has seen no map. With any, a server serves every request that it
// gets.
func NewView(e env.Env, self uint32, any bool) *View {
	return &View{env: e, self: self, Any: any, mu: e.NewMutex()}
}

// Current is the newest map; nil before the first.
func (o *View) Current() *partition.Map { return o.newest.Load() }

// Route is the map by which requests are placed; nil before the first.
func (o *View) Route() *partition.Map { return o.routed.Load() }

// Serve says which keys this server serves, after its table has changed, and to which it keeps
// although the map gives them to others.
func (o *View) Serve(served, kept []partition.Span) {
	o.mu.Lock()
	o.served, o.kept = served, kept
	o.reroute()
	o.mu.Unlock()
	o.poke()
}

// Arrived returns when the newest map came.
func (o *View) Arrived() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since
}

// See says which other servers serve keys that the map gives to another one.
func (o *View) See(seen []partition.Span) {
	o.mu.Lock()
	o.seen = seen
	o.reroute()
	o.mu.Unlock()
	o.poke()
}

// Unsee says that a server does not serve a key, or below, the keys right below it.
func (o *View) Unsee(server uint32, key []byte, below bool) {
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
func (o *View) reroute() {
	if m := o.newest.Load(); m != nil {
		o.seen = slices.DeleteFunc(slices.Clone(o.seen), func(s partition.Span) bool {
			_, there := m.Server(s.Owner)
			return !there || slices.ContainsFunc(o.served, func(own partition.Span) bool {
				_, _, both := keyrange.Intersect(s.Start, s.End, own.Start, own.End)
				return both
			})
		})
		o.routed.Store(m.Overlay(slices.Concat(o.kept, o.seen)))
	}
}

// Generation is that of the newest map, 0 before the first.
func (o *View) Generation() uint64 {
	if m := o.Current(); m != nil {
		return m.Generation
	}
	return 0
}

// Apply makes m the newest map and says so, unless one at least as new is there. m must be valid.
func (o *View) Apply(m *partition.Map) bool {
	o.mu.Lock()
	if m.Generation <= o.Generation() {
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
func (o *View) onChange(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed = f
}

// poke lets all who wait look again.
func (o *View) poke() {
	o.mu.Lock()
	watchers := o.watchers
	o.watchers = nil
	o.mu.Unlock()
	for _, w := range watchers {
		w.Set()
	}
}

// Placement is where a key's requests belong.
type Placement uint8

const (
	Here    Placement = iota // this server is in charge
	There                    // another server is
	Unknown                  // there is no map yet
)

// Place says where the requests of key belong under m, and whose they are.
func (o *View) Place(m *partition.Map, key []byte) (Placement, uint32) {
	switch {
	case o.Any:
		return Here, o.self
	case m == nil:
		return Unknown, 0
	}
	if owner := m.Owner(key); owner != o.self {
		return There, owner
	}
	return Here, o.self
}

// AwaitOther waits until requests are placed by another map than seen, or this server serves other
// keys, for at most limit.
func (o *View) AwaitOther(seen *partition.Map, limit time.Duration) {
	o.mu.Lock()
	if o.Route() != seen {
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
