package dex

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
)

// entriesOf runs f with entries in a simulation, so that waits take no time.
func entriesOf(t *testing.T, f func(p *simenv.Process, x *dex, e *rowCache) error) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 20_000_000})
	if err := w.Run(func(p *simenv.Process) {
		x := &dex{env: p}
		x.with, _ = techniquesOf(nil)
		x.cache = newCache(p, x.with, entryShare*(32<<10), 256)
		if err := f(p, x, &x.cache.rows); err != nil {
			w.Fail(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestHeldBucketsKeepTheirNumber: if a bucket that a change of their number needs stays locked, the
// number stays as it is, without a long wait. The entries are as before, and all other buckets are
// unlocked.
func TestHeldBucketsKeepTheirNumber(t *testing.T) {
	entriesOf(t, func(p *simenv.Process, x *dex, e *rowCache) error {
		var keys [][]byte
		for n := range uint64(300) {
			k := binary.BigEndian.AppendUint64(nil, n<<20)
			e.leave(x, k, k)
			keys = append(keys, k)
		}
		check := func() error {
			for _, k := range keys {
				if v, st := e.look(x, k, nil); st != frame.Done || !bytes.Equal(v, k) {
					return fmt.Errorf("key %x has %x, state %d", k, v, st)
				}
			}
			return nil
		}
		for _, more := range []bool{true, false} {
			n := e.buckets()
			last := n
			if !more {
				last--
			}
			for held := last % e.part; held <= last; held += e.part {
				if !lock(e.at(held)) {
					return fmt.Errorf("bucket %d is locked", held)
				}
				began := p.Now()
				if ok := e.resize(x, more); ok || p.Now()-began > time.Millisecond {
					return fmt.Errorf("with bucket %d of %d locked, after %v: %v", held, n, p.Now()-began, ok)
				}
				unlock(e.at(held))
				for i := range e.most {
					if v := atomic.LoadUint64(&e.at(i)[0]); v&1 != 0 && v != removed {
						return fmt.Errorf("bucket %d stays locked", i)
					}
				}
				if err := check(); err != nil || e.buckets() != n {
					return fmt.Errorf("%d buckets, before %d: %v", e.buckets(), n, err)
				}
			}
			if !e.resize(x, more) {
				return fmt.Errorf("nothing is locked, and there are %d buckets still", n)
			}
			if err := check(); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestPagesAreFreedUnlocked: a session with an old state has locked a bucket that is not there. Its
// page does not go back to the kernel while it has it. So the bucket may come back.
func TestPagesAreFreedUnlocked(t *testing.T) {
	entriesOf(t, func(p *simenv.Process, x *dex, e *rowCache) error {
		const page = pageBytes / (8 * bucketWords)
		begin := (e.buckets() + page - 1) / page * page
		to := func(n uint64) error {
			for e.buckets() != n {
				if !e.resize(x, e.buckets() < n) {
					return fmt.Errorf("there are %d buckets still, and not %d", e.buckets(), n)
				}
			}
			return nil
		}
		for range 2 { // buckets that were never there, and some that were
			if err := to(begin + 1); err != nil {
				return err
			}
			if b := e.at(begin + 1); b[0] == removed {
				return nil // no page is freed here, so nobody locks it
			} else if !lock(b) {
				return fmt.Errorf("bucket %d, which is not there, has the version %x", begin+1, b[0])
			}
			g, freed := env.NewWaitGroup(p), error(nil)
			g.Go("remove", func() { freed = to(begin) })
			p.Sleep(time.Second)
			unlock(e.at(begin + 1))
			g.Wait(env.Forever)
			if freed != nil {
				return freed
			}
			if err := to(begin + 3); err != nil {
				return err
			}
			if err := to(begin); err != nil {
				return err
			}
		}
		return nil
	})
}
