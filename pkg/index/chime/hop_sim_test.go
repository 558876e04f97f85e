package chime_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/chime"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// Leaves that are nearly full, so that most insertions hop, under the adversary. General runs
// (pkg/index/indexsim) have small leaves, of fewer slots than a neighbourhood, and hop seldom.

// hopOptions are those of leaves of 30 slots, longOptions the same with keys that lie in blocks.
// The hotspot buffer is a part of the cache, and made when an index is opened: with the default
// cache that would take most of the time of thousands of short runs.
var (
	hopOptions  = index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 1088, CacheBytes: 256 << 10}
	longOptions = index.Options{MaxKeyBytes: 60, MaxValueBytes: 8, NodeBytes: 1664, CacheBytes: 256 << 10}
)

const (
	hopLease = 20 * time.Millisecond
	stable   = 23 // keys that stay
	coming   = 5  // keys that come and go: 28 in 30 slots
)

func hopKey(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)*0x9E3779B97F4A7C15>>8) }

// hopValues are the values that a key has: no word of them is the same.
func hopValues(n int) [2][]byte {
	other := hopKey(n)
	for i := range other {
		other[i] ^= 0xff
	}
	return [2][]byte{hopKey(n), other}
}

// hopWorld is a run.
type hopWorld struct {
	options index.Options

	t    *testing.T
	seed uint64
	w    *simenv.World
	c    *poolsim.Cluster
}

func newHopWorld(t *testing.T, seed uint64, faults ...sim.Fault) *hopWorld {
	w := simenv.New(simenv.Options{Seed: seed, Preempt: 6, MaxEvents: 20_000_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: seed%2 == 0, WholeWrite: []int{8, 256, 4096}[seed%3], WholeAlways: seed%4 > 0}, Tear: 1 + int(seed)%4, Reorder: true, Delay: 100, Gap: 4000,
		Faults: faults,
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1 + int(seed)%2, Locks: 64, Lease: hopLease, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		t.Fatal(err)
	}
	return &hopWorld{hopOptions, t, seed, w, c}
}

// key is key n.
func (h *hopWorld) key(n int) []byte {
	if h.options.Uint64 {
		return hopKey(n)
	}
	return fmt.Appendf(nil, "keys of which all begin with the same: %x", hopKey(n))
}

// open opens the index in a process, perhaps without some techniques.
func (h *hopWorld) open(p *simenv.Process, without ...string) (index.Index, index.Session, error) {
	pl, err := h.c.Open(p)
	if err != nil {
		return nil, nil, err
	}
	o := h.options
	o.Switches = map[string]bool{}
	for _, name := range without {
		o.Switches[name] = false
	}
	x, err := chime.Open(pl, o)
	if err != nil {
		return nil, nil, err
	}
	s, err := x.Session()
	return x, s, err
}

// fill inserts the keys that stay.
func (h *hopWorld) fill(p *simenv.Process) error {
	_, s, err := h.open(p)
	for n := range stable {
		if err == nil {
			err = s.Insert(h.key(n), hopKey(n))
		}
	}
	return err
}

func (h *hopWorld) check(err error, parts ...any) {
	if err != nil {
		h.w.Fail(fmt.Errorf("%s: %w", fmt.Sprint(parts...), err))
	}
}

// TestHopsBesideReaders: a client inserts and deletes keys of nearly full leaves, while others look
// up keys that stay, and keys that never were, and scan.
func TestHopsBesideReaders(t *testing.T) {
	seeds := simtest.Read(t, "chime", "pkg/index/chime", 100)
	seeds.Each(func(seed uint64) bool {
		h := newHopWorld(t, seed)
		err := h.w.Run(func(p *simenv.Process) {
			if err := h.fill(p); err != nil {
				h.check(err, "fill")
				return
			}
			g := env.NewWaitGroup(p)
			over := false
			for i := range 4 {
				proc, done := h.w.NewProcess(fmt.Sprint("client-", i)), p.NewEvent()
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				proc.Go("main", func() {
					defer done.Set()
					var without []string
					if i > 1 { // else most lookups are speculative
						without = []string{"speculativeRead"}
					}
					x, s, err := h.open(proc, without...)
					if err == nil && i == 0 {
						err = h.churn(s, random)
						over = true
					} else if err == nil {
						err = h.read(s, random, &over)
					}
					if err == nil {
						err = errors.Join(s.Close(), x.Close())
					}
					h.check(err, "client ", i)
				})
				g.Go("wait", func() { done.Wait(env.Forever) })
			}
			g.Wait(env.Forever)
			x, _, err := h.open(p)
			if err == nil {
				_, err = x.(index.Checker).Check()
			}
			h.check(err, "check")
		})
		if err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, seeds.Replay(seed))
		}
		return err == nil
	})
}

// churn inserts and deletes keys, and changes values of those that stay.
func (h *hopWorld) churn(s index.Session, random *rand.Rand) error {
	there := map[int]bool{}
	for range 300 {
		if random.IntN(3) == 0 {
			n := random.IntN(stable)
			if err := s.Update(h.key(n), hopValues(n)[random.IntN(2)]); err != nil {
				return err
			}
		}
		n := stable + random.IntN(coming)
		change := func() error { return s.Insert(h.key(n), hopKey(n)) }
		if there[n] {
			change = func() error { return s.Delete(h.key(n)) }
		}
		if err := change(); err != nil {
			return err
		}
		there[n] = !there[n]
	}
	return nil
}

// read looks up, until the other client is through.
func (h *hopWorld) read(s index.Session, random *rand.Rand, over *bool) error {
	for !*over {
		n := random.IntN(stable)
		v, err := s.Lookup(h.key(n), nil)
		if w := hopValues(n); err != nil || string(v) != string(w[0]) && string(v) != string(w[1]) {
			return fmt.Errorf("key %d, which is there all the time: %x, %w", n, v, err)
		}
		if n = 1000 + random.IntN(stable); random.IntN(4) == 0 {
			if v, err := s.Lookup(h.key(n), nil); !errors.Is(err, index.ErrNotFound) {
				return fmt.Errorf("key %d, which never was there: %x, %w", n, v, err)
			}
		}
		if random.IntN(8) > 0 {
			continue
		}
		seen, twice := map[string]bool{}, ""
		if err := s.Scan(nil, 1000, false, func(key, _ []byte) bool {
			if seen[string(key)] {
				twice = string(key)
			}
			seen[string(key)] = true
			return true
		}); err != nil {
			return err
		}
		for n := range stable {
			if !seen[string(h.key(n))] || twice != "" {
				return fmt.Errorf("a scan misses key %d, or has %x twice", n, twice)
			}
		}
	}
	return nil
}

// TestCrashInHops kills a client after every part of its requests while it inserts into a nearly
// full leaf, and deletes: no key that was acknowledged is lost, none is there twice, and what the
// lock word says is made anew.
func TestCrashInHops(t *testing.T) {
	seeds, step := []uint64{0, 1, 2, 3, 6}, 2
	for _, seed := range seeds {
		runs := 0
		for part := 1 + int(seed)%step; !crashInHops(t, hopOptions, seed, part); part += step {
			runs++
		}
		t.Logf("seed %d: %d crashes", seed, runs)
	}
}

// TestCrashBesideFingerprints is TestCrashInHops where keys lie in blocks, and several of a leaf
// have one fingerprint. Who repairs the leaf tells a key that is there twice from another one with
// its fingerprint.
func TestCrashBesideFingerprints(t *testing.T) {
	defer chime.FewFingerprints(8)()
	step := 3
	runs := 0
	for part := 1; !crashInHops(t, longOptions, 2, part); part += step {
		runs++
	}
	t.Logf("%d crashes", runs)
}

func crashInHops(t *testing.T, o index.Options, seed uint64, part int) (ended bool) {
	h := newHopWorld(t, seed, sim.Fault{Kind: sim.Crash, Process: "victim", Part: part})
	h.options = o
	done := 0 // changes that were acknowledged
	err := h.w.Run(func(p *simenv.Process) {
		if err := h.fill(p); err != nil {
			h.check(err, "fill")
			return
		}
		victim, over := h.w.NewProcess("victim"), p.NewEvent()
		victim.Go("main", func() {
			defer over.Set()
			_, s, err := h.open(victim)
			for n := 0; err == nil && n < 2*coming; n++ {
				if i := stable + n%coming; n < coming {
					err = s.Insert(h.key(i), hopKey(i))
				} else {
					err = s.Delete(h.key(i))
				}
				if done = n + 1; err == nil {
					err = s.Update(h.key(n), hopValues(n)[1])
				}
			}
			h.check(err, "the victim, alive")
		})
		over.Wait(env.Forever)
		ended = !victim.Dead()
		p.Sleep(2 * hopLease)
		h.check(h.judge(p, done), "after the crash")
	})
	if err != nil {
		t.Fatalf("seed %d, dead after part %d, %d changes acknowledged: %v", seed, part, done, err)
	}
	return ended
}

// judge: done changes were made, and perhaps the next one.
func (h *hopWorld) judge(p *simenv.Process, done int) error {
	x, s, err := h.open(p)
	if err != nil {
		return err
	}
	there := map[int]bool{}
	for n := range stable + coming {
		v, err := s.Lookup(h.key(n), nil)
		found := err == nil
		there[n] = found
		if w := hopValues(n); err != nil && !errors.Is(err, index.ErrNotFound) || found && string(v) != string(w[0]) && (n >= stable || string(v) != string(w[1])) {
			return fmt.Errorf("key %d: %x, %w", n, v, err)
		}
		i := n - stable
		inserted, deleted := i < done, i+coming < done
		if open := i == done || i+coming == done; !open && found != (i < 0 || inserted && !deleted) {
			return fmt.Errorf("key %d is there: %v", n, found)
		}
	}
	// each leaf is changed, and so repaired, which takes none away, and brings none back but the
	// one that the client was inserting by a split
	for n := range stable + coming {
		change := s.Insert
		if there[n] {
			change = s.Update
		}
		err := change(h.key(n), hopKey(n))
		if errors.Is(err, index.ErrExists) && n-stable == done {
			err = s.Update(h.key(n), hopKey(n))
		}
		if err != nil {
			return fmt.Errorf("key %d, which was there before the repair: %v, %w", n, there[n], err)
		}
	}
	found, err := x.(index.Checker).Check()
	if err == nil && found.Pairs != stable+coming {
		err = fmt.Errorf("%d pairs, want %d", found.Pairs, stable+coming)
	}
	return err
}
