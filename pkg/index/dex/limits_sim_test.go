package dex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/redo"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// stalled has so many batches under way that the next record has to wait for one. The result lets
// them end.
func stalled(x *dex) (end func(), err error) {
	var lanes []*redo.Appender
	end = func() {
		for _, a := range lanes {
			a.Finish(nil)
		}
	}
	for starts := true; ; {
		a, before := x.log.Appender(), x.log.Counts().Batches
		try := a.TryAppend
		if starts {
			try = a.Append
		}
		position, err := try(noRecord())
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

// noRecord is one that a replay ignores: it takes back a record that there is not.
func noRecord() []byte { return record.Append(nil, record.Cancel, 0, nil, make([]byte, 8)) }

// unstalled runs do while a batch of the log is under way, which is over afterwards.
func unstalled(x *dex, do func() error) error {
	late := x.log.Appender()
	position, err := late.Append(noRecord())
	if err != nil {
		return err
	}
	late.Start(position)
	defer late.Finish(nil)
	return do()
}

// TestLimitEndsOneOperation: a leaf without room gets keys while a batch of the log is late, with
// frames that have changes and with leaves that have none, so that the record comes beside the
// READ. The limit of each insertion is over before. It ends with that; its client goes on, and none
// of the keys is there but those whose insertion has an unknown outcome.
func TestLimitEndsOneOperation(t *testing.T) {
	for _, frames := range []bool{false, true} {
		simulated(t, func(p *simenv.Process, x *dex, s *session) error {
			hasty, err := x.newSession()
			if err != nil {
				return err
			}
			hasty.SetLimit(20 * time.Millisecond)
			key := func(n, m uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<20+m) }
			for n := range uint64(20) {
				if err := s.Insert(key(n, 0), []byte("value")); err != nil {
					return err
				}
			}
			may := map[uint64]bool{}
			for m := uint64(1); m < 12; m++ {
				if err := x.flushAll(!frames); err != nil {
					return err
				}
				if frames {
					if err := s.Update(key(3, 0), []byte("value")); err != nil {
						return err
					}
				}
				began := p.Now()
				err := unstalled(x, func() error { return hasty.Insert(key(3, m), []byte("new")) })
				if !errors.Is(err, index.ErrTimeout) && !errors.Is(err, index.ErrUnknown) {
					return fmt.Errorf("while the log is late insertion %d ends with %v", m, err)
				}
				if took := p.Now() - began; took > 2*hasty.limit {
					return fmt.Errorf("insertion %d ends after %v: %w", m, took, err)
				}
				may[m] = errors.Is(err, index.ErrUnknown)
				if e := x.pool.Alive(); e != nil {
					return fmt.Errorf("after insertion %d, which ended with %v: %w", m, err, e)
				}
			}
			for m := uint64(1); m < 12; m++ {
				if _, err := s.Lookup(key(3, m), nil); err != nil && !errors.Is(err, index.ErrNotFound) || err == nil && !may[m] {
					return fmt.Errorf("key %d, whose insertion timed out: %v", m, err)
				}
			}
			return errors.Join(s.Upsert(key(3, 5), []byte("then")), hasty.Close())
		})
	}
}

// TestWaitForTheLogEnds: a change that would have to wait for the log's batches for longer than its
// limit, with a frame of its leaf and without, ends without having been made. Nobody waits for the
// frame meanwhile. The client goes on.
func TestWaitForTheLogEnds(t *testing.T) {
	simulated(t, func(p *simenv.Process, x *dex, s *session) error {
		key := binary.BigEndian.AppendUint64(nil, 1<<40)
		if err := s.Insert(key, []byte("before")); err != nil {
			return err
		}
		hasty, err := x.newSession()
		if err != nil {
			return err
		}
		hasty.SetLimit(time.Second)
		for _, frame := range []bool{false, true} {
			if err := x.flushAll(!frame); err != nil {
				return err
			}
			end, err := stalled(x)
			if err != nil {
				return err
			}
			began := p.Now()
			err = hasty.Update(key, []byte("never"))
			took := p.Now() - began
			if got, e := s.Lookup(key, nil); e != nil || string(got) != "before" {
				return fmt.Errorf("found %q, %w, after %v", got, e, err)
			}
			end()
			if !errors.Is(err, pool.ErrTimeout) || errors.Is(err, index.ErrUnknown) || took > 2*hasty.limit {
				return fmt.Errorf("with a frame, %v: an update ends with %v, after %v", frame, err, took)
			}
		}
		return errors.Join(hasty.Update(key, []byte("then")), hasty.Close(), x.pool.Alive())
	})
}

// TestLateEvictionEndsAChange: the frame that a change needs is written back, which takes longer
// than the limit of the change. It ends with that, and was not made.
func TestLateEvictionEndsAChange(t *testing.T) {
	simulated(t, func(p *simenv.Process, x *dex, s *session) error {
		hasty, err := x.newSession()
		if err != nil {
			return err
		}
		key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<20) }
		late := 0
		for round := range 400 {
			n := uint64(round * 37 % 400)
			if err := s.Upsert(key(n), []byte("value")); err != nil {
				return err
			}
			n = (n + 200) % 400
			hasty.SetLimit(time.Nanosecond)
			wrote := hasty.Counters().Requests[verbs.Write]
			err := hasty.Upsert(key(n), []byte("late"))
			wrote = hasty.Counters().Requests[verbs.Write] - wrote
			hasty.SetLimit(time.Second)
			if wrote > 0 && errors.Is(err, pool.ErrTimeout) {
				late++
				if got, e := s.Lookup(key(n), nil); !errors.Is(e, index.ErrNotFound) && string(got) == "late" {
					return fmt.Errorf("round %d: a change that needed %d WRITEs, and ended with %w, is made", round, wrote, err)
				}
			}
			if err := s.Upsert(key(n), []byte("value")); err != nil {
				return err
			}
			if hasty.b.PS.Err() != nil { // a READ was late
				_ = hasty.Close()
				if hasty, err = x.newSession(); err != nil {
					return err
				}
			}
		}
		if late == 0 {
			return errors.New("no change was late because of an eviction")
		}
		return errors.Join(hasty.Close(), x.pool.Alive())
	})
}
