package smart

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// halfLease is the lease of clients that are fenced on one server first.
const halfLease = 80 * time.Millisecond

// halfFence is a client that stands still in the middle of a change whose swap compares a word of
// the root, on one server, with an address on another one. It is fenced on the server of the
// address, where its lease ends first. Meanwhile another client takes out what the word leads to,
// and waits for its memory. When that is there, the word gets the same value again, for something
// else. Then the first client goes on.
type halfFence struct {
	name   string
	node   bool                                          // the word leads to a node; else to a leaf
	change func(s *Session, key func(byte) []byte) error // of the client that stands still
}

var halfFences = []halfFence{
	{"a node is replaced", true, func(s *Session, key func(byte) []byte) error { return s.Insert(key(200), nil) }},
	{"a prefix is split", true, func(s *Session, key func(byte) []byte) error {
		k := key(200)
		k[1] = 1
		return s.Insert(k, nil)
	}},
	{"a leaf is split", false, func(s *Session, key func(byte) []byte) error { return s.Insert(key(200), nil) }},
	{"a leaf is taken out", false, func(s *Session, key func(byte) []byte) error { return s.Delete(key(0)) }},
	{"a leaf moves", false, func(s *Session, key func(byte) []byte) error { return s.Update(key(0), make([]byte, 64)) }},
}

// TestSwapsOfHalfFencedClients: whatever the change, and wherever it stands still, its swap does
// not take effect: no answered change of others is undone.
func TestSwapsOfHalfFencedClients(t *testing.T) {
	if !invariants.Enabled {
		t.Fatal("the stop is in Pause: -tags invariants")
	}
	for _, x := range halfFences {
		t.Run(x.name, func(t *testing.T) {
			staged := 0
			for skip := 0; ; skip++ {
				repeats, more := x.run(t, skip)
				if !more {
					break
				}
				if repeats {
					staged++
				}
			}
			if staged == 0 {
				t.Error("the word never had its value again: this tests nothing")
			}
		})
	}
}

// run lets the client stand still after skip places. repeats: the word had its value again. more is
// false if the change was over before.
func (x *halfFence) run(t *testing.T, skip int) (repeats, more bool) {
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 10_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 2, Lease: halfLease})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s, after %d places: %v", x.name, skip, err)
		}
	}
	must(w.Run(func(p *simenv.Process) {
		d := openIn(t, c, p, 0)
		o := other{t: t, p: p, clientOf: d, has: map[byte]bool{}}
		word := o.prepare(x.node)
		pc, ready, begin, over := w.NewProcess("half fenced"), p.NewEvent(), p.NewEvent(), p.NewEvent()
		var half *clientOf
		var stop *poolsim.Stop
		pc.Go("main", func() {
			half = openIn(t, c, pc, 0)
			for last := range o.has {
				_, err := half.Lookup(o.key(last), nil)
				must(err)
			}
			ready.Set()
			begin.Wait(env.Forever)
			_ = x.change(half.Session, o.key)
			stop.End()
			over.Set()
		})
		ready.Wait(env.Forever)
		p.Sleep(3 * halfLease)
		half.late.Server = word.Addr().Server() // from here on its renewals there have no answer
		p.Sleep(halfLease / 2)
		stop = poolsim.NewStop(pc, skip)
		half.Session.Env = stop
		begin.Set()
		if more = stop.Await(); !more {
			return
		}
		pc.Freeze()
		o.takeOut(x.node)
		repeats = o.repeat(x.node, word)
		half.late.Server = 0
		pc.Thaw()
		stop.GoOn()
		over.Wait(halfLease)

		late := openIn(t, c, p, 0)
		for last := range byte(199) {
			_, err := late.Lookup(o.key(last), nil)
			if is := err == nil; is != o.has[last] {
				t.Errorf("after %d places: key %d is there: %v, want %v (%v)", skip, last, is, o.has[last], err)
			}
		}
		_, err := late.Check()
		must(err)
	}))
	return repeats, more
}

// other is the client that goes on.
type other struct {
	*clientOf
	t     *testing.T
	p     *simenv.Process
	first byte          // of all keys
	has   map[byte]bool // the last bytes of keys
}

func (o *other) key(last byte) []byte { return []byte{o.first, 0, 0, 0, 0, 0, 0, last} }

func (o *other) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *other) insert(last byte) {
	o.t.Helper()
	o.must(o.Insert(o.key(last), nil))
	o.has[last] = true
}

// delete deletes a key that may have gone already.
func (o *other) delete(last byte) {
	o.t.Helper()
	if err := o.Delete(o.key(last)); !errors.Is(err, index.ErrNotFound) {
		o.must(err)
	}
	delete(o.has, last)
}

// word is what the slot of the root has.
func (o *other) word() art.Slot {
	o.t.Helper()
	o.Session.Begin()
	defer o.Session.End()
	_, err := o.Seek(o.key(0))
	o.must(err)
	w, err := o.ReadWord(&o.Path[0])
	o.must(err)
	return w
}

// prepare lets a slot of the root lead to a full node, or to a leaf, on the other server.
func (o *other) prepare(node bool) art.Slot {
	for {
		n := byte(art.FirstType.Slots())
		if !node {
			n = 2
		}
		for last := range n {
			o.insert(n - 1 - last)
		}
		if !node {
			o.delete(1) // the node, which lies elsewhere, is replaced by its only leaf
		}
		if w := o.word(); w.Addr().Server() != o.RootAddr().Server() && w.Inner() == node {
			return w
		}
		for last := range n {
			o.delete(last)
		}
		if o.first++; o.first == 100 {
			o.t.Fatal("all lies on one server")
		}
	}
}

// takeOut takes out what the slot leads to, and waits for the memory.
func (o *other) takeOut(node bool) {
	o.t.Helper()
	before := o.Pool.Reclaimed()
	if node { // and what took its place
		for last := byte(art.FirstType.Slots()); last < 14; last++ {
			o.insert(last)
		}
		before++
	} else {
		o.delete(0)
		o.insert(0)
		o.delete(0)
	}
	until(o.t, o.p, "memory that comes back", func() bool { return o.Pool.Reclaimed() > before })
}

// repeat tries to get the same word into the slot, for something else, and reports whether it did.
func (o *other) repeat(node bool, word art.Slot) bool {
	if node {
		for last := byte(3); last < 14; last++ {
			o.delete(last)
		}
		o.insert(100)
		return o.word() == word
	}
	for last := byte(50); last < 90; last += 2 {
		o.insert(last)
		o.insert(last + 1)
		o.delete(last)
		if o.word() == word {
			return true
		}
		o.delete(last + 1)
	}
	return false
}
