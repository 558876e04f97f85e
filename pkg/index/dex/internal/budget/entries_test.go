package budget

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/bufferpool"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/rowcache"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// few frames are few.
const few = 48

// TestShareOfEntries: the side whose bytes are worth more by a quarter gets some, step by step. Few
// frames get no fewer, and get back what entries have beyond what they had at first. There are as
// many buckets as there may be, at least and at most.
func TestShareOfEntries(t *testing.T) {
	room := rowcache.Room{Part: 10, First: 40, Most: 100}
	const step = 10 / stepsOfPart
	for _, c := range []struct {
		name            string
		n               uint64
		live            int
		entries, frames float64
		want            uint64
	}{
		{"nothing was found", 50, few, 0, 0, 50},
		{"worth the same", 50, few, 1, 1, 50},
		{"entries worth a quarter more, and no more than that", 50, few, 1.25, 1, 50},
		{"entries worth more", 50, few, 1.26, 1, 50 + step},
		{"only entries found", 50, few, 0.001, 0, 50 + step},
		{"frames worth a quarter more, and no more than that", 50, few, 1, 1.25, 50},
		{"frames worth more", 50, few, 1, 1.26, 50 - step},
		{"only frames found", 50, few, 0, 0.001, 50 - step},
		{"as many as there may be", 100, few, 9, 1, 100},
		{"nearly as many as there may be", 98, few, 9, 1, 100},
		{"as few as there may be", 10, few, 1, 9, 10},
		{"nearly as few as there may be", 12, few, 1, 9, 10},
		{"few frames, and entries worth more", 40, few - 1, 9, 1, 40},
		{"few frames, and more entries than at first", 41, few - 1, 9, 1, 41 - step},
		{"few frames, and frames worth more", 40, few - 1, 1, 9, 40 - step},
	} {
		w := worth{share: share{room}, few: few, live: c.live, entries: c.entries, frames: c.frames}
		if got := w.buckets(c.n); got != c.want {
			t.Errorf("%s: %d buckets in place of %d, want %d", c.name, got, c.n, c.want)
		}
	}
	w := worth{share: share{rowcache.Room{Part: 1, First: 2, Most: 4}}, few: few, live: few, entries: 1}
	if got := w.buckets(2); got != 3 {
		t.Errorf("the smallest step leads from 2 buckets to %d", got)
	}
}

// TestWorthOfGhosts: ghosts of entries and of leaves count by the bytes that they stand for.
// Nothing is decided before enough of them were found; then counting begins anew.
func TestWorthOfGhosts(t *testing.T) {
	o := Defaults()
	o.Entries, o.Moves = true, true
	const node = 1024
	image := 8 * bufferpool.StrideOf(node/8)
	room, frames, used := o.Divide(4<<20, node+bufferpool.FrameCost(node/8, false), image)
	x, rows := Budget{env: env.Real(), o: o}, new(rowcache.Cache)
	c := bufferpool.New(env.Real(), bufferpool.Options{NodeBytes: node, Frames: frames, Live: used, Ghosts: x.LeafGhosts(), Least: 8, ShardFrames: 256, DepartedShare: 1})
	rows.Start(x.env, item.HashOf(siphash.Key{}), room)
	x.Serve(c, rows, nil)
	n := rows.Buckets()
	live, ghosts := c.Live()
	if live < few || ghosts == 0 || n <= room.Part || n >= room.Most {
		t.Fatalf("%d frames, %d ghosts of leaves, %d buckets: this tests nothing", live, ghosts, n)
	}
	if got := x.wantBuckets(n); got != n {
		t.Fatalf("%d buckets in place of %d, and nothing was found", got, n)
	}
	// Each bucket has 20 entries and 4 ghosts, so all ghosts stand for a fifth of the buckets'
	// bytes.
	const entries, last = 20, 4
	ghostBytes, leafBytes := float64(n*8*rowcache.BucketWords)*last/entries, float64(ghosts*c.FrameBytes())
	// found is so many ghosts of entries for each so many bytes, and of leaves by times as many.
	found := func(times float64) uint64 {
		const each = 1000
		x.finds.entries.Store(each)
		x.finds.weight.Store(each * entries * rowcache.GhostCount / last)
		x.finds.leaves.Store(int64(times * each * leafBytes / ghostBytes))
		return x.wantBuckets(n)
	}
	for _, k := range []struct {
		times      float64
		more, less bool
	}{{1, false, false}, {1.2, false, false}, {1 / 1.2, false, false}, {1.3, false, true}, {1 / 1.3, true, false}} {
		if got := found(k.times); (got > n) != k.more || (got < n) != k.less {
			t.Errorf("a byte of leaves is worth %.2f times one of entries: %d buckets in place of %d", k.times, got, n)
		}
		f := &x.finds
		if f.entries.Load() != 0 || f.weight.Load() != 0 || f.leaves.Load() != 0 {
			t.Errorf("counting does not begin anew: %d, %d, %d", f.entries.Load(), f.weight.Load(), f.leaves.Load())
		}
	}
	x.finds.entries.Store(enoughFinds - 1)
	x.finds.weight.Store(1 << 20)
	if got := x.wantBuckets(n); got != n || x.finds.entries.Load() != enoughFinds-1 {
		t.Errorf("%d buckets in place of %d after %d ghosts", got, n, enoughFinds-1)
	}
}

// TestChanceMovesNothing: where both sides are worth the same, what is found by chance moves hardly
// a bucket, in a cache of any size: to move one costs as much as a READ does. Where one side is
// worth twice as much, it soon has all that it may have.
func TestChanceMovesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for _, part := range []uint64{1, 10, 100, 1000, 10_000, 100_000} {
		room := share{rowcache.Room{Part: part, First: 8 * part, Most: 16 * part}}
		for _, odds := range []float64{1, 2} {
			const decisions = 300
			n, moved, found := room.First, uint64(0), int64(0)
			for range decisions {
				each := room.findsOfStep()
				// finds of one side, of many by chance: as good as normal
				p := odds / (1 + odds)
				entries := float64(each)*p + r.NormFloat64()*math.Sqrt(float64(each)*p*(1-p))
				w := worth{share: room, few: few, live: few, entries: entries, frames: float64(each) - entries}
				was := n
				n = w.buckets(n)
				moved += max(n, was) - min(n, was)
				found += each
			}
			switch perFind := float64(moved) / float64(found); {
			case odds == 1 && perFind > 0.5:
				t.Errorf("parts of %d buckets: %.2f were moved for each ghost that was found", part, perFind)
			case odds == 2 && n != room.Most:
				t.Errorf("parts of %d buckets: %d buckets in the end, want %d", part, n, room.Most)
			}
		}
	}
}
