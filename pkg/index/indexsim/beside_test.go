package indexsim_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// beside is one run of TestLoadsBesideInserts.
type beside struct {
	t      *testing.T
	design index.Design
	w      *simenv.World
	cl     *poolsim.Cluster
	rand   *rand.Rand

	loads [2]loading
}

// loading is what became of a bulk load.
type loading struct {
	err  error
	over bool // it was answered; else its process died
	seen bool // some pair of it was found
}

func (l *loading) succeeded() bool { return l.over && l.err == nil }
func (l *loading) refused() bool   { return l.over && errors.Is(l.err, index.ErrNotEmpty) }

const besidePairs = 40

// The keys begin with some 20 bytes, so that many slots of a root are used.
func loadedKey(load, n int) string { return fmt.Sprintf("%c%02d of load %d", 'a'+n/2, n, load) }

func (b *beside) open(p *simenv.Process) (index.Index, index.Session) {
	pl, err := b.cl.Open(p)
	if err == nil {
		var x index.Index
		if x, err = b.design.Open(pl, crashOptions); err == nil {
			var s index.Session
			if s, err = x.Session(); err == nil {
				s.SetLimit(time.Minute)
				return x, s
			}
		}
	}
	b.w.Fail(err)
	return nil, nil
}

// load bulk loads the pairs of a load.
func (b *beside) load(p *simenv.Process, n int, after time.Duration) {
	x, _ := b.open(p)
	p.Sleep(after)
	err := x.BulkLoad(func(yield func(key, value []byte) bool) error {
		for i := range besidePairs {
			if !yield([]byte(loadedKey(n, i)), []byte(loadedKey(n, i))) {
				break
			}
		}
		return nil
	}, 1+n)
	b.loads[n].err, b.loads[n].over = err, true
	if err != nil && !errors.Is(err, index.ErrNotEmpty) {
		b.w.Fail(fmt.Errorf("load %d: %w", n, err))
	}
}

// look looks a pair of each load up. If one of a load was there before, all are.
func (b *beside) look(s index.Session, r *rand.Rand) error {
	for n := range b.loads {
		l := &b.loads[n]
		key, was := loadedKey(n, r.IntN(besidePairs)), l.seen || l.succeeded()
		v, err := s.Lookup([]byte(key), nil)
		switch {
		case err == nil && string(v) != key:
			return fmt.Errorf("%s has value %q", key, v)
		case err == nil && l.refused():
			return fmt.Errorf("%s is there, and the load was refused", key)
		case err == nil:
			l.seen = true
		case err != index.ErrNotFound:
			return err
		case was:
			return fmt.Errorf("%s is missing, and others of its load were there before", key)
		}
	}
	return nil
}

// write changes keys of its own, and looks at those of the loads.
func (b *beside) write(p *simenv.Process, n int, after time.Duration, r *rand.Rand, there map[string]string) {
	_, s := b.open(p)
	p.Sleep(after)
	for i := range 30 {
		key, value := fmt.Sprintf("%c%02d of writer %d", 'a'+r.IntN(20), r.IntN(2), n), fmt.Sprint(i)
		old, is := there[key]
		var err error
		switch r.IntN(4) {
		case 0:
			err = b.look(s, r)
		case 1:
			if err = s.Delete([]byte(key)); is == (err == nil) && (err == nil || err == index.ErrNotFound) {
				err = nil
			}
			delete(there, key)
		case 2:
			if err = s.Upsert([]byte(key), []byte(value)); err == nil {
				there[key] = value
			}
		default:
			var v []byte
			if v, err = s.Lookup([]byte(key), nil); is && err == nil && string(v) != old {
				err = fmt.Errorf("%q, want %q", v, old)
			} else if !is && err == index.ErrNotFound {
				err = nil
			}
		}
		if err != nil {
			b.w.Fail(fmt.Errorf("writer %d, %s, which is %q, there: %v: %w", n, key, old, is, err))
			return
		}
	}
}

func (b *beside) run(p *simenv.Process, dies bool) {
	g := env.NewWaitGroup(p)
	b.open(p) // it is made
	// writers begin later than loaders, mostly: who inserts first makes loads be refused
	at := func(most time.Duration) time.Duration { return time.Duration(b.rand.Int64N(int64(most))) }
	late := []time.Duration{300 * time.Microsecond, 2 * time.Millisecond, 8 * time.Millisecond}[b.rand.IntN(3)]
	for n := range b.loads {
		q, after, done := b.w.NewProcess(fmt.Sprint("loader-", n)), at(100*time.Microsecond), p.NewEvent()
		q.Go("main", func() { defer done.Set(); b.load(q, n, after) })
		g.Go("load", func() { done.Wait(env.Forever) })
	}
	var models []map[string]string
	for n := range 2 {
		q, after, done, seed := b.w.NewProcess(fmt.Sprint("writer-", n)), at(late), p.NewEvent(), b.rand.Uint64()
		models = append(models, map[string]string{})
		q.Go("main", func() {
			defer done.Set()
			b.write(q, n, after, rand.New(rand.NewPCG(seed, 1)), models[n])
		})
		g.Go("write", func() { done.Wait(env.Forever) })
	}
	g.Wait(env.Forever)
	if dies {
		p.Sleep(2 * crashLease)
	}
	if err := b.judge(p, models); err != nil {
		b.w.Fail(err)
	}
}

// judge looks at what is there in the end.
func (b *beside) judge(p *simenv.Process, models []map[string]string) error {
	x, s := b.open(p)
	want := map[string]string{}
	for _, m := range models {
		for k, v := range m { //env:real into another map
			want[k] = v
		}
	}
	if b.loads[0].succeeded() && b.loads[1].succeeded() {
		return errors.New("both loads took effect")
	}
	for n := range b.loads {
		l := &b.loads[n]
		_, err := s.Lookup([]byte(loadedKey(n, 0)), nil)
		if all := err == nil; all != l.succeeded() && l.over || !all && l.seen {
			return fmt.Errorf("load %d: %+v, and in the end the first pair: %w", n, *l, err)
		} else if all {
			for i := range besidePairs {
				want[loadedKey(n, i)] = loadedKey(n, i)
			}
		}
	}
	last := ""
	pairs := 0
	err := s.Scan(nil, 1<<20, false, func(k, v []byte) bool {
		if pairs++; want[string(k)] != string(v) || string(k) <= last {
			b.w.Fail(fmt.Errorf("a scan visits %q: %q behind %q, want %q", k, v, last, want[string(k)]))
		}
		last = string(k)
		return true
	})
	if err == nil && pairs != len(want) {
		err = fmt.Errorf("a scan visits %d pairs, want %d", pairs, len(want))
	}
	found, failure := x.(index.Checker).Check()
	if failure == nil && found.Pairs != uint64(len(want)) {
		failure = fmt.Errorf("%d pairs, want %d", found.Pairs, len(want))
	}
	return errors.Join(err, failure)
}

// TestLoadsBesideInserts: two bulk loads begin while two clients insert, delete and look up. A load
// takes effect as a whole or not at all, whatever it says then, one of the two at most; no insert
// is lost to it, and who saw one pair of it sees all from then on. In some runs a loader dies.
func TestLoadsBesideInserts(t *testing.T) {
	eachDesign(t, func(t *testing.T, d index.Design, _ bool) {
		seeds := uint64(90)
		loadsBesideInserts(t, d, seeds)
	})
}

func loadsBesideInserts(t *testing.T, d index.Design, seeds uint64) {
	took, refused, died := 0, 0, 0
	for seed := range seeds {
		b := beside{t: t, design: d, rand: rand.New(rand.NewPCG(seed, 5))}
		b.w = simenv.New(simenv.Options{Seed: seed, Preempt: 6, MaxEvents: 20_000_000})
		menu := sim.Menu{Kinds: []sim.Kind{sim.Freeze}, Processes: []string{"loader-0", "loader-1", "writer-0", "writer-1"}, Parts: 200, Most: 3, Longest: 200 * time.Microsecond}
		o := poolsim.Options{Servers: 1 + int(seed)%2, Locks: 16}
		dies := seed%3 == 0
		if dies {
			menu.Parts, menu.Kinds, menu.Processes, o.Lease = 60, []sim.Kind{sim.Crash}, []string{"loader-0", "loader-1"}, crashLease
		}
		o.Fabric = sim.Options{Plan: sim.NewPlan(b.w.Faults(), menu)}
		var err error
		if b.cl, err = poolsim.New(b.w, o); err != nil {
			t.Fatal(err)
		}
		if err := b.w.Run(func(p *simenv.Process) { b.run(p, dies) }); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for n := range b.loads {
			switch l := &b.loads[n]; {
			case l.succeeded():
				took++
			case l.refused():
				refused++
			case !l.over:
				died++
			}
		}
	}
	if t.Logf("%d loads took effect, %d were refused, %d died", took, refused, died); took == 0 || refused == 0 || died == 0 {
		t.Error("all three must have happened")
	}
}
