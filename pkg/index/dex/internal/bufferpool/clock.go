package bufferpool

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Clock records when leaves left the cache, by a clock that counts evictions. What a memory
// server says of a leaf is what this client would say only if the leaf was not in the cache
// meanwhile: otherwise there may have been changes that were not written back. The leaf's address
// is known only afterwards, so:
//
//	the reader               the evicting session, with the frame's lock
//	1  reads the clock       a  has written back, and that is confirmed
//	2  calls                 b  advances the clock and records the time of the leaf
//	3  finds no frame        c  removes the frame from the table
//	4  finds no time of the leaf after 1
//
// Suppose a frame was there at some moment from 1 to 3. It was gone at 3, so c came before 3, and b
// before 4. If b came after 1 the reader sees that at 4. If b came before 1, then a came before 2:
// the call sees all that was written back (G3), and after b nobody changes the leaf in that frame,
// whose lock is held. So if 3 and 4 find nothing, the call read the leaf as it was at that moment.
//
// When a range is taken, an eviction of all leaves is recorded: other clients have changed them
// without recording it here. So what was READ before that counts as stale, even of a range that
// this client had before.
//
// Leaves share times, by a hash, so a reader may repeat its work without need. A time never falls
// (raise).
type Clock struct {
	clock atomic.Uint64
	all   atomic.Uint64 // when a range was last taken
	last  []atomic.Uint64
	least []atomic.Uint64 // in builds with invariants: lower bounds of last
}

// RecordAll records an eviction of all leaves, because a range is about to be taken. All of the
// range is in the memory servers.
func (d *Clock) RecordAll() { d.raise(&d.all) }

// record is step b.
func (d *Clock) record(a pool.Addr) {
	d.raise(d.of(a))
	if invariants.Enabled {
		least := &d.least[d.number(a)]
		for was, now := least.Load(), d.of(a).Load(); was < now && !least.CompareAndSwap(was, now); was = least.Load() {
		}
	}
}

// raise advances the clock and makes the time at least its new value. Leaves of several shards
// share a time, and no lock is common to their evictions. A session that has advanced the clock may
// be delayed while a later one stores its time. The later time must stay, because a reader whose
// step 1 lies between the two must find the later eviction. So a time never falls. When raise
// returns, the time is after everything that the clock showed when raise began, whichever eviction
// stored it.
func (d *Clock) raise(time *atomic.Uint64) {
	now := d.clock.Add(1)
	for was := time.Load(); was < now && !time.CompareAndSwap(was, now); was = time.Load() {
	}
}

// Now is what the clock shows.
func (d *Clock) Now() uint64 { return d.clock.Load() }

// After reports whether the leaf at a may have been evicted after the clock showed t.
func (d *Clock) After(a pool.Addr, t uint64) bool {
	if invariants.Enabled {
		least := d.least[d.number(a)].Load()
		last := d.of(a).Load()
		invariants.Check(last >= least, "the leaf at %v departed at %d, and at %d before", a, last, least)
	}
	return d.of(a).Load() > t || d.all.Load() > t
}

// Current reports whether what was READ of the leaf at a, or answered by its memory server, after
// the clock showed since is its present state, or was when Current began.
func (c *Pool) Current(a pool.Addr, since uint64) bool {
	return c.Find(a) == nil && !c.Clock.After(a, since)
}

// start allocates n times.
func (d *Clock) start(n int) {
	d.last = make([]atomic.Uint64, n)
	if invariants.Enabled {
		d.least = make([]atomic.Uint64, n)
	}
}

func (d *Clock) of(a pool.Addr) *atomic.Uint64 { return &d.last[d.number(a)] }

func (d *Clock) number(a pool.Addr) uint64 {
	return lfu.Hash(a) * 0xC2B2AE3D27D4EB4F >> 32 * uint64(len(d.last)) >> 32
}
