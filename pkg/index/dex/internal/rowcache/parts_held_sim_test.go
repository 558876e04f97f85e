package rowcache

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
)

// entriesOf runs f with entries in a simulation, so that waits take no time.
func entriesOf(t *testing.T, f func(p *simenv.Process, e *Cache) error) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 20_000_000})
	if err := w.Run(func(p *simenv.Process) {
		e := new(Cache)
		startFew(e, p, 32<<10)
		if err := f(p, e); err != nil {
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
	entriesOf(t, func(p *simenv.Process, e *Cache) error {
		var keys [][]byte
		for n := range uint64(300) {
			k := binary.BigEndian.AppendUint64(nil, n<<20)
			e.Put(k, k, nil)
			keys = append(keys, k)
		}
		check := func() error {
			for _, k := range keys {
				if v, st := e.look(k, nil); st != found || !bytes.Equal(v, k) {
					return fmt.Errorf("key %x has %x, state %d", k, v, st)
				}
			}
			return nil
		}
		for _, more := range []bool{true, false} {
			n := e.Buckets()
			last := n
			if !more {
				last--
			}
			for held := last % e.Part; held <= last; held += e.Part {
				if !lock(e.at(held)) {
					return fmt.Errorf("bucket %d is locked", held)
				}
				began := p.Now()
				if ok := e.Resize(more); ok || p.Now()-began > time.Millisecond {
					return fmt.Errorf("with bucket %d of %d locked, after %v: %v", held, n, p.Now()-began, ok)
				}
				unlock(e.at(held))
				for i := range e.Most {
					if v := atomic.LoadUint64(&e.at(i)[0]); v&1 != 0 && v != removed {
						return fmt.Errorf("bucket %d stays locked", i)
					}
				}
				if err := check(); err != nil || e.Buckets() != n {
					return fmt.Errorf("%d buckets, before %d: %v", e.Buckets(), n, err)
				}
			}
			if !e.Resize(more) {
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
	entriesOf(t, func(p *simenv.Process, e *Cache) error {
		const page = memory.PageBytes / (8 * BucketWords)
		begin := (e.Buckets() + page - 1) / page * page
		to := func(n uint64) error {
			for e.Buckets() != n {
				if !e.Resize(e.Buckets() < n) {
					return fmt.Errorf("there are %d buckets still, and not %d", e.Buckets(), n)
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
