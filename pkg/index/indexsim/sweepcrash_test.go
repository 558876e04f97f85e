package indexsim_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indexsim"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/audit"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// sweepCrash is one run of TestSweepAfterACrash: a client dies after some number of parts of its
// requests. The client that is left adopts all that is to be adopted, and sweeps once. Then all
// memory is accounted for: each node is a part of the index, or available.
type sweepCrash struct {
	seed   uint64
	inline int
	part   int
	change func(x index.Index) error // what the client does
	empty  bool                      // the index is, before
	// the pairs that are there before lie in chunks of a client that ended, not of the one that is
	// left
	adopted bool
	// the client that dies after so many parts is one that adopts and sweeps, behind one that died
	// of its change after so many
	sweeper bool
	first   int
	itself  bool // the client that is left is not told to sweep, and does when its time comes

	design index.Design
	w      *simenv.World
	cl     *poolsim.Cluster
	lost   int // nodes that were lost before the sweep
	swept  int
}

var sweepOptions = index.Options{MaxKeyBytes: 32, MaxValueBytes: 40, CacheBytes: crashCache}

func (c *sweepCrash) do(t *testing.T) (ended bool) {
	t.Helper()
	faults := []sim.Fault{{Kind: sim.Crash, Process: "victim", Part: c.part}}
	if c.sweeper {
		faults = []sim.Fault{{Kind: sim.Crash, Process: "victim", Part: c.first}, {Kind: sim.Crash, Process: "sweeper", Part: c.part}}
	}
	c.w = simenv.New(simenv.Options{Seed: c.seed, MaxEvents: 20_000_000})
	plan := &sim.Plan{Capabilities: verbs.Capabilities{WholeWrite: 8}, Tear: 1 + int(c.seed)%4, Reorder: true, Delay: 100, Gap: 100, Faults: faults}
	var err error
	c.cl, err = poolsim.New(c.w, poolsim.Options{
		Servers: 1 + int(c.seed)%2, Locks: 16, Chunks: 12, ChunkBytes: 64 << 10, Lease: crashLease, RenewEvery: time.Millisecond, Fabric: sim.Options{Plan: plan},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = c.w.Run(func(p *simenv.Process) {
		if err := c.run(p, &ended); err != nil {
			c.w.Fail(err)
		}
	})
	if err != nil {
		t.Fatalf("seed %d, inline size %d, adopted %v, dead after part %d: %v", c.seed, c.inline, c.adopted, c.part, err)
	}
	return ended
}

func (c *sweepCrash) run(p *simenv.Process, ended *bool) error {
	pl, x, err := c.open(p)
	if err != nil {
		return err
	}
	switch {
	case c.empty:
	case c.adopted:
		of, filled, err := c.open(p)
		if err == nil {
			err = c.fill(filled)
		}
		if err = errors.Join(err, filled.Close(), of.Close()); err != nil {
			return err
		}
	default:
		if err := c.fill(x); err != nil {
			return err
		}
	}
	died := c.in(p, "victim", func(_ *pool.Pool, x index.Index) error { return c.change(x) })
	if died && c.sweeper {
		p.Sleep(2 * crashLease)
		died = c.in(p, "sweeper", func(pl *pool.Pool, x index.Index) error {
			if err := indexsim.AdoptAll(c.cl, pl); err != nil {
				return err
			}
			_, err := x.(index.Sweeper).Sweep()
			return err
		})
	}
	if *ended = !died; *ended {
		return nil
	}
	p.Sleep(2 * crashLease)
	if err := indexsim.AdoptAll(c.cl, pl); err != nil {
		return err
	}
	return c.judge(p, pl, x)
}

func (c *sweepCrash) open(p *simenv.Process) (*pool.Pool, index.Index, error) {
	pl, err := c.cl.Open(p)
	if err != nil {
		return nil, nil, err
	}
	o := sweepOptions
	o.InlineBytes = c.inline
	x, err := c.design.Open(pl, o)
	return pl, x, err
}

// in does something in a process of its own, and reports whether that died of it.
func (c *sweepCrash) in(p *simenv.Process, name string, do func(*pool.Pool, index.Index) error) (died bool) {
	v, over := c.w.NewProcess(name), p.NewEvent()
	v.Go("main", func() {
		defer over.Set()
		pl, x, err := c.open(v)
		if err == nil {
			err = do(pl, x)
		}
		if err != nil {
			c.w.Fail(fmt.Errorf("%s, alive: %w", name, err))
		}
	})
	over.Wait(env.Forever)
	return v.Dead()
}

func (c *sweepCrash) fill(x index.Index) error {
	s, err := x.Session()
	if err != nil {
		return err
	}
	for n := range crashKeys {
		if err := s.Insert([]byte(crashKey(n)), fmt.Appendf(nil, "value %d", n)); err != nil {
			return err
		}
	}
	return s.Close()
}

// lostNow are the nodes that are lost, as far as the client that is left knows.
func (c *sweepCrash) lostNow(pl *pool.Pool, x index.Index) ([]audit.Node, index.Structure, error) {
	found, err := x.(index.Checker).Check()
	if err != nil {
		return nil, found, err
	}
	r, err := audit.Compare(c.cl.Chunks(), found.Parts(), []*pool.Pool{pl})
	return r.Lost, found, err
}

// judge lets the client that is left sweep.
func (c *sweepCrash) judge(p *simenv.Process, pl *pool.Pool, x index.Index) error {
	before, err := pairs(x)
	if err != nil {
		return err
	}
	lost, _, err := c.lostNow(pl, x)
	if err != nil {
		return err
	}
	c.lost += len(lost)
	if c.itself {
		// any change that takes memory sees that a chunk was adopted
		s, err := x.Session()
		if err == nil {
			err = s.Insert([]byte("a"), nil)
		}
		if err == nil {
			err = s.Delete([]byte("a"))
		}
		if err = errors.Join(err, s.Close()); err != nil {
			return err
		}
		p.Sleep(2 * time.Second)
		if lost, _, err := c.lostNow(pl, x); err != nil || len(lost) > 0 {
			return fmt.Errorf("%d nodes are lost, of which the client was to sweep up: %w", len(lost), err)
		}
	}
	n, err := x.(index.Sweeper).Sweep()
	if err != nil {
		return err
	}
	c.swept += n
	for range 400 { // what was marked before is found by and by
		if lost, _, err = c.lostNow(pl, x); err != nil || len(lost) == 0 {
			break
		}
		p.Sleep(time.Millisecond)
	}
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		return fmt.Errorf("%d nodes are lost after a sweep that gave back %d; one is %v: % x", len(lost), n, lost[0].Addr, lost[0].Memory[:32])
	}
	if n, err := x.(index.Sweeper).Sweep(); n != 0 || err != nil {
		return fmt.Errorf("a second sweep gave back %d nodes: %w", n, err)
	}
	// Memory that was given back is used again.
	s, err := x.Session()
	if err != nil {
		return err
	}
	for n := range 2 * crashKeys {
		if err := s.Insert(fmt.Appendf(nil, "later %d", n), make([]byte, n%40)); err != nil {
			return err
		}
	}
	for n := range 2 * crashKeys {
		if err := s.Delete(fmt.Appendf(nil, "later %d", n)); err != nil {
			return err
		}
	}
	after, err := pairs(x)
	if err == nil && before != after {
		err = fmt.Errorf("before a sweep the index had %s, and afterwards %s", before, after)
	}
	if err == nil {
		_, _, err = c.lostNow(pl, x)
	}
	return errors.Join(err, s.Close())
}

// pairs are those of the index, as text.
func pairs(x index.Index) (string, error) {
	s, err := x.Session()
	if err != nil {
		return "", err
	}
	all := ""
	err = s.Scan(nil, 1<<20, false, func(key, value []byte) bool {
		all += fmt.Sprintf(" %s=%s", key, value)
		return true
	})
	return all, errors.Join(err, s.Close())
}

// by is what a client does by one session.
func by(do func(s index.Session) error) func(x index.Index) error {
	return func(x index.Index) error {
		s, err := x.Session()
		if err == nil {
			err = do(s)
		}
		return err
	}
}

// sweepChanges are what clients die of: inserts into nodes with room and without, beside a leaf,
// beside a node, behind a chain of nodes; deletes that leave a node few children, one, or none;
// values that are too long for their cells, and in blocks.
var sweepChanges = []struct {
	name   string
	empty  bool
	stride int // one of how many parts a client dies after, for each seed
	change func(x index.Index) error
}{
	{"inserts", false, 2, by(func(s index.Session) error {
		for _, key := range []string{
			"key 040", "key 041", "key 050", "key 060", "key 070", "key 080", "key 090", "kex", "ke", "key 017 and a long way further", "key 017 and a long way furthes", "key 018 and a l",
		} {
			if err := s.Insert([]byte(key), []byte("a value that may lie in a block")); err != nil {
				return err
			}
		}
		return nil
	})},
	{"deletes", false, 8, by(func(s index.Session) error {
		for n := range 29 {
			if err := s.Delete([]byte(crashKey(n))); err != nil {
				return err
			}
		}
		return nil
	})},
	{"updates", false, 2, by(func(s index.Session) error {
		for n := range 4 {
			for _, value := range []string{"a value that is as long as one may be...", "short", "another one that is long enough for it"} {
				if err := s.Upsert([]byte(crashKey(n)), []byte(value)); err != nil {
					return err
				}
			}
		}
		return nil
	})},
	{"load", true, 16, func(x index.Index) error {
		return x.BulkLoad(func(yield func(key, value []byte) bool) error {
			for n := range bulkPairs {
				yield([]byte(crashKey(n)), fmt.Appendf(nil, "value of %s, which is not short", crashKey(n)))
			}
			return nil
		}, 2)
	}},
}

// TestSweepAfterACrash kills a client after parts of its requests, for each kind of change.
func TestSweepAfterACrash(t *testing.T) { eachSweepingDesign(t, sweepAfterACrash) }

func sweepAfterACrash(t *testing.T, d index.Design) {
	seeds := 4
	for _, change := range sweepChanges {
		t.Run(change.name, func(t *testing.T) {
			runs, lost, swept, stride := 0, 0, 0, change.stride
			for seed := range seeds {
				for part := 1 + seed*stride/seeds; ; part += stride {
					c := sweepCrash{design: d, seed: uint64(seed), part: part, inline: 10 * (seed / 2 % 2), adopted: part/stride%2 == 0, change: change.change, empty: change.empty}
					if c.do(t) {
						break
					}
					runs, lost, swept = runs+1, lost+c.lost, swept+c.swept
				}
			}
			t.Logf("%d crashes, after which %d nodes were lost; sweeps gave back %d", runs, lost, swept)
			if swept == 0 {
				t.Errorf("%d crashes left %d nodes, and sweeps gave back %d: this tests nothing", runs, lost, swept)
			}
		})
	}
}
