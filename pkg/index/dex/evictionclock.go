package dex

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/pool"
)

// evictionClock remembers when leaves left the cache, by a clock that counts departures. What a
// memory server says of a leaf is what the client would say of it only if the leaf was not in the
// cache meanwhile: else changes may have been there that were not written back. The address is
// known only afterwards, so:
//
//	the reader               who evicts, with the frame's lock
//	1  looks at the clock    a  has written back, and that is confirmed
//	2  calls                 b  counts the clock up and notes the time of the leaf
//	3  finds no frame        c  takes the place away by which the frame is found
//	4  finds no time of the leaf after 1
//
// Let a frame have been there at some moment from 1 to 3. It was gone at 3, so c came before 3, and
// b before 4. If b came after 1 the reader sees that at 4. If b came before 1 then a came before 2:
// the call sees all that was written back (G3), and after b nobody changes the leaf in that frame,
// whose lock is held. So where 3 and 4 find nothing, what the call read was the leaf at that
// moment.
//
// When a range is taken all leaves depart: others have changed them who note nothing here. Who READ
// before that knows nothing, also of a range that this client had before.
//
// Leaves share times, by a hash: then a reader may look again for nothing. A time never falls
// (raise).
type evictionClock struct {
	clock atomic.Uint64
	all   atomic.Uint64 // when a range was taken the last time
	last  []atomic.Uint64
	least []atomic.Uint64 // in builds with invariants: what each of last was at least
}

// recordAll notes that a range is about to be taken, of which all is in the memory servers.
func (d *evictionClock) recordAll() { d.raise(&d.all) }

// record is step b.
func (d *evictionClock) record(a pool.Addr) {
	d.raise(d.of(a))
	if invariants.Enabled {
		least := &d.least[d.number(a)]
		for was, now := least.Load(), d.of(a).Load(); was < now && !least.CompareAndSwap(was, now); was = least.Load() {
		}
	}
}

// raise counts the clock up and makes the time at least what it shows then. Leaves of several
// shards share a time, and no lock is common to their departures: one that has counted the clock up
// may stand still while a later one stores its time. Then the later time stays: a reader whose step
// 1 lies between the two must find the later departure. So a time never falls, and when raise
// returns the time is after everything that the clock had shown when raise began, whichever
// departure stored it.
func (d *evictionClock) raise(time *atomic.Uint64) {
	now := d.clock.Add(1)
	for was := time.Load(); was < now && !time.CompareAndSwap(was, now); was = time.Load() {
	}
}

// after reports whether the leaf at a may have left the cache after the clock showed t.
func (d *evictionClock) after(a pool.Addr, t uint64) bool {
	if invariants.Enabled {
		least := d.least[d.number(a)].Load()
		last := d.of(a).Load()
		invariants.Check(last >= least, "the leaf at %v departed at %d, and at %d before", a, last, least)
	}
	return d.of(a).Load() > t || d.all.Load() > t
}

// still reports whether what was READ, or told, of the leaf at a after the clock showed since is
// what it is now, or was when this began.
func (c *cache) still(a pool.Addr, since uint64) bool {
	return c.find(a) == nil && !c.evictions.after(a, since)
}

// start makes room for n times.
func (d *evictionClock) start(n int) {
	d.last = make([]atomic.Uint64, n)
	if invariants.Enabled {
		d.least = make([]atomic.Uint64, n)
	}
}

func (d *evictionClock) of(a pool.Addr) *atomic.Uint64 { return &d.last[d.number(a)] }

func (d *evictionClock) number(a pool.Addr) uint64 {
	return lfu.Hash(a) * 0xC2B2AE3D27D4EB4F >> 32 * uint64(len(d.last)) >> 32
}
