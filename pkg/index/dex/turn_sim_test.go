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

// turnSessions change the keys of a leaf at the same time.
const (
	turnSessions = 12
	turnChanges  = 30 // of each
)

// TestTurns: with caching off, sessions that change the keys of one leaf wait for their turns by
// events, READ the leaf less often than they change it and write several changes back together. A
// session finds its own change at once, and a key that an answer says is there, in the memory
// server.
func TestTurns(t *testing.T) {
	for _, long := range []bool{false, true} {
		t.Run(fmt.Sprintf("long=%v", long), func(t *testing.T) {
			inSimulation(t, poolsim.Options{Servers: 1, Chunks: 40, ChunkBytes: 64 << 10, Locks: 64, Fabric: sim.Options{}}, func(c *poolsim.Cluster, p *simenv.Process) error {
				return takeTurns(t, c, p, long)
			})
		})
	}
}

func takeTurns(t *testing.T, c *poolsim.Cluster, p *simenv.Process, long bool) error {
	pl, err := c.Open(p)
	if err != nil {
		return err
	}
	opts := index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 1024, CacheBytes: 1 << 20, Switches: map[string]bool{"caching": false}}
	if long {
		opts.InlineBytes = 8
	}
	open, err := dex.Open(pl, opts)
	if err != nil {
		return err
	}
	x := open.(index.Partitioned)
	if err := x.Take(pool.Holding{Epoch: 1}); err != nil {
		return err
	}
	var requests [verbs.Call + 1]uint64
	slowest, group := time.Duration(0), env.NewWaitGroup(p)
	for i := range uint64(turnSessions) {
		group.Go("change", func() {
			counts, longest, err := takeTurn(p, x, i, long)
			if err != nil {
				p.World().Fail(fmt.Errorf("session %d: %w", i, err))
			}
			for k := range requests {
				requests[k] += counts.Requests[k]
			}
			slowest = max(slowest, longest)
		})
	}
	group.Wait(env.Forever)
	const changes = turnSessions * turnChanges
	lookups := uint64(changes)
	if long {
		return nil
	}
	reads := requests[verbs.Read] - lookups
	t.Logf("%d changes: %d READs, %d WRITEs; the slowest took %v; %d retries", changes, reads, requests[verbs.Write], slowest, x.Stats().Retries)
	if reads > changes/3 || requests[verbs.Write] > changes || x.Stats().Retries > changes/50 {
		t.Errorf("%d READs, %d WRITEs and %d retries of %d changes", reads, requests[verbs.Write], x.Stats().Retries, changes)
	}
	if slowest > 100*time.Microsecond {
		t.Errorf("a change took %v", slowest)
	}
	return nil
}

// takeTurn makes the changes of one session, and looks each key up.
func takeTurn(p *simenv.Process, x index.Index, i uint64, long bool) (counts verbs.Counters, slowest time.Duration, err error) {
	s, err := x.Session()
	if err != nil {
		return counts, 0, err
	}
	for n := range turnChanges {
		key, want := simKey(i), fmt.Sprintf("%d/%d", i, n)
		if long {
			want += " is a long value"
		}
		shared := n%3 == 2
		began := p.Now()
		if shared { // all sessions insert this key
			key = simKey(1000 + uint64(n))
			err = s.Insert(key, []byte(want))
		} else {
			err = s.Upsert(key, []byte(want))
		}
		slowest = max(slowest, p.Now()-began)
		if err != nil && (!shared || err != index.ErrExists) {
			return counts, slowest, err
		}
		exists := err == index.ErrExists
		got, err := s.Lookup(key, nil)
		if err != nil || !exists && string(got) != want {
			return counts, slowest, fmt.Errorf("key %x is %q, %v after it was made %q, or was there: %v", key, got, err, want, exists)
		}
	}
	counts = s.Counters()
	return counts, slowest, s.Close()
}

// TestTurnsWaitForNoFrame: with caching off and a small cache sessions that change different leaves
// at the same time do not wait for each other's frames.
func TestTurnsWaitForNoFrame(t *testing.T) {
	const sessions, keys = 40, 2000
	inSimulation(t, poolsim.Options{Servers: 1, Chunks: 40, ChunkBytes: 64 << 10, Locks: 64}, func(c *poolsim.Cluster, p *simenv.Process) error {
		x, s, err := openAll(c, p, nil, index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 1024, CacheBytes: 32 << 10, Switches: map[string]bool{"caching": false}})
		if err != nil {
			return err
		}
		for n := range uint64(keys) {
			if err := s.Insert(simKey(n), []byte("before")); err != nil {
				return err
			}
		}
		slowest, group := time.Duration(0), env.NewWaitGroup(p)
		for i := range uint64(sessions) {
			group.Go("change", func() {
				s, err := x.Session()
				if err == nil {
					began := p.Now()
					err = s.Update(simKey(i*keys/sessions), []byte("after"))
					slowest = max(slowest, p.Now()-began)
				}
				if err == nil {
					err = s.Close()
				}
				if err != nil {
					p.World().Fail(fmt.Errorf("session %d: %w", i, err))
				}
			})
		}
		group.Wait(env.Forever)
		// READs of inner nodes, of the leaf, and its write-back
		if t.Logf("the slowest took %v", slowest); slowest > 25*time.Microsecond {
			t.Errorf("a change took %v", slowest)
		}
		return s.Close()
	})
}
