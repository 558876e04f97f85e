// Package combinetest has what tests of write combining share, for designs whose leaves have many
// keys: sessions of one client whose changes a lock's holder makes with its own.
package combinetest

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// World is a calm simulated world with one memory server and an index of one client.
type World struct {
	t       *testing.T
	What    string // errors begin with it
	Cluster *poolsim.Cluster
	Process *simenv.Process
	Index   index.Index
	S       []index.Session
	Model   map[string]string // what the index has
}

// Run runs body in a world with n sessions of the index that open opens.
func Run(t *testing.T, o poolsim.Options, open func(*pool.Pool) (index.Index, error), n int, body func(w *World)) {
	t.Helper()
	e := simenv.New(simenv.Options{Seed: 1})
	o.Servers = 1
	c, err := poolsim.New(e, o)
	w := &World{t: t, What: "combined", Cluster: c, S: make([]index.Session, n), Model: map[string]string{}}
	w.must(err)
	w.must(e.Run(func(p *simenv.Process) {
		pl, err := c.Open(p)
		w.must(err)
		w.Process = p
		w.Index, err = open(pl)
		w.must(err)
		for i := range w.S {
			w.S[i], err = w.Index.Session()
			w.must(err)
		}
		body(w)
	}))
}

func (w *World) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", w.What, err)
	}
}

// WhileHeld lets the others wait, in their order, while s has the lock of the leaf with the key.
func WhileHeld(t *testing.T, p *simenv.Process, s index.Session, key []byte, others ...func()) {
	t.Helper()
	g := env.NewWaitGroup(p)
	err := s.Modify(key, func([]byte, bool) ([]byte, index.Action) {
		for _, f := range others {
			g.Go("waiter", f)
			p.Sleep(100 * time.Microsecond) // until it waits
		}
		return nil, index.Keep
	})
	if err != nil {
		t.Fatal(err)
	}
	g.Wait(env.Forever)
}

// Operation is one change.
type Operation struct {
	Mode       combine.Mode
	Key, Value []byte
}

// perform does o and says what it should answer by the model, which it changes.
func (o *Operation) perform(s index.Session, model map[string]string) (err, want error) {
	_, is := model[string(o.Key)]
	switch {
	case o.Mode == combine.Insert && is:
		want = index.ErrExists
	case o.Mode != combine.Insert && o.Mode != combine.Upsert && !is:
		want = index.ErrNotFound
	case o.Mode == combine.Delete:
		delete(model, string(o.Key))
	default:
		model[string(o.Key)] = string(o.Value)
	}
	switch o.Mode {
	case combine.Insert:
		err = s.Insert(o.Key, o.Value)
	case combine.Update:
		err = s.Update(o.Key, o.Value)
	case combine.Upsert:
		err = s.Upsert(o.Key, o.Value)
	case combine.Delete:
		err = s.Delete(o.Key)
	}
	return err, want
}

// Do lets session i do an operation, and compares its answer with the model, which it changes.
func (w *World) Do(i int, m combine.Mode, key, value []byte) {
	o := Operation{m, key, value}
	if err, want := o.perform(w.S[i], w.Model); !errors.Is(err, want) || want == nil && err != nil {
		w.t.Errorf("%s: operation %d of key %x: %v, want %v", w.What, m, key, err, want)
	}
}

// Together lets sessions from 1 on do one operation each, which wait in this order while session 0
// has the lock of the leaf with the key.
func (w *World) Together(key []byte, all []Operation) {
	w.t.Helper()
	others := make([]func(), len(all))
	for i, o := range all {
		others[i] = func() { w.Do(1+i, o.Mode, o.Key, o.Value) }
	}
	WhileHeld(w.t, w.Process, w.S[0], key, others...)
}

// Compare compares what lookups find with the model, and how many pairs there are.
func (w *World) Compare() {
	w.t.Helper()
	for key, want := range w.Model {
		if got, err := w.S[0].Lookup([]byte(key), nil); err != nil || string(got) != want {
			w.t.Errorf("%s: key %x is %q, want %q: %v", w.What, key, got, want, err)
		}
	}
	if found, err := w.Index.(index.Checker).Check(); err != nil || int(found.Pairs) != len(w.Model) {
		w.t.Errorf("%s: %d pairs, want %d: %v", w.What, found.Pairs, len(w.Model), err)
	}
}

// Counted returns what sessions from number first on post while body runs.
func (w *World) Counted(first int, body func()) verbs.Counters {
	sum := func() (n verbs.Counters) {
		for _, s := range w.S[first:] {
			c := s.Counters()
			n.Sum(&c)
		}
		return n
	}
	before := sum()
	body()
	after := sum()
	return after.Sub(&before)
}
