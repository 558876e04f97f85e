package dex_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// beside is a client that has all keys and gives those from besideFrom up to besideTo to another
// one, while a session of it deletes keys below them.
type beside struct {
	w        *simenv.World
	c        *poolsim.Cluster
	a, b     *simenv.Process
	late     *lateDevice
	fabric   sim.Options
	x, y     index.Partitioned
	pool     *pool.Pool    // of y
	s, other index.Session // of x
	have     map[uint64]string
	epoch    uint64
	inline   int                   // of its options
	env      func(env.Env) env.Env // of x
}

const (
	besideFrom, besideTo, besideAll = 6, 46, 60
	besideNode                      = 512
	besideRenew                     = 200 * time.Microsecond // memory comes back soon
)

func runBeside(t *testing.T, switches map[string]bool, do func(h *beside) error) {
	t.Helper()
	new(beside).run(t, switches, do)
}

func (h *beside) run(t *testing.T, switches map[string]bool, do func(h *beside) error) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 20_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Chunks: 40, ChunkBytes: 64 << 10, Locks: 1024, RenewEvery: besideRenew, Fabric: h.fabric})
	if err != nil {
		t.Fatal(err)
	}
	h.w, h.c, h.have = w, c, map[uint64]string{}
	err = w.Run(func(p *simenv.Process) {
		h.a, h.b = w.NewProcess("client-1"), w.NewProcess("client-2")
		over := p.NewEvent()
		h.a.Go("run", func() {
			defer over.Set()
			err := h.start(switches)
			if err == nil {
				err = do(h)
			}
			if err == nil {
				err = h.judge()
			}
			if err != nil {
				w.Fail(err)
			}
		})
		over.Wait(env.Forever)
	})
	if err != nil {
		t.Error(err)
	}
}

// start leaves leaves that are half full, of which one begins where the range does, and none is in
// a frame.
func (h *beside) start(switches map[string]bool) error {
	opts := index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: besideNode, CacheBytes: 64 << 10, InlineBytes: h.inline}
	open := func(p env.Env, control pool.Control, d verbs.Device, opts index.Options) (index.Partitioned, error) {
		var err error
		h.pool, err = pool.Open(pool.Config{Env: p, Control: control, Devices: []verbs.Device{d}, Identity: poolsim.Identity})
		if err != nil {
			return nil, err
		}
		x, err := dex.Open(h.pool, opts)
		if err != nil {
			return nil, err
		}
		return x.(index.Partitioned), nil
	}
	h.late = newLateDevice(h.c.Fabric.Device(h.a), besideNode)
	mine := opts
	mine.Switches = switches
	around := env.Env(h.a)
	if h.env != nil {
		around = h.env(h.a)
	}
	var err error
	if h.x, err = open(around, h.c.Control(h.a), h.late, mine); err != nil {
		return err
	}
	if err := h.inB(func() (err error) { h.y, err = open(h.b, h.c.Control(h.b), h.c.Fabric.Device(h.b), opts); return err }); err != nil {
		return err
	}
	if err := h.take(h.x, nil, nil); err != nil {
		return err
	}
	if h.s, err = h.x.Session(); err != nil {
		return err
	}
	if h.other, err = h.x.Session(); err != nil {
		return err
	}
	for n := range uint64(besideAll) {
		if err := h.put(h.s, n, fmt.Sprintf("old %d", n)); err != nil {
			return err
		}
	}
	for n := uint64(besideFrom + 1); n < besideAll; n += 2 {
		if err := h.drop(h.s, n); err != nil {
			return err
		}
	}
	for _, r := range [][2][]byte{{simKey(besideFrom), nil}, {nil, simKey(besideFrom)}} {
		if _, err := h.x.Give(r[0], r[1]); err != nil {
			return err
		}
	}
	if err := h.take(h.x, nil, simKey(besideFrom)); err != nil {
		return err
	}
	return h.take(h.x, simKey(besideFrom), nil)
}

// leaf is the leaf of key n, which has no frame before and after.
func (h *beside) leaf(n uint64) (a pool.Addr, err error) {
	h.late.after = func(read pool.Addr) error { a = read; return nil }
	if _, err := h.s.Lookup(simKey(n), nil); err != nil {
		return a, err
	}
	return a, dex.Forget(h.x, a)
}

func (h *beside) take(x index.Partitioned, start, end []byte) error {
	h.epoch++
	return x.Take(pool.Holding{Start: start, End: end, Epoch: h.epoch})
}

func (h *beside) put(s index.Session, n uint64, v string) error {
	h.have[n] = v
	return s.Upsert(simKey(n), []byte(v))
}

func (h *beside) drop(s index.Session, n uint64) error {
	delete(h.have, n)
	return s.Delete(simKey(n))
}

// inB does something in the second client's process.
func (h *beside) inB(do func() error) (err error) {
	over := h.a.NewEvent()
	h.b.Go("beside", func() {
		defer over.Set()
		err = do()
	})
	over.Wait(env.Forever)
	return err
}

// mergeBelow deletes keys below the range until their leaf was merged with a neighbour, changes
// another one of that leaf, and reports whether it was merged.
func (h *beside) mergeBelow() (merged bool, err error) {
	before := h.x.Stats().Merges
	for n := range uint64(besideFrom) {
		if err := h.drop(h.other, n); err != nil {
			return false, err
		}
		if h.x.Stats().Merges > before {
			merged = true
			break
		}
	}
	return merged, h.put(h.other, 1, "mine")
}

// serve lets the second client take the range and change all of it.
func (h *beside) serve() error {
	return h.inB(func() error {
		if err := h.take(h.y, simKey(besideFrom), simKey(besideTo)); err != nil {
			return err
		}
		r, err := h.y.Session()
		if err != nil {
			return err
		}
		for n := uint64(besideFrom); n < besideTo; n += 2 {
			if err := h.put(r, n, fmt.Sprintf("new %d", n)); err != nil {
				return err
			}
		}
		return r.Close()
	})
}

// judge lets the first client change what it kept and both write back, and looks at everything.
func (h *beside) judge() error {
	for n := range uint64(4) {
		if err := h.put(h.s, n, fmt.Sprintf("kept %d", n)); err != nil {
			return fmt.Errorf("client 1, key %d, which it kept: %w", n, err)
		}
	}
	if h.inline > 0 { // what is old refers to blocks that are used again
		_ = h.inB(func() error { _, err := h.y.(index.Checker).Check(); return err })
	}
	if _, err := h.x.(index.Checker).Check(); err != nil {
		return fmt.Errorf("after client 1 has written back: %w", err)
	}
	if err := h.inB(func() error {
		if _, err := h.y.(index.Checker).Check(); err != nil {
			return fmt.Errorf("after both have written back: %w", err)
		}
		_, err := h.y.Give(simKey(besideFrom), simKey(besideTo))
		return err
	}); err != nil {
		return err
	}
	if err := h.take(h.x, simKey(besideFrom), simKey(besideTo)); err != nil {
		return err
	}
	for n := range uint64(besideAll) {
		v, err := h.s.Lookup(simKey(n), nil)
		if want, there := h.have[n]; there && (err != nil || string(v) != want) || !there && err != index.ErrNotFound {
			return fmt.Errorf("key %d: %q, %v; %q was acknowledged", n, v, err, want)
		}
	}
	return nil
}

// TestGiveBesideMerges gives a range whose lower end was divided long ago. While Give reads the
// leaf at the upper end, a session deletes keys below the range, until their leaf would be merged
// with the first one of the range: both are this client's still.
func TestGiveBesideMerges(t *testing.T) {
	met := false
	runBeside(t, nil, func(h *beside) error {
		upper, err := h.leaf(besideTo)
		if err != nil {
			return err
		}
		var during func(a pool.Addr) error
		during = func(a pool.Addr) error {
			if a != upper {
				h.late.after = during
				return nil
			}
			met = true
			_, err := h.mergeBelow()
			return err
		}
		h.late.after = during
		if _, err := h.x.Give(simKey(besideFrom), simKey(besideTo)); err != nil {
			return err
		}
		h.late.after = nil
		return h.serve()
	})
	if !met {
		t.Error("no key was deleted while Give read the leaf at the upper end: this tests nothing")
	}
}
