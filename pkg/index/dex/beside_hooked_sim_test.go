package dex_test

import (
	"errors"
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

// besideHooked is a client with two sessions and more leaves than frames. What late does happens
// while the first session READs a leaf, beside a record.
type besideHooked struct {
	x        index.Partitioned
	p        *simenv.Process
	cl       *pool.Pool
	late     *lateDevice
	s, other index.Session
}

const besideKeys = 4000

// hookedBeside makes one, in a simulation, and lets do use it.
func hookedBeside(t *testing.T, do func(h *besideHooked) error) {
	t.Helper()
	o := poolsim.Options{Servers: 1, Chunks: 60, ChunkBytes: 64 << 10, Locks: 64, Fabric: sim.Options{}}
	inSimulation(t, o, func(c *poolsim.Cluster, p *simenv.Process) error {
		const node = 512
		h := &besideHooked{p: p, late: newLateDevice(c.Fabric.Device(p), node)}
		cl, err := pool.Open(pool.Config{Env: p, Control: c.Control(p), Devices: []verbs.Device{h.late}, Identity: poolsim.Identity})
		if err != nil {
			return err
		}
		i, err := dex.Open(cl, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: node, CacheBytes: 16 << 10,
			Switches: map[string]bool{"offloading": false, "entries": false}})
		if err != nil {
			return err
		}
		h.cl, h.x = cl, i.(index.Partitioned)
		if err := h.x.Take(pool.Holding{Epoch: 1}); err != nil {
			return err
		}
		if h.s, err = h.x.Session(); err != nil {
			return err
		}
		if h.other, err = h.x.Session(); err != nil {
			return err
		}
		for n := range uint64(besideKeys) {
			if err := h.s.Upsert(simKey(n), []byte("first")); err != nil {
				return err
			}
		}
		return do(h)
	})
}

// beside lets the first session insert keys that are there, until one of their leaves is READ
// beside its record, and does while meanwhile. It returns what that insertion returned.
func (h *besideHooked) beside(while func() error) (err error) {
	for n := uint64(0); n < besideKeys/2; n += 61 {
		met := false
		_, was, _ := dex.Beside(h.x)
		var read func(pool.Addr) error
		read = func(pool.Addr) error {
			if !dex.HasRecordBeside(h.s) { // it is the READ of an inner node
				h.late.after = read
				return nil
			}
			met = true
			return while()
		}
		h.late.after = read
		err := h.s.Insert(simKey(n), []byte("never"))
		h.late.after = nil
		if _, now, _ := dex.Beside(h.x); met && (now > was || !errors.Is(err, index.ErrExists)) {
			return err
		}
	}
	return errors.New("no record was appended beside a READ")
}

// hot is a key whose leaf is in the cache.
var hot = simKey(besideKeys - 1)

func (h *besideHooked) warm() error {
	for range 20 {
		if err := h.other.Upsert(hot, []byte("hot")); err != nil {
			return err
		}
	}
	return nil
}

// TestNobodyWaitsForReadBeside: a record that another session appends behind one whose leaf is
// being READ is durable before that READ is over. So a memory server that answers late does not
// delay changes of leaves on others.
func TestNobodyWaitsForReadBeside(t *testing.T) {
	hookedBeside(t, func(h *besideHooked) error {
		if err := h.warm(); err != nil {
			return err
		}
		h.other.SetLimit(time.Millisecond)
		if err := h.beside(func() error { return h.other.Upsert(hot, []byte("others")) }); !errors.Is(err, index.ErrExists) {
			return fmt.Errorf("another session's change waits for a READ that is not its own: %w", err)
		}
		return nil
	})
}

// TestCancellationHasRoom: while a leaf is READ beside its record, another session fills the log,
// which cannot be truncated beyond that record. The change is refused. The record of that has room
// nevertheless, though the time for the operation is nearly over.
func TestCancellationHasRoom(t *testing.T) {
	hookedBeside(t, func(h *besideHooked) error {
		if err := h.warm(); err != nil {
			return err
		}
		h.s.SetLimit(3 * time.Microsecond)
		filled, used, all := 0, uint64(0), uint64(0)
		if err := h.beside(func() error {
			h.other.SetLimit(time.Millisecond)
			for n := 0; ; n++ {
				if err := h.other.Upsert(hot, fmt.Append(nil, n%1000)); err != nil {
					filled = n
					used, all = dex.LogUse(h.x)
					return nil
				}
			}
		}); !errors.Is(err, index.ErrExists) {
			return fmt.Errorf("after %d records: %w", filled, err)
		}
		if filled == 0 || used < all*9/10 {
			return fmt.Errorf("%d records, and %d of %d bytes of the log are in use: this tests nothing", filled, used, all)
		}
		h.s.SetLimit(index.DefaultLimit)
		h.other.SetLimit(index.DefaultLimit)
		if err := h.other.Upsert(hot, []byte("again")); err != nil {
			return err
		}
		return h.cl.Alive()
	})
}

// TestLogDiesBesideRead: the log dies while a leaf is READ beside its record. The record can be
// neither used nor cancelled. The outcome of this change is unknown, and later ones fail.
func TestLogDiesBesideRead(t *testing.T) {
	hookedBeside(t, func(h *besideHooked) error {
		dead := errors.New("the memory server is gone")
		err := h.beside(func() error {
			h.late.over = func([]verbs.Request) error { return dead }
			if err := h.other.Upsert(hot, []byte("others")); err == nil {
				return errors.New("a change is answered though the log is dead")
			}
			return dead
		})
		if !errors.Is(err, index.ErrUnknown) {
			return fmt.Errorf("a change whose record can be neither used nor cancelled: %w", err)
		}
		if err := h.s.Insert(hot, []byte("late")); err == nil || errors.Is(err, index.ErrExists) {
			return fmt.Errorf("a change by a client that is given up: %w", err)
		}
		return nil
	})
}

// TestLeafIsDividedBehindItsRecords: another session's batch is held up, and so is the record of a
// change in a leaf. Meanwhile keys are inserted into that leaf until it has no room. It is divided
// when that record is durable, and not before: others can read the new leaf at once.
func TestLeafIsDividedBehindItsRecords(t *testing.T) {
	hookedBeside(t, func(h *besideHooked) error {
		if err := h.warm(); err != nil {
			return err
		}
		release, over, held := h.p.NewEvent(), h.p.NewEvent(), false
		h.late.over = func(list []verbs.Request) error {
			last := &list[len(list)-1]
			if !held && last.Op == verbs.Write && dex.InLog(h.x, pool.NewAddr(1, last.Remote)) {
				held = true
				release.Wait(env.Forever)
				h.late.over = nil
			}
			return nil
		}
		h.p.Go("change the hot key", func() {
			defer over.Set()
			if err := h.other.Upsert(hot, []byte("held")); err != nil {
				t.Error(err)
			}
		})
		for !held {
			h.p.Yield()
		}
		released := false
		h.p.Go("release", func() {
			h.p.Sleep(200 * time.Microsecond)
			released = true
			release.Set()
		})
		h.s.Defer(true)
		before, _, _ := dex.Grown(h.x)
		for i := 1; ; i++ {
			if err := h.s.Insert(append(hot[:7:7], byte(i)), []byte("inserted")); err != nil {
				return err
			}
			if now, _, _ := dex.Grown(h.x); now > before {
				break
			}
			if released || i == 100 {
				return fmt.Errorf("no leaf was divided by %d insertions: this tests nothing", i)
			}
		}
		if !released {
			return errors.New("a leaf was divided before its records were durable")
		}
		over.Wait(env.Forever)
		return h.s.Durable(h.s.Position())
	})
}

// TestWriterWaitsWithoutLocks: a batch of the log is held up, and the log becomes half full. The
// writer that makes room waits for that batch, since a leaf has a record behind it. Meanwhile
// sessions read the other leaves that it will write back.
func TestWriterWaitsWithoutLocks(t *testing.T) {
	hookedBeside(t, func(h *besideHooked) error {
		key, value := simKey(besideKeys-200), []byte("durable")
		if err := h.warm(); err != nil { // so that no leaf makes room for it later
			return err
		}
		for range 20 {
			if err := h.s.Upsert(key, value); err != nil {
				return err
			}
		}
		release, over, held := h.p.NewEvent(), h.p.NewEvent(), false
		h.late.over = func(list []verbs.Request) error {
			last := &list[len(list)-1]
			if !held && last.Op == verbs.Write && dex.InLog(h.x, pool.NewAddr(1, last.Remote)) {
				held = true
				release.Wait(env.Forever)
			}
			return nil
		}
		h.p.Go("change the hot key", func() {
			defer over.Set()
			if err := h.other.Upsert(hot, []byte("held")); err != nil {
				t.Error(err)
			}
		})
		for !held {
			h.p.Yield()
		}
		h.s.Defer(true)
		for range 2 { // the first time the log is truncated
			for used, all := dex.LogUse(h.x); used <= all/2; used, _ = dex.LogUse(h.x) {
				if err := h.s.Upsert(hot, []byte("behind")); err != nil {
					return err
				}
			}
			h.p.Sleep(100 * time.Microsecond) // the writer is awake
		}
		behind := h.s.Position()
		h.s.Defer(false)
		h.s.SetLimit(time.Millisecond)
		v, err := h.s.Lookup(key, nil)
		written, _ := dex.WrittenForLog(h.x)
		release.Set()
		over.Wait(env.Forever)
		if err != nil || string(v) != string(value) {
			return fmt.Errorf("a leaf that is to be written back: %q, %w", v, err)
		}
		if err := h.s.Durable(behind); err != nil {
			return err
		}
		h.p.Sleep(100 * time.Microsecond)
		if now, _ := dex.WrittenForLog(h.x); now == written {
			return errors.New("the writer has done nothing: this tests nothing")
		}
		return nil
	})
}
