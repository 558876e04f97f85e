package computeserver

import (
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// ownership is which keys this server is in charge of: the newest partition map that it saw. Maps of older generations are
// passed over, whatever way they come.
//
// With the designs that share everything a change of the map takes effect at once, since a request that is still served by the
// former owner is served rightly. With designs whose ranges have owners the map says where requests go; whether this server
// may serve them is another matter (holder.go, served.go).
type ownership struct {
	env  env.Env
	self uint32
	any  bool // whoever gets a request serves it

	newest atomic.Pointer[partition.Map]

	mu       env.Mutex
	watchers []env.Event // set when newest changes, or what this server serves
	changed  func()      // unless nil: called when newest changes
}

func newOwnership(e env.Env, self uint32, any bool) *ownership {
	return &ownership{env: e, self: self, any: any, mu: e.NewMutex()}
}

// current is the newest map; nil before the first.
func (o *ownership) current() *partition.Map { return o.newest.Load() }

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

// awaitOther waits until the newest map is another one than seen, or this server serves other keys, for at most limit.
func (o *ownership) awaitOther(seen *partition.Map, limit time.Duration) {
	o.mu.Lock()
	if o.current() != seen {
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
