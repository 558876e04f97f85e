package ownership

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
)

// View is the newest partition map that this server has seen. Maps of older generations are
// ignored, whichever way they arrive.
//
// In designs that share all keys a change of the map takes effect at once, because a request that
// the former owner still serves is served correctly. In designs whose ranges have owners the map
// says only where requests are sent; the table decides what this server may serve (manager.go,
// table.go).
type View struct {
	env  env.Env
	self uint32
	Any  bool // every server serves the requests that it gets

	newest atomic.Pointer[partition.Map]
	// newest, except that for keys whose move is deferred the server that serves them takes
	// their owner's place
	routed atomic.Pointer[partition.Map]

	mu       env.Mutex
	watchers []env.Event      // set when routed or served changes
	changed  func()           // called when newest changes, unless nil
	since    time.Duration    // when newest came
	served   []partition.Span // here
	kept     []partition.Span // served here although newest gives them to others
	// the same of other servers, as far as known here (engine/seek.go)
	seen []partition.Span
}

// NewView returns the view of a server that has seen no map. With any, the server serves every
// request that it gets.
func NewView(e env.Env, self uint32, any bool) *View {
	return &View{env: e, self: self, Any: any, mu: e.NewMutex()}
}

// Current returns the newest map; nil before the first.
func (o *View) Current() *partition.Map { return o.newest.Load() }

// Route returns the map by which requests are sent; nil before the first.
func (o *View) Route() *partition.Map { return o.routed.Load() }

// Serve sets which keys this server serves, after its table has changed, and which of them it
// serves although the map gives them to others.
func (o *View) Serve(served, kept []partition.Span) {
	o.mu.Lock()
	o.served, o.kept = served, kept
	o.reroute()
	o.mu.Unlock()
	o.wakeAll()
}

// Arrived returns when the newest map came.
func (o *View) Arrived() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since
}

// See sets which other servers serve keys that the map gives to another one.
func (o *View) See(seen []partition.Span) {
	o.mu.Lock()
	o.seen = seen
	o.reroute()
	o.mu.Unlock()
	o.wakeAll()
}

// Unsee records that a server does not serve a key, or, with below, the keys right below it.
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
		o.wakeAll()
	}
}

// reroute updates routed. It forgets servers that were seen to serve keys which are served here
// now, and servers that have left the map. Called under mu.
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

// Generation returns that of the newest map; 0 before the first.
func (o *View) Generation() uint64 {
	if m := o.Current(); m != nil {
		return m.Generation
	}
	return 0
}

// Apply makes m the newest map and returns true, unless the present one is at least as new. m must
// be valid.
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
	o.wakeAll()
	return true
}

// onChange registers f, which is called when the map changes and must not wait. nil ends that.
func (o *View) onChange(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed = f
}

// wakeAll wakes all waiters.
func (o *View) wakeAll() {
	o.mu.Lock()
	watchers := o.watchers
	o.watchers = nil
	o.mu.Unlock()
	for _, w := range watchers {
		w.Set()
	}
}

// Placement says where requests of a key belong.
type Placement uint8

const (
	Here    Placement = iota // at this server
	There                    // at another server
	Unknown                  // there is no map yet
)

// Place returns where requests of key belong by m, and the server.
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

// AwaitOther waits until requests are sent by another map than seen, or this server serves other
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
