package dex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestGrowthMeetsLateLog: a leaf is divided for pairs that are about to come, and what has to leave
// the cache for the new leaves waits for a batch of the log that is late. So do leaves that stayed
// empty, and are to be merged. That ends with the limit of the preparation, and the parents know
// new leaves without frames.
func TestGrowthMeetsLateLog(t *testing.T) {
	defer func(was bool) { seldom = was }(seldom)
	seldom = false
	simulated(t, func(p *simenv.Process, x *dex, s *session) error {
		hasty, err := x.newSession()
		if err != nil {
			return err
		}
		hasty.SetLimit(20 * time.Millisecond)
		key := func(n, m uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<20+m) }
		const keys, each = 400, 30
		for n := range uint64(keys) {
			if err := s.Insert(key(n, 0), []byte("value")); err != nil {
				return err
			}
		}
		unframed, connected, late := 0, 0, 0
		for n := uint64(10); n < keys; n += 20 {
			if hasty.batch != nil && n%40 == 10 { // else none of the time is left for the new leaf
				hasty.batch.ready.growth.empty = nil
			}
			if err := s.Update(key(n, 0), []byte("value")); err != nil {
				return err
			}
			s.Defer(true)
			for k := range uint64(keys) { // the cache is full of changes that are not durable
				a, hint := s.b.DescendCached(key(k, 0))
				if hint == 0 || x.cache.Find(a) == nil || k >= n-10 && k <= n+10 {
					continue
				}
				if err := s.Update(key(k, 0), []byte("other")); err != nil {
					return err
				}
			}
			batch := x.log.Appender()
			batch.Start(s.Position())
			var pairs, values [][]byte
			for m := range uint64(each) {
				pairs, values = append(pairs, key(n, 1+m)), append(values, []byte("sixteen bytes it"))
			}
			x.presplits.met()
			before := x.presplits.divided.Load()
			began := p.Now()
			err := hasty.Prepare(pairs, values)
			took := p.Now() - began
			batch.Finish(nil)
			s.Defer(false)
			if err := s.Durable(s.Position()); err != nil {
				return err
			}
			if err != nil && !errors.Is(err, pool.ErrTimeout) || took > 2*hasty.limit {
				return fmt.Errorf("preparation for keys from %d on ends after %v: %v", n, took, err)
			}
			if err == nil || x.presplits.divided.Load() == before {
				if err != nil {
					late++
				}
				continue
			}
			unframed++
			known := 0
			low, high := key(n, 0), key(n, each)
			if err := x.Survey(func(k []byte, _ int) error {
				if string(k) > string(low) && string(k) <= string(high) {
					known++
				}
				return nil
			}); err != nil {
				return err
			}
			if known > 0 {
				connected++
			}
		}
		if unframed == 0 || late == 0 {
			return fmt.Errorf("%d new leaves were without a frame, %d preparations ended before: this tests nothing", unframed, late)
		}
		if 2*connected < unframed { // the wait for memory of a parent may be cut short, too
			return fmt.Errorf("%d leaves were divided, and their new ones got no frames; the parents know those of %d", unframed, connected)
		}
		return errors.Join(hasty.Close(), x.pool.Alive())
	})
}
