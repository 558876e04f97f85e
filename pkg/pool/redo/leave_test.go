package redo_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/pool/redo"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// slow runs do with a log of bytes whose memory server takes rtt for each answer, and as long for
// each of so many bytes.
func slow(t *testing.T, rtt time.Duration, each float64, bytes int, do func(p *simenv.Process, cl *pool.Pool, l *redo.Log) error) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 1_000_000})
	model := sim.Paper()
	model.BaseRTT = rtt
	if each > 0 {
		model.Bandwidth = each / float64(rtt)
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 64, Fabric: sim.Options{Model: model}})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		cl, err := c.Open(p)
		if err == nil {
			var l *redo.Log
			if l, err = redo.Create(cl, bytes); err == nil {
				err = do(p, cl, l)
			}
		}
		if err != nil {
			w.Fail(err)
		}
	}))
}

// hasty appends n bytes and waits for them no longer than limit, which is less than the answer
// takes.
func hasty(p *simenv.Process, l *redo.Log, n int, limit time.Duration) (at uint64, err error) {
	a := l.Appender()
	if at, err = a.Append(make([]byte, n)); err != nil {
		return 0, err
	}
	began := p.Now()
	err = a.Wait(at, limit)
	if took := p.Now() - began; !errors.Is(err, pool.ErrTimeout) || took > limit+limit/10 || l.Durable() >= at {
		return 0, fmt.Errorf("a wait of %v ends after %v, the log durable up to %d of %d: %w", limit, took, l.Durable(), at, err)
	}
	return at, nil
}

// TestLimitOfTheOneThatPosts: who posts a batch waits for it no longer than its limit. Another that
// waits for the same batch sees its end; or the next that comes to need it, of so many batches as
// can be under way, too. None of them is lost.
func TestLimitOfTheOneThatPosts(t *testing.T) {
	slow(t, time.Second, 0, redo.MinBytes, func(p *simenv.Process, cl *pool.Pool, l *redo.Log) error {
		const limit = 50 * time.Millisecond
		records := 0
		for _, others := range []int{0, 2} {
			g := env.NewWaitGroup(p)
			var at uint64
			for left := range 20 {
				var err error
				if left == 16 { // too many batches are under way for another one
					before := l.Counts().Batches
					if at, err = hasty(p, l, 100, limit); err != nil || l.Counts().Batches > before {
						return fmt.Errorf("%d batches were posted before, %d are: %w", before, l.Counts().Batches, err)
					}
					records++
					break
				}
				if at, err = hasty(p, l, 100, limit); err != nil {
					return err
				}
				records++
				for range others {
					g.Go("patient", func() {
						if err := l.Appender().Wait(at, 10*time.Second); err != nil {
							t.Errorf("another that waits for a batch that its appender left: %v", err)
						}
					})
				}
			}
			began := p.Now()
			if err := l.Appender().Wait(at, 10*time.Second); err != nil || p.Now()-began > 3*time.Second {
				return fmt.Errorf("a wait for what others left ends after %v: %w", p.Now()-began, err)
			}
			g.Wait(env.Forever)
		}
		err := redo.Replay(cl, l.Ref(), func(uint64, []byte) error {
			records--
			return nil
		})
		if records != 0 {
			err = fmt.Errorf("%d records are missing: %w", records, err)
		}
		return errors.Join(err, cl.Alive(), l.Close(true))
	})
}

// TestWaitersTakeOver: who posted a batch leaves it, then one that took it over. The others that
// wait for it see its end at once.
func TestWaitersTakeOver(t *testing.T) {
	const rtt = time.Second
	slow(t, rtt, 0, redo.MinBytes, func(p *simenv.Process, cl *pool.Pool, l *redo.Log) error {
		g, began := env.NewWaitGroup(p), p.Now()
		waits := func(at uint64, limit, until time.Duration) {
			g.Go("waits", func() {
				err := l.Appender().Wait(at, limit)
				if took := p.Now() - began; took < until || took > until+rtt/10 || (err == nil) != (limit > rtt) {
					t.Errorf("a wait of %v ends after %v: %v", limit, took, err)
				}
			})
		}
		at, err := l.Appender().Append(make([]byte, 100))
		if err != nil {
			return err
		}
		waits(at, rtt/4, rtt/4) // posts it
		p.Sleep(rtt / 8)
		waits(at, rtt/2, rtt/2+rtt/8)
		waits(at, 10*rtt, rtt)
		waits(at, 10*rtt, rtt)
		g.Wait(env.Forever)
		return errors.Join(l.Close(true), cl.Alive())
	})
}

// TestTailThatWasLeft: the batch that moves the tail was left by the one that posted it. Its room
// is used when the move is confirmed. Who needs the room sees to that, and so does Close.
func TestTailThatWasLeft(t *testing.T) {
	slow(t, time.Second, 0, redo.MinBytes, func(p *simenv.Process, cl *pool.Pool, l *redo.Log) error {
		a := l.Appender()
		for l.Used() < redo.MinBytes*7/10 {
			at, err := a.Append(make([]byte, 400))
			if err == nil {
				err = a.Wait(at, time.Minute)
			}
			if err != nil {
				return err
			}
		}
		l.Truncate(l.Durable())
		if _, err := hasty(p, l, 400, 100*time.Millisecond); err != nil {
			return err
		}
		began := p.Now()
		_, err := a.Append(make([]byte, redo.MinBytes/2-4))
		if took := p.Now() - began; err != nil || took < 800*time.Millisecond || took > time.Second {
			return fmt.Errorf("a record that needs room that is about to be released is appended after %v: %w", took, err)
		}
		if _, err := hasty(p, l, 40, 100*time.Millisecond); err != nil {
			return err
		}
		return errors.Join(l.Close(true), cl.Alive())
	})
}

// TestServerAnswersNobody: however short the limits of all that wait for a batch are, a memory
// server that does not answer ends the log once they have waited as long as it may take.
func TestServerAnswersNobody(t *testing.T) {
	slow(t, time.Second, 1000, 32<<10, func(p *simenv.Process, cl *pool.Pool, l *redo.Log) error {
		a := l.Appender()
		at, err := a.Append(make([]byte, 15_000))
		if err != nil {
			return err
		}
		began := p.Now()
		for err = a.Wait(at, 3*time.Second); errors.Is(err, pool.ErrTimeout); err = a.Wait(at, 3*time.Second) {
			if p.Now()-began > time.Minute {
				return fmt.Errorf("the log lives: %w", err)
			}
		}
		if took := p.Now() - began; took != pool.DefaultLimit || !errors.Is(err, verbs.ErrTimeout) {
			return fmt.Errorf("after %v: %w", took, err)
		}
		if _, err := a.Append(nil); err == nil {
			return errors.New("a record is appended to a log that has ended")
		}
		return l.Close(true)
	})
}
