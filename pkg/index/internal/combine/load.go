package combine

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
)

// A READ that waits for the one before it takes up to twice as long. That pays where READs wait in
// line at a memory server or its NIC: there each one that is spared makes all the others faster.
// Where nothing stands in line it only costs. So sessions meet in the table only while READs take
// longer than they need: the median of the last ones, against the fastest one.
const (
	// sampleEvery is of how many READs of a reader one is timed.
	sampleEvery = 32
	// leastMedian: where READs are faster waking a goroutine takes as long. So it is with memory
	// that is shared with the server.
	leastMedian = time.Microsecond
	// loadedNum/loadedDen times the fastest READ is a median under load.
	loadedNum, loadedDen = 3, 2
	// medianStep: a sample moves the median by one part in so many. So a few that took very long,
	// since their goroutine was not scheduled, change little.
	medianStep = 32
	// The fastest READ is forgotten: by one part in floorStep every floorEvery, which is by half in
	// twelve minutes. The network may have become slower for good.
	floorStep  = 1024
	floorEvery = time.Second
)

// sizes of READs are told apart: a large one takes longer than a small one where neither waits.
const sizes = 4

// sizeOf is that of a READ of n bytes: up to 256, up to 1 KiB, up to 4 KiB, above.
func sizeOf(n int) int {
	return max(0, min(sizes-1, (bits.Len(uint(max(n-1, 0)))-7)/2))
}

// load reports whether READs of a size stand in line. Safe for concurrent use; two samples at once
// may count as one.
type load struct {
	loaded atomic.Bool
	_      [63]byte
	floor  atomic.Int64 // ns; 0 = nothing is known
	median atomic.Int64
	raised atomic.Int64 // when the floor was
}

// add adds a sample: a READ that ended at now took d.
func (l *load) add(now, d time.Duration) {
	d = max(d, 1)
	floor, median := time.Duration(l.floor.Load()), time.Duration(l.median.Load())
	if raised := l.raised.Load(); now-time.Duration(raised) >= floorEvery && l.raised.CompareAndSwap(raised, int64(now)) {
		floor += floor/floorStep + 1
	}
	if median == 0 {
		floor, median = d, d
	}
	floor = min(floor, d)
	if d > median {
		median += median/medianStep + 1
	} else {
		median -= median / medianStep
	}
	l.floor.Store(int64(floor))
	l.median.Store(int64(median))
	if is := median >= leastMedian && median*loadedDen >= floor*loadedNum; is != l.loaded.Load() {
		l.loaded.Store(is)
	}
}

// isWorthMeeting reports whether sessions shall meet in the table now that READ n bytes. In builds
// with invariants that is mostly so, whatever the load.
func (t *Reads) isWorthMeeting(n int) bool {
	return t.loads[sizeOf(n)].loaded.Load() || invariants.Enabled && t.env.Uint64()%4 != 0
}

// Start is called before the session's own READ, and returns when it began, if it is one of those
// that are timed; else 0. Took comes after it.
func (r *Reader) Start(e env.Env) time.Duration {
	if r.reads++; r.reads%sampleEvery != 1 || r.id == 0 {
		return 0
	}
	return max(1, e.Now())
}

// Took ends what Start began, for a READ of n bytes.
func (r *Reader) Took(e env.Env, began time.Duration, n int) {
	if began != 0 {
		now := e.Now()
		r.table.loads[sizeOf(n)].add(now, now-began)
	}
}
