package ownership

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/memservertest"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
)

// holder is a client of a home memory server. It implements Owner.
type holder struct {
	index.Index
	home   *memservertest.Bare
	client uint32
	given  []string // keys that it gave and did not take since
}

func (x *holder) Alive() error                           { return nil }
func (x *holder) Condemn(error)                          {}
func (x *holder) Log() []byte                            { return nil }
func (x *holder) Servers() []uint16                      { return []uint16{1} }
func (x *holder) Others() ([]uint16, error)              { return nil, nil }
func (x *holder) Client() uint32                         { return x.client }
func (x *holder) Holdings() ([]pool.Held, error)         { return x.home.Holdings("uid") }
func (x *holder) FenceOthers(_ uint16, _ []uint32) error { return nil }

func (x *holder) Take(r pool.Holding) error {
	keys := partition.Interval(r.Start, r.End)
	for i, given := range x.given {
		if given == keys {
			x.given = append(x.given[:i], x.given[i+1:]...)
			break
		}
	}
	return nil
}

func (x *holder) Give(start, end []byte) (int, error) {
	x.given = append(x.given, partition.Interval(start, end))
	return 0, nil
}

func (x *holder) Settle(start, end []byte, epoch uint64) error {
	return x.home.Settle("uid", x.client, start, end, epoch)
}

func (x *holder) Release(start, end []byte, epoch uint64) error {
	return full(x.home.Release("uid", x.client, start, end, epoch))
}

func (x *holder) Acquire(c pool.Claim) (pool.Acquired, error) {
	c.Client = x.client
	got, err := x.home.Acquire("uid", c)
	return got, full(err)
}

// full is an error as the network brings it.
func full(err error) error {
	if errors.Is(err, ledger.ErrHoldings) {
		return fmt.Errorf("%w: %w", pool.ErrHoldings, err)
	}
	return err
}

// TestMoveAtTheLimitOfHoldings: an index has about as many holdings as it may have when a map moves
// keys out of the middle of one. The move is put off: each key stays served, by its former owner,
// which says so and is not given up. When there is room again the keys move.
func TestMoveAtTheLimitOfHoldings(t *testing.T) {
	const most = 64
	world := simenv.New(simenv.Options{Seed: 1})
	err := world.Run(func(p *simenv.Process) {
		home, err := memservertest.NewBare(p, memservertest.BareOptions{
			Locks: make([]byte, 64), Shape: ledger.Shape{ChunkBytes: 1 << 20, Chunks: 1, Slots: 1, Locks: 32},
			Save: func([]byte) error { return nil }, Log: slog.New(slog.DiscardHandler), Lease: time.Hour, Holdings: most,
		})
		if err == nil {
			err = home.Admit("uid", 1, 4)
		}
		if err == nil {
			err = home.SwapMap("uid", 0, 1, nil)
		}
		if err != nil {
			t.Error(err)
			return
		}
		register := func(name string) *holder {
			id, err := home.Register("uid", name)
			if err != nil {
				t.Error(err)
			}
			return &holder{home: home, client: id}
		}
		// ranges of others, which load has moved by and by
		other := register("other")
		const others = most - 20
		for n := range others {
			if _, err := other.Acquire(pool.Claim{Generation: 1, Start: fmt.Appendf(nil, "z%04d", n), End: fmt.Appendf(nil, "z%04d", n+1)}); err != nil {
				t.Error(err)
				return
			}
		}
		var gaveUp error
		run := func(id uint32, x *holder) (*Manager, *View, *Tables) {
			v, tables := NewView(p, id, false), NewTables(p)
			h := NewManager(x, Options{
				Env: p, View: v, Tables: tables, GiveUp: func(_ Opened, why error) { gaveUp = why }, Limit: time.Second,
				TakeOvers: NewTakeOvers(p), Log: slog.New(slog.DiscardHandler),
			})
			p.Go("hold ranges", h.Run)
			return h, v, tables
		}
		x, y := register("pod-1"), register("pod-2")
		h, v, tables := run(1, x)
		h2, v2, tables2 := run(2, y)
		servers := []partition.Server{{ID: 1, Name: "pod-1"}, {ID: 2, Name: "pod-2"}}
		generation := uint64(1)
		apply := func(ranges ...partition.Range) {
			if generation > 1 {
				if err := home.SwapMap("uid", generation-1, generation, nil); err != nil {
					t.Error(err)
				}
			}
			m := &partition.Map{Generation: generation, Index: "uid", Servers: servers, Ranges: ranges}
			generation++
			v.Apply(m)
			v2.Apply(m)
		}
		serves := func(tables *Tables, of Opened, key string) bool {
			_, ok := tables.Current().Serves(of, []byte(key), false)
			return ok
		}
		await := func(what string, f func() bool) {
			for begun := p.Now(); !f(); p.Sleep(10 * time.Millisecond) {
				if p.Now()-begun > time.Minute {
					t.Errorf("not within a minute: %s; the client is given up: %v", what, gaveUp)
					return
				}
			}
		}
		start := func(key string, owner uint32) partition.Range {
			return partition.Range{Start: []byte(key), Owner: owner, Epoch: 1}
		}
		// as many ranges out of the middle as there is no room for
		ranges := []partition.Range{start("", 1)}
		apply(start("", 1), start("m", 2))
		await("both serve", func() bool { return serves(tables, x, "a") && serves(tables2, y, "n") })
		moves := most / 8
		for n := range moves {
			ranges = append(ranges, start(fmt.Sprintf("a%04d", 2*n), 2), start(fmt.Sprintf("a%04d", 2*n+1), 1))
		}
		apply(append(ranges, start("m", 2))...)
		p.Sleep(5 * time.Second)
		deferred, moved := 0, 0
		for n := range moves {
			key := fmt.Sprintf("a%04d+", 2*n)
			switch mine, hers := serves(tables, x, key), serves(tables2, y, key); {
			case mine && !hers:
				deferred++
			case hers && !mine:
				moved++
			default:
				t.Errorf("%q is served by both, or by nobody: %v", key, h.Why([]byte(key)))
			}
		}
		for _, key := range []string{"a", "a0001+", "b", "n"} {
			if serves(tables, x, key) == serves(tables2, y, key) {
				t.Errorf("%q is served by both, or by nobody", key)
			}
		}
		says := 0
		for _, s := range h.Status() {
			if strings.Contains(s.Reason, "until they can be moved") {
				says++
			}
		}
		if deferred == 0 || moved == 0 || gaveUp != nil || len(x.given) != moved || says != deferred {
			t.Errorf("%d moves are put off, %d say so, %d were made; given, and not taken again: %q; the client is given up: %v", deferred, says, moved, x.given, gaveUp)
		}
		held, _ := home.Holdings("uid")
		for _, r := range held {
			if r.Client == other.client {
				if err := other.Release(r.Start, r.End, r.Epoch); err != nil {
					t.Error(err)
				}
			}
		}
		await("the keys move when there is room", func() bool {
			for n := range moves {
				if !serves(tables2, y, fmt.Sprintf("a%04d+", 2*n)) {
					return false
				}
			}
			return true
		})
		h.End(false)
		h2.End(false)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestShareOfHoldings: the more servers an index has, the fewer holdings each has before it joins
// some, so that they never are too many together.
func TestShareOfHoldings(t *testing.T) {
	for _, servers := range []int{1, 10, 30, 100, 600, 2000} {
		world := simenv.New(simenv.Options{Seed: 1})
		_ = world.Run(func(p *simenv.Process) {
			v := NewView(p, 1, false)
			m := &partition.Map{Generation: 1, Index: "uid", Ranges: []partition.Range{{Owner: 1, Epoch: 1}}}
			for id := range servers {
				m.Servers = append(m.Servers, partition.Server{ID: uint32(id + 1)})
			}
			v.Apply(m)
			h := NewManager(&holder{}, Options{Env: p, View: v, Tables: NewTables(p)})
			if share := h.mostHoldings(); share < 1 || share > heldMost || share > 1 && share*servers+partition.MaxSeparate > pool.MaxHoldings*3/4 {
				t.Errorf("each of %d servers has %d holdings before it joins some", servers, share)
			}
		})
	}
}
