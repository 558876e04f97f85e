package dex

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// simulatedEntries runs f with an index that this client has taken, in a simulation.
func simulatedEntries(t *testing.T, f func(p *simenv.Process, x *dex, s *session) error) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 20_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Chunks: 12, ChunkBytes: 512 << 10, Locks: 64})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(func(p *simenv.Process) {
		pl, err := c.Open(p)
		if err != nil {
			w.Fail(err)
			return
		}
		o, err := Open(pl, index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 16 << 10})
		if err != nil {
			w.Fail(err)
			return
		}
		x := o.(*dex)
		err = x.Take(pool.Holding{Epoch: 1})
		var s *session
		if err == nil {
			s, err = x.newSession()
		}
		if err == nil {
			err = errors.Join(f(p, x, s), s.Close())
		}
		if err = errors.Join(err, x.Close()); err != nil {
			w.Fail(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// stalled has so many batches under way that the next record has to wait for one. The result lets
// them end.
func stalled(x *dex) (end func(), err error) {
	var lanes []*redo.Appender
	end = func() {
		for _, a := range lanes {
			a.Finish()
		}
	}
	for starts := true; ; {
		a, before := x.log.Appender(), x.log.Counts().Batches
		position, err := a.TryAppend([]byte{0}, 0)
		if err == redo.ErrBusy && !starts {
			return end, nil
		}
		if err != nil {
			end()
			return nil, err
		}
		if starts {
			a.Start(position)
			lanes = append(lanes, a)
			starts = x.log.Counts().Batches > before
		}
	}
}

// TestBucketsAreNotHeldForTheLog: a change of an entry has to wait for the log, for longer than
// others wait for a bucket, and than it takes until they give the client up. Meanwhile the entry is
// found, and it can be made that of a frame; truncation goes on. Then the change is made, in the
// frame.
func TestBucketsAreNotHeldForTheLog(t *testing.T) {
	simulatedEntries(t, func(p *simenv.Process, x *dex, s *session) error {
		key := cached(t, s, []byte("before"))
		if err := s.Update(key, []byte("first")); err != nil {
			return err
		}
		if n := x.dirty.unwritten.Load(); n != 1 {
			return fmt.Errorf("%d entries are unwritten: this tests nothing", n)
		}
		end, err := stalled(x)
		if err != nil {
			return err
		}
		began, g := p.Now(), env.NewWaitGroup(p)
		var changed error
		g.Go("change", func() {
			defer func() { began = p.Now() - began }()
			by, err := x.newSession()
			if err == nil {
				by.SetLimit(time.Minute)
				err = errors.Join(by.Update(key, []byte("second")), by.Close())
			}
			changed = err
		})
		p.Sleep(time.Second)
		quickly := func(what string, f func() error) error {
			began := p.Now()
			err := f()
			if took := p.Now() - began; err != nil || took > time.Millisecond {
				return fmt.Errorf("%s, while another session waits for the log: %w, after %v", what, err, took)
			}
			return nil
		}
		err = quickly("a lookup", func() error {
			if got, err := s.Lookup(key, nil); err != nil || string(got) != "first" {
				return fmt.Errorf("found %q: %w", got, err)
			}
			return nil
		})
		if err == nil {
			err = quickly("truncation", func() error { x.dirty.truncate(); return nil })
		}
		if err == nil {
			err = quickly("a frame for the leaf", func() error {
				s.b.Begin()
				defer s.b.End()
				return s.applyEntries(&ranges{spans: []span{{start: []byte{}}}}, math.MaxUint64)
			})
		}
		if n := x.dirty.unwritten.Load(); err == nil && n != 0 {
			err = fmt.Errorf("%d entries are unwritten, and their leaves have frames", n)
		}
		p.Sleep(3 * bucketLimit / 2)
		end()
		g.Wait(env.Forever)
		if err = errors.Join(err, changed, x.pool.Alive()); err != nil {
			return err
		}
		if began < bucketLimit {
			return fmt.Errorf("the change took %v: this tests nothing", began)
		}
		if got, err := s.Lookup(key, nil); err != nil || string(got) != "second" {
			return fmt.Errorf("found %q after the change: %w", got, err)
		}
		return nil
	})
}

// TestWaitForTheLogEnds: a change of an entry that would have to wait for the log for longer than
// its limit ends without having been made. The client goes on.
func TestWaitForTheLogEnds(t *testing.T) {
	simulatedEntries(t, func(p *simenv.Process, x *dex, s *session) error {
		key := cached(t, s, []byte("before"))
		end, err := stalled(x)
		if err != nil {
			return err
		}
		s.SetLimit(time.Second)
		began := p.Now()
		err = s.Update(key, []byte("never"))
		took := p.Now() - began
		end()
		if s.SetLimit(index.DefaultLimit); !errors.Is(err, pool.ErrTimeout) || errors.Is(err, index.ErrUnknown) || took > 2*time.Second {
			return fmt.Errorf("%v, after %v", err, took)
		}
		if got, err := s.Lookup(key, nil); err != nil || string(got) != "before" {
			return fmt.Errorf("found %q after a change that failed: %w", got, err)
		}
		return errors.Join(s.Update(key, []byte("then")), x.pool.Alive())
	})
}
