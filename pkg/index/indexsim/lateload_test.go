package indexsim_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indexsim"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// lateLoads is a run of TestLoadsWithoutAnswers.
type lateLoads struct {
	design index.Design
	seed   uint64
	long   bool // values are in blocks

	failed, ended int // loads, and of these those that ended their client
}

const (
	latePairs = 60
	// after so long no WRITE comes any more
	lateMost = 20 * time.Second
	// of clients that cannot say that they end
	lateLease = 3 * lateMost
	// how often what needs many answers is tried
	lateTries = 40
)

func lateKey(n int) []byte   { return []byte{byte(n), 0, 0, 0, 0, 0, 0, byte(n)} }
func lateValue(n int) []byte { return fmt.Appendf(nil, "%040d", n) }

func (l *lateLoads) options() index.Options {
	o := index.Options{Uint64: true, MaxValueBytes: 64, NodeBytes: 512}
	if l.long {
		o.InlineBytes = 1
	}
	return o
}

// run loads until that succeeds, and uses memory in between. WRITEs of loads that failed come late.
func (l *lateLoads) run() error {
	w := simenv.New(simenv.Options{Seed: l.seed, MaxEvents: 20_000_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: true, WholeWrite: 8}, Tear: 1 + int(l.seed)%4, Reorder: true, Delay: 100, Gap: 100,
		Stall: 60, StallFor: lateMost,
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 2, Chunks: 32, ChunkBytes: 64 << 10, Locks: 16, Lease: lateLease, RenewEvery: 20 * time.Millisecond, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		return err
	}
	return w.Run(func(p *simenv.Process) {
		if err := l.load(c, p); err != nil {
			w.Fail(err)
		}
	})
}

// open opens the index, and tries again where a request has no answer.
func (l *lateLoads) open(c *poolsim.Cluster, p *simenv.Process) (pl *pool.Pool, x index.Index, err error) {
	for range lateTries {
		if pl, err = c.Open(p); err != nil {
			continue
		}
		if x, err = l.design.Open(pl, l.options()); err == nil {
			return pl, x, nil
		}
		_ = pl.Close()
	}
	return nil, nil, err
}

func (l *lateLoads) load(c *poolsim.Cluster, p *simenv.Process) error {
	var pl *pool.Pool
	var x index.Index
	for loaded := false; !loaded; {
		if pl == nil || pl.Alive() != nil {
			if pl != nil {
				l.ended++
				_ = pl.Close()
			}
			var err error
			if pl, x, err = l.open(c, p); err != nil {
				return err
			}
		}
		err := x.BulkLoad(func(yield func(key, value []byte) bool) error {
			for n := range latePairs {
				if n%20 == 19 {
					p.Sleep(time.Second) // sweeps are made
				}
				if !yield(lateKey(n), lateValue(n)) {
					break
				}
			}
			return nil
		}, 1+int(l.seed)%3)
		if loaded = err == nil || errors.Is(err, index.ErrNotEmpty) || errors.Is(err, index.ErrUnknown); !loaded {
			l.failed++
		}
		indexsim.Garbage(pl, time.Second)
	}
	for range 3 {
		_ = indexsim.UseMemory(pl, []int{64, 128, 192, 256, 320, 512}, 20)
		p.Sleep(lateMost)
	}
	_ = pl.Close()
	p.Sleep(lateLease)
	pl, x, err := l.open(c, p)
	if err != nil {
		return err
	}
	defer pl.Close()
	s, err := x.Session()
	if err != nil {
		return err
	}
	s.SetLimit(time.Hour)
	missing := 0
	for n := range latePairs {
		v, err := s.Lookup(lateKey(n), nil)
		switch {
		case errors.Is(err, index.ErrNotFound):
			missing++
		case err != nil:
			return err
		case !slices.Equal(v, lateValue(n)):
			return fmt.Errorf("pair %d is %q", n, v)
		}
	}
	if missing != 0 && missing != latePairs {
		return fmt.Errorf("%d of %d pairs are missing", missing, latePairs)
	}
	for range lateTries {
		if _, err = x.(index.Checker).Check(); err == nil || pl.Alive() != nil {
			break
		}
	}
	return err
}

// TestLoadsWithoutAnswers: some WRITEs of bulk loads have no answer, and come late. The memory of
// such a load is used again by the next one, but for the nodes that they may reach.
func TestLoadsWithoutAnswers(t *testing.T) {
	eachDesign(t, func(t *testing.T, d index.Design, _ bool) {
		seeds := uint64(20)
		failed, ended := 0, 0
		for seed := range seeds {
			l := &lateLoads{design: d, seed: seed, long: seed%2 == 1}
			if err := l.run(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			failed, ended = failed+l.failed, ended+l.ended
		}
		if failed == 0 {
			t.Error("every WRITE of each load was in time: this tests nothing")
		}
		t.Logf("%d loads failed, %d of them ended their client", failed, ended)
	})
}
