package dex_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestLogOfRivals lets many sessions of one client change the same keys at the same time, on real
// processors, mostly in leaves without a frame. Whatever its sessions find at the end is what the
// next client finds, which replays the log over leaves of which some were written back: so the
// order of the log is the order of the changes.
func TestLogOfRivals(t *testing.T) {
	for _, provider := range pooltest.Providers() {
		t.Run(provider, func(t *testing.T) { rivals(t, provider, uint64(time.Now().UnixNano())) })
	}
}

const (
	rivalKeys     = 400
	rivalHot      = 12 // keys that half of the changes are of
	rivalSessions = 8
	rivalRounds   = 5
	rivalChanges  = 2000 // of a session in a round
)

func rivals(t *testing.T, provider string, seed uint64) {
	c := pooltest.New(t, pooltest.Options{Provider: provider, Chunks: 64, ChunkBytes: 8 << 20, Servers: 1, Locks: 4096})
	open := func() index.Partitioned {
		x, err := dex.Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 6 << 10,
			Switches: map[string]bool{"offloading": false}})
		if err != nil {
			t.Fatal(err)
		}
		return x.(index.Partitioned)
	}
	var inherits []pool.Inherited
	found := map[uint64]string{}
	sum := [3]int{}
	for round := range rivalRounds {
		x, epoch := open(), uint64(round+1)
		if err := x.Take(pool.Holding{Epoch: epoch, Inherits: inherits}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		compare := found
		found = lookAll(t, x)
		for n := range uint64(rivalKeys) {
			if found[n] != compare[n] {
				t.Fatalf("seed %d, round %d: key %d was %q, and is %q after the replay", seed, round, n, compare[n], found[n])
			}
		}
		var g sync.WaitGroup
		for id := range rivalSessions {
			s, err := x.Session()
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(seed, uint64(round*rivalSessions+id)))
			g.Go(func() {
				if err := rival(s, r, fmt.Sprint(round, " ", id)); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			})
		}
		g.Wait()
		found = lookAll(t, x)
		made, refused, cancelled := dex.Beside(x)
		sum[0], sum[1], sum[2] = sum[0]+made, sum[1]+refused, sum[2]+cancelled
		// its writer may have leaves to write back: now it writes nothing any more
		if err := c.Fence(uint32(round + 1)); err != nil {
			t.Fatal(err)
		}
		inherits = []pool.Inherited{{Client: uint32(round + 1), Epoch: epoch, Log: x.Log()}}
	}
	t.Logf("records beside READs: %d made, %d refused, %d cancelled", sum[0], sum[1], sum[2])
	if sum[0] < 1000 || sum[1] < 100 || sum[2] <= sum[1] {
		t.Errorf("records beside READs: %v: something hardly ever happened", sum)
	}
}

func rival(s index.Session, r *rand.Rand, name string) error {
	for i := range rivalChanges {
		n := r.Uint64N(rivalKeys)
		if r.IntN(2) == 0 {
			n = r.Uint64N(rivalHot) * rivalKeys / rivalHot
		}
		key, value := simKey(n), fmt.Appendf(nil, "%s %d", name, i)
		var err error
		switch r.IntN(5) {
		case 0, 1:
			err = s.Insert(key, value)
		case 2:
			err = s.Update(key, value)
		case 3:
			err = s.Upsert(key, value)
		default:
			err = s.Delete(key)
		}
		if err != nil && !errors.Is(err, index.ErrExists) && !errors.Is(err, index.ErrNotFound) {
			return err
		}
	}
	return s.Close()
}

// lookAll is what a session finds.
func lookAll(t *testing.T, x index.Index) map[uint64]string {
	t.Helper()
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	found := map[uint64]string{}
	for n := range uint64(rivalKeys) {
		switch v, err := s.Lookup(simKey(n), nil); {
		case err == nil:
			found[n] = string(v)
		case !errors.Is(err, index.ErrNotFound):
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return found
}
