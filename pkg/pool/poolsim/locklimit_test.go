package poolsim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestLimitOfALockHolder: the limit of an operation is less than a round trip takes. A list whose
// end nobody knows would give the client up, so each that a lock depends on is waited for, and so
// is the list that hands a lock over. A list of READs without a lock ends with the limit, and its
// session with it. The client goes on.
func TestLimitOfALockHolder(t *testing.T) {
	oneLock(t, func(c *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
		s, g := seats(t, cl, 4), env.NewWaitGroup(p)
		hasty := &s[0]
		hasty.s.SetLimit(time.Nanosecond)
		must(t, hasty.s.Lock(a[0], hasty.node))
		hasty.s.Read(a[1], hasty.node[:8])
		must(t, hasty.s.Post())
		queued(p, g, func() {
			must(t, s[1].s.Lock(a[0], s[1].node))
			must(t, s[1].s.PostUnlock())
		})
		must(t, hasty.change(a[0], true))
		g.Wait(env.Forever)
		if ok, err := hasty.s.TryLock(a[0], hasty.node); err != nil || !ok {
			t.Fatalf("a lock that is free: %v, %v", ok, err)
		}
		must(t, hasty.s.PostUnlock())
		must(t, s[2].s.Lock(a[0], s[2].node))
		if err := hasty.s.Lock(a[1], hasty.node); !errors.Is(err, pool.ErrTimeout) {
			t.Errorf("a lock that another session holds: %v", err)
		}
		must(t, s[2].s.PostUnlock())
		must(t, hasty.s.Err())

		w := pool.Word{At: a[0] + 256, Node: a[0]}
		_, err := hasty.s.Acquire(w, pool.Span{At: a[0], Local: hasty.node[:8]})
		must(t, err)
		must(t, hasty.s.PostRelease(0, 0))

		hasty.s.Read(a[1], hasty.node[:8])
		if err := hasty.s.Post(); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("a READ without a lock: %v", err)
		}
		must(t, cl.Alive())
		must(t, s[3].s.Lock(a[0], s[3].node))
		must(t, s[3].s.PostUnlock())
	})
}

// TestLimitOfAChangeInDoubt: where a change without an answer gives the client up, such a list is
// waited for.
func TestLimitOfAChangeInDoubt(t *testing.T) {
	oneLock(t, func(c *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
		cl.GiveUpInDoubt()
		s := seats(t, cl, 1)
		s[0].s.SetLimit(time.Nanosecond)
		found, err := s[0].s.SwapWord(a[0], 0, 0)
		must(t, errors.Join(err, cl.Alive()))
		if found != 0 {
			t.Errorf("a new node begins with %d", found)
		}
	})
}
