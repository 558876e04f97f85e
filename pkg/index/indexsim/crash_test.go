package indexsim_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
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

// crash is one run of TestCrashAtEveryStep: a client dies after some number of parts of its
// requests; the next one finds the index whole.
type crash struct {
	design index.Design
	inline int  // where values longer than that lie in blocks; 0 = all are in their leaves
	words  bool // values are of 8 bytes, which some designs WRITE alone
	seed   uint64
	part   int
	change func(s index.Session) error // what the client does
	key    string                      // that it changes
	old    string                      // the key's value before; "" = it is not there
	new    string                      // and afterwards
	// instead of one key, it deletes those from one number up to another, one after the other
	delete [2]int
}

const crashLease = 20 * time.Millisecond

// crashKeys are there before, but for those that are inserted; small nodes hold few of them.
const crashKeys = 40

func crashKey(n int) string { return fmt.Sprintf("key %03d", n) }

// do does the run and reports whether the client had ended before its time to die.
func (c *crash) do(t *testing.T) (ended bool) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: c.seed, MaxEvents: 5_000_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: c.seed%2 == 0, WholeWrite: 8}, Tear: 1 + int(c.seed)%4, Reorder: true, Delay: 100, Gap: 100,
		Faults: []sim.Fault{{Kind: sim.Crash, Process: "victim", Part: c.part}},
	}
	cl, err := poolsim.New(w, poolsim.Options{Servers: 1 + int(c.seed)%2, Chunks: crashChunks, ChunkBytes: crashChunk, Locks: 16, Lease: crashLease, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(func(p *simenv.Process) {
		old, err := c.session(cl, p)
		if err == nil {
			err = c.prepare(old)
		}
		if err != nil {
			w.Fail(fmt.Errorf("prepare: %w", err))
			return
		}
		victim, over := w.NewProcess("victim"), p.NewEvent()
		victim.Go("main", func() {
			defer over.Set()
			s, err := c.session(cl, victim)
			if err == nil {
				err = c.change(s)
			}
			if err != nil {
				w.Fail(fmt.Errorf("the victim, alive: %w", err))
			}
		})
		over.Wait(env.Forever)
		ended = !victim.Dead()
		if c.seed < 2 {
			if err := c.look(old); err != nil {
				w.Fail(fmt.Errorf("by copies from before, at once: %w", err))
			}
		}
		p.Sleep(2 * crashLease)
		if err := c.judge(cl, p, ended); err != nil {
			w.Fail(err)
		}
	})
	if err != nil {
		t.Fatalf("seed %d, inline size %d, dead after part %d: %v", c.seed, c.inline, c.part, err)
	}
	return ended
}

// crashCache bounds the caches of clients that crash, whose memory servers have crashChunks of
// crashChunk bytes: most of the time of so many runs would go into making memory that nothing uses.
const (
	crashCache  = 64 << 10
	crashChunks = 16
	crashChunk  = 32 << 10
)

var crashOptions = index.Options{MaxKeyBytes: 16, MaxValueBytes: 40, NodeBytes: 512, CacheBytes: crashCache}

func (c *crash) options() index.Options {
	o := crashOptions
	o.InlineBytes = c.inline
	if c.words {
		o.MaxValueBytes = 8
	}
	return o
}

// value is that of a key before any change.
func (c *crash) value(key string) string {
	if c.words {
		return "val " + key[len(key)-3:] + "."
	}
	return "value of " + key
}

// withoutSwitches is the first seed of runs in which the clients have switches turned off.
const withoutSwitches = 6

// session opens the index in a process.
func (c *crash) session(cl *poolsim.Cluster, p *simenv.Process) (index.Session, error) {
	pl, err := cl.Open(p)
	if err != nil {
		return nil, err
	}
	o := c.options()
	if c.seed >= withoutSwitches { // all are off at first, then every second one
		o.Switches = map[string]bool{}
		for i, name := range c.design.Switches {
			o.Switches[name] = c.seed > withoutSwitches && (uint64(i)+c.seed)%2 == 0
		}
	}
	x, err := c.design.Open(pl, o)
	if err != nil {
		return nil, err
	}
	return x.Session()
}

func (c *crash) prepare(s index.Session) error {
	for n := range crashKeys {
		if key := crashKey(n); key != c.key {
			if err := s.Insert([]byte(key), []byte(c.value(key))); err != nil {
				return err
			}
		}
	}
	if c.old != "" {
		return s.Insert([]byte(c.key), []byte(c.old))
	}
	return nil
}

// look looks for the keys that nobody changes, with a session whose copies are from before, while
// the victim's locks are held.
func (c *crash) look(s index.Session) error {
	var keys [][]byte
	for n := range crashKeys {
		if key := crashKey(n); key != c.key && (n < c.delete[0] || n >= c.delete[1]) {
			keys = append(keys, []byte(key))
		}
	}
	seen := 0
	see := func(what string, key, value []byte, err error) error {
		if seen++; err != nil || string(value) != c.value(string(key)) {
			return fmt.Errorf("%s: %s is %q, %w", what, key, value, err)
		}
		return nil
	}
	for _, key := range keys {
		v, err := s.Lookup(key, nil)
		if err := see("lookup", key, v, err); err != nil {
			return err
		}
	}
	var wrong error
	err := s.LookupBatch(keys, func(i int, value []byte, err error) {
		wrong = errors.Join(wrong, see("batch", keys[i], value, err))
	})
	for _, reverse := range []bool{false, true} {
		err = errors.Join(err, s.Scan(nil, 2*crashKeys, reverse, func(key, value []byte) bool {
			if slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
				wrong = errors.Join(wrong, see("scan", key, value, nil))
			}
			return true
		}))
	}
	if err = errors.Join(err, wrong); err == nil && seen != 4*len(keys) {
		err = fmt.Errorf("%d keys are found in four ways, of %d", seen, len(keys))
	}
	return err
}

// judge opens the index anew: every other key is as it was, the victim's as before or after its
// change, all can be changed, and the structure is whole.
func (c *crash) judge(cl *poolsim.Cluster, p *simenv.Process, ended bool) error {
	pl, err := cl.Open(p)
	if err != nil {
		return err
	}
	x, err := c.design.Open(pl, c.options())
	if err != nil {
		return err
	}
	s, err := x.Session()
	if err != nil {
		return err
	}
	kept := false // one of the keys that were to be deleted
	for n := range crashKeys {
		key := crashKey(n)
		got, err := s.Lookup([]byte(key), nil)
		if err != nil && !errors.Is(err, index.ErrNotFound) {
			return err
		}
		if n >= c.delete[0] && n < c.delete[1] {
			switch {
			case err == nil && ended:
				return fmt.Errorf("%s is not deleted", key)
			case err == nil:
				kept = true
			case kept:
				return fmt.Errorf("%s is deleted, an earlier one is not", key)
			}
			if err := s.Upsert([]byte(key), []byte("after")); err != nil {
				return err
			}
			continue
		}
		want := c.value(key)
		if key == c.key {
			want = c.new
			if !ended && string(got) == c.old {
				want = c.old
			}
		}
		if string(got) != want {
			return fmt.Errorf("%s is %q, want %q", key, got, want)
		}
		if err := s.Upsert([]byte(key), []byte("after")); err != nil {
			return err
		}
	}
	found, err := x.(index.Checker).Check()
	if err == nil && found.Pairs != crashKeys {
		err = fmt.Errorf("%d pairs, want %d", found.Pairs, crashKeys)
	}
	return err
}

// TestCrashAtEveryStep kills a client after every part of every request that it makes for each kind
// of change, in the middle of WRITEs too; for inserts until leaves and inner nodes have split. Of
// each seed it tries every fourth one, of each from another one on; with DMINDEX_SIM_STEP=1 (make
// sim DESIGN=crashes) every one.
func TestCrashAtEveryStep(t *testing.T) {
	eachDesign(t, func(t *testing.T, d index.Design, less bool) {
		seeds := []uint64{0, 1, 2, 3, 4, 5, withoutSwitches, withoutSwitches + 1, withoutSwitches + 2}
		if less {
			seeds = []uint64{0, withoutSwitches + 1}
		}
		crashAtEveryStep(t, d, seeds)
	})
}

// quarterOfThem is the step that tries every fourth part.
const quarterOfThem = 4

// collectSeldom is for tests of many small worlds, which throw away more each millisecond than they
// keep: the collector, which begins whenever their few megabytes have doubled, took two thirds of
// their processor time.
func collectSeldom(t *testing.T) {
	t.Helper()
	before := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(before) })
}

// firstCrash is the first part after which a client dies, of those that are tried.
func firstCrash(seed uint64, step int) int { return 1 + int(seed%uint64(step)) }

func crashAtEveryStep(t *testing.T, d index.Design, seeds []uint64) {
	collectSeldom(t)
	k, step := crashKey(17), simtest.Step(t, quarterOfThem)
	const long = "a value that needs a block"
	for _, c := range []struct {
		name string
		crash
	}{
		{"insert", crash{key: k, new: "new", change: func(s index.Session) error { return s.Insert([]byte(k), []byte("new")) }}},
		{"update", crash{key: k, old: "old", new: "new", change: func(s index.Session) error { return s.Update([]byte(k), []byte("new")) }}},
		{"upsert", crash{key: k, old: "old", new: "new", change: func(s index.Session) error { return s.Upsert([]byte(k), []byte("new")) }}},
		{"delete", crash{key: k, old: "old", change: func(s index.Session) error { return s.Delete([]byte(k)) }}},
		{"rewrites", crash{key: k, old: "old", new: "the last of many values", change: func(s index.Session) error {
			// the free space of the leaf is used up again and again; the key has the same value
			// from the first on
			for range 8 {
				if err := s.Upsert([]byte(k), []byte("the last of many values")); err != nil {
					return err
				}
			}
			return nil
		}}},
		{"update of words", crash{words: true, key: k, old: "old word", new: "new word", change: func(s index.Session) error { return s.Update([]byte(k), []byte("new word")) }}},
		{"modify of words", crash{words: true, key: k, old: "old word", new: "new word", change: func(s index.Session) error {
			return s.Modify([]byte(k), func([]byte, bool) ([]byte, index.Action) { return []byte("new word"), index.Put })
		}}},
		{"long insert", crash{inline: 10, key: k, new: long, change: func(s index.Session) error { return s.Insert([]byte(k), []byte(long)) }}},
		{"long update", crash{inline: 10, key: k, old: "old, and long as well", new: long, change: func(s index.Session) error { return s.Update([]byte(k), []byte(long)) }}},
		{"short to long", crash{inline: 10, key: k, old: "old", new: long, change: func(s index.Session) error { return s.Upsert([]byte(k), []byte(long)) }}},
		{"long to short", crash{inline: 10, key: k, old: long, new: "new", change: func(s index.Session) error { return s.Upsert([]byte(k), []byte("new")) }}},
		{"long delete", crash{inline: 10, key: k, old: long, change: func(s index.Session) error { return s.Delete([]byte(k)) }}},
		{"long rewrites", crash{inline: 10, key: k, old: "old", new: long, change: func(s index.Session) error {
			for range 14 { // until the leaf is compacted
				if err := s.Upsert([]byte(k), []byte(long)); err != nil {
					return err
				}
			}
			return nil
		}}},
	} {
		if c.words && !slices.Contains(d.Switches, "ternaryLock") {
			continue // no other design WRITEs them alone
		}
		t.Run(c.name, func(t *testing.T) {
			runs := 0
			for _, seed := range seeds {
				for part := firstCrash(seed, step); ; part += step {
					c.design, c.seed, c.part = d, seed, part
					runs++
					if c.do(t) {
						break
					}
				}
			}
			t.Logf("%d crashes", runs-len(seeds))
		})
	}
	t.Run("merges", func(t *testing.T) { crashInMerges(t, crash{design: d}, seeds) })
	t.Run("splits", func(t *testing.T) { crashInSplits(t, crash{design: d}, seeds) })
	if slices.Contains(d.Switches, "ternaryLock") {
		t.Run("merges of words", func(t *testing.T) { crashInMerges(t, crash{design: d, words: true}, seeds) })
		t.Run("splits of words", func(t *testing.T) { crashInSplits(t, crash{design: d, words: true}, seeds) })
	}
	few := seeds
	if len(few) > 2 {
		few = []uint64{0, 1, withoutSwitches}
	}
	t.Run("long merges", func(t *testing.T) { crashInMerges(t, crash{design: d, inline: 15}, few) })
	t.Run("long splits", func(t *testing.T) { crashInSplits(t, crash{design: d, inline: 15}, few) })
}

// crashInMerges: keys are deleted until leaves and inner nodes have been merged, and nearly all is
// gone.
func crashInMerges(t *testing.T, c crash, seeds []uint64) {
	runs, step := 0, simtest.Step(t, quarterOfThem)
	c.delete = [2]int{3, crashKeys - 2}
	for _, seed := range seeds {
		c.seed = seed
		c.change = func(s index.Session) error {
			for n := c.delete[0]; n < c.delete[1]; n++ {
				if err := s.Delete([]byte(crashKey(n))); err != nil {
					return err
				}
			}
			return nil
		}
		for c.part = firstCrash(seed, step); !c.do(t); c.part += step {
			runs++
		}
	}
	t.Logf("%d crashes", runs)
}

// crashInSplits: the key is inserted where a leaf is full, for every place of the key, so that some
// splits go up to the root.
func crashInSplits(t *testing.T, c crash, seeds []uint64) {
	value := fmt.Sprintf("%-*s", c.options().MaxValueBytes, "as long")
	runs, step := 0, simtest.Step(t, quarterOfThem)
	for _, seed := range seeds {
		for n := 0; n < crashKeys; n += 3 {
			key := crashKey(n)
			for part := firstCrash(seed+uint64(n), step); ; part += step {
				c.seed, c.part, c.key, c.new = seed, part, key, value
				c.change = func(s index.Session) error { return s.Insert([]byte(key), []byte(value)) }
				runs++
				if c.do(t) {
					break
				}
			}
		}
	}
	t.Logf("%d crashes", runs)
}
