package indexsim_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// combined is a change that a session of a client waits to make while another one has the lock.
type combined struct {
	verb string
	n    int    // of the key
	old  string // "" = it is not there
	new  string // in the end; "" = it is not there
	also []string
}

// combining are changes of which the first session that waits carries out all: in one leaf.
type combining struct {
	design  string
	held    int // the key whose lock is held meanwhile
	options index.Options
	changes []combined
	whole   int // as many bytes of a WRITE are there whole or not at all, whoever dies; 0 = a word
}

// together are of several keys of one leaf, some of the same one.
func together(design string) combining {
	return combining{design, 0, index.Options{MaxKeyBytes: 16, MaxValueBytes: 40, NodeBytes: 2048, CacheBytes: crashCache}, []combined{
		{"upsert", 3, "old 3", "one, of the key's two", []string{"two"}},
		{"update", 4, "old 4", "new 4", nil},
		{"insert", 5, "", "new 5", nil},
		{"delete", 6, "old 6", "", nil},
		{"upsert", 3, "old 3", "two", []string{"one, of the key's two"}},
		{"delete", 7, "old 7", "", []string{"again"}},
		{"insert", 7, "old 7", "again", []string{""}},
		{"insert", 8, "", "new 8, inserted and removed", []string{""}},
		{"delete", 8, "", "", []string{"new 8, inserted and removed"}},
	}, 0}
}

// togetherInForms are of Dolphin, whose leaves have three forms: values are in cells that get
// others by a WRITE, in cells of which each has one value, and words.
func togetherInForms() []combining {
	cells, once, words := together("dolphin"), together("dolphin"), together("dolphin")
	cells.whole = 64 // a cell is whole, several records are not
	words.options.MaxValueBytes = 8
	short := func(v *string) { *v = (*v)[:min(8, len(*v))] }
	for i := range words.changes {
		c := &words.changes[i]
		short(&c.old)
		short(&c.new)
		for i := range c.also {
			short(&c.also[i])
		}
	}
	return []combining{cells, once, words}
}

// togetherOfOneKey are of SMART, whose leaves have one key each. With each of the ends the last
// change leaves something else: a value in its place, one that takes a larger leaf, nothing.
func togetherOfOneKey() (all []combining) {
	const key, old, long = 3, "old 3", "a value that does not fit the leaf that is there, so that it moves"
	for _, last := range []combined{{verb: "upsert", new: "last"}, {verb: "upsert", new: long}, {verb: "delete"}} {
		x := combining{"smart", key, index.Options{MaxKeyBytes: 16, MaxValueBytes: 80, CacheBytes: crashCache}, []combined{
			{verb: "upsert", new: "one"}, {verb: "delete"}, {verb: "upsert", new: "two"}, {verb: "update", new: "three"}, {verb: "upsert", new: "four"}, last,
		}, 0}
		for i := range x.changes {
			c := &x.changes[i]
			c.n, c.old = key, old
			if i < len(x.changes)-1 {
				c.also = []string{"one", "", "two", "three", "four", last.new}
			}
		}
		all = append(all, x)
	}
	return all
}

// TestCrashWhileCombining kills a client after parts of requests of a list that carries out the
// changes of many sessions: of each seed every fourth one, as TestCrashAtEveryStep does. Each key
// has a value that its operations may have left, the last one where all were answered, and the
// structure is whole.
func TestCrashWhileCombining(t *testing.T) {
	collectSeldom(t)
	step := simtest.Step(t, quarterOfThem)
	for _, x := range slices.Concat(togetherOfOneKey(), togetherInForms(), []combining{together("sherman"), together("chime")}) {
		crashes, seeds := 0, uint64(12)
		switch x.design {
		case "smart", "chime":
			seeds = 4
		case "dolphin":
			seeds = 2
		}
		for seed := range seeds {
			for part := firstCrash(seed, step); ; part += step {
				if x.crash(t, seed, part) {
					break
				}
				crashes++
			}
		}
		t.Logf("%s, whole WRITEs of %d bytes, values of %d: %d crashes", x.design, x.whole, x.options.MaxValueBytes, crashes)
	}
}

// crash does one run and reports whether the client had ended before its time to die.
func (x *combining) crash(t *testing.T, seed uint64, part int) (ended bool) {
	t.Helper()
	d, err := index.Lookup(x.design)
	if err != nil {
		t.Fatal(err)
	}
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 5_000_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: seed%2 == 0, WholeWrite: max(8, x.whole), WholeAlways: x.whole > 0}, Tear: 1 + int(seed)%4, Reorder: true, Delay: 100, Gap: 100,
		Faults: []sim.Fault{{Kind: sim.Crash, Process: "victim", Part: part}},
	}
	cl, err := poolsim.New(w, poolsim.Options{Servers: 1, Chunks: crashChunks, ChunkBytes: crashChunk, Locks: 16, Lease: crashLease, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		t.Fatal(err)
	}
	answered := make([]bool, len(x.changes))
	open := func(p *simenv.Process) (index.Index, error) {
		pl, err := cl.Open(p)
		if err != nil {
			return nil, err
		}
		return d.Open(pl, x.options)
	}
	err = w.Run(func(p *simenv.Process) {
		ix, err := open(p)
		if err == nil {
			err = x.fill(ix)
		}
		if err != nil {
			w.Fail(fmt.Errorf("prepare: %w", err))
			return
		}
		victim, over := w.NewProcess("victim"), p.NewEvent()
		victim.Go("main", func() {
			defer over.Set()
			ix, err := open(victim)
			if err == nil {
				err = x.change(victim, ix, answered)
			}
			if err == nil && ix.Stats().Combined < uint64(len(x.changes))/2 {
				err = fmt.Errorf("only %d changes were carried out for others", ix.Stats().Combined)
			}
			if err != nil {
				w.Fail(fmt.Errorf("the victim, alive: %w", err))
			}
		})
		over.Wait(env.Forever)
		ended = !victim.Dead()
		p.Sleep(2 * crashLease)
		if ix, err = open(p); err == nil {
			err = x.judge(ix, answered)
		}
		if err != nil {
			w.Fail(err)
		}
	})
	if err != nil {
		t.Fatalf("%s, seed %d, dead after part %d: %v", x.design, seed, part, err)
	}
	return ended
}

// fill inserts what is there before.
func (x *combining) fill(ix index.Index) error {
	s, err := ix.Session()
	if err != nil {
		return err
	}
	err = s.Upsert([]byte(crashKey(x.held)), []byte("held"))
	for _, c := range x.changes {
		if c.old != "" {
			err = errors.Join(err, s.Upsert([]byte(crashKey(c.n)), []byte(c.old)))
		}
	}
	return err
}

// change makes all changes, while a session has the lock that they need until they wait.
func (x *combining) change(p *simenv.Process, ix index.Index, answered []bool) error {
	holder, err := ix.Session()
	if err != nil {
		return err
	}
	g := env.NewWaitGroup(p)
	errs := make([]error, len(x.changes))
	sessions := make([]index.Session, len(x.changes))
	for i := range sessions {
		if sessions[i], err = ix.Session(); err != nil {
			return err
		}
	}
	err = holder.Modify([]byte(crashKey(x.held)), func([]byte, bool) ([]byte, index.Action) {
		for i, c := range x.changes {
			g.Go("waiter", func() {
				s, key, value := sessions[i], []byte(crashKey(c.n)), []byte(c.new)
				switch c.verb {
				case "upsert":
					errs[i] = s.Upsert(key, value)
				case "update":
					errs[i] = s.Update(key, value)
				case "insert":
					errs[i] = s.Insert(key, value)
				case "delete":
					errs[i] = s.Delete(key)
				}
				answered[i] = true
			})
			p.Sleep(50 * time.Microsecond) // until it waits
		}
		return nil, index.Keep
	})
	g.Wait(env.Forever)
	return errors.Join(append(errs, err)...)
}

// judge looks at what is left.
func (x *combining) judge(ix index.Index, answered []bool) error {
	s, err := ix.Session()
	if err != nil {
		return err
	}
	for i, c := range x.changes {
		got, err := s.Lookup([]byte(crashKey(c.n)), nil)
		if err != nil && !errors.Is(err, index.ErrNotFound) {
			return err
		}
		may := append([]string{c.new}, c.also...)
		if !answered[i] {
			may = append(may, c.old)
			if c.n == x.held { // all are of one key
				may = append(may, x.changes[0].also...)
			}
		}
		if !slices.Contains(may, string(got)) {
			return fmt.Errorf("%s is %q after %s, answered %v; it may be one of %q", crashKey(c.n), got, c.verb, answered[i], may)
		}
	}
	for _, c := range x.changes {
		if err := s.Upsert([]byte(crashKey(c.n)), []byte("after")); err != nil {
			return err
		}
	}
	_, err = ix.(index.Checker).Check()
	return err
}
