package budget

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/rowcache"
)

// The worth of another byte of entries, and of another byte of frames.
//
// Entries and frames share bytes of the cache. Both sides remember a little more than they have
// room for, without the content: ghosts. A leaf that a lookup READs, or has a memory server search,
// for a key whose entry is a ghost would not have been READ if there were more entries, by as many
// bytes as ghosts stand for. It is the same with leaves that are ghosts, for changes, too: a change
// READs its leaf whether there is an entry of its key or not. The side whose ghosts are found more
// often for each of these bytes gets bytes of the other one, step by step, until both are worth the
// same. What both have is counted in the same way, by the keys that are asked for, so it does not
// matter which share is good for which load.
//
//   - Entries: the last entries that a bucket evicted (ghosts).
//   - Frames: the most used of the leaves without a frame (bufferpool).

// Shares say how the caches are divided at first, and what they keep.
type Shares struct {
	// entries have one in so many bytes at first; or one in smallEntryShare, if every pair of the
	// index is small enough to be kept as an entry, and FewFrames frames are left even when inner
	// nodes have half: many sessions may need a frame at a time
	EntryShare, FewFrames int
	LeastFrames           int  // that there are always
	Wanders               bool // for tests: the share of entries wanders at random

	Entries    bool // there are some
	SmallPairs bool // every pair is small enough
	Moves      bool // the share of entries follows the load
}

// Defaults are the shares of a cache, but for what it keeps.
func Defaults() Shares { return Shares{EntryShare: 6, FewFrames: 48, LeastFrames: 8} }

const (
	smallEntryShare = 4

	leastEntryShare = 32 // a part
	mostEntryShare  = 2

	stepsOfPart   = 2 // of a change of the share
	bucketsAtOnce = 4 // that are added or removed before one READ
	// How many ghosts have to be found until the share may change: one for so many buckets that are
	// moved then, and some at least. With few finds the two sides differ by chance. To move buckets
	// costs as much as READs do, so a large cache that went by chance would do little else.
	bucketsOfFind = 2
	enoughFinds   = 64
	// one side's ghosts have to be worth so many times as much, in quarters
	worthMore = 5
)

// Divide divides so many bytes between frames and entries. A frame takes so many bytes, of which
// its image has image. It returns the room of entries, how many frames there are, and how many of
// them are in use at first: with more entries some are retired.
func (o *Shares) Divide(bytes, each, image int) (room rowcache.Room, frames, live int) {
	room = o.roomOf(bytes, each)
	least := rowcache.Room{Part: room.Part, First: room.Part, Most: room.Most}
	frames = max(o.LeastFrames, (bytes-int(least.Bytes(rowcache.BucketWords)))/each)
	live = (bytes - int(room.Bytes(rowcache.BucketWords)) - frames*(each-image)) / image
	return room, frames, min(frames, max(o.LeastFrames, live))
}

// roomOf is the room of entries in so many bytes, if a frame takes so many.
func (o *Shares) roomOf(bytes, frame int) (room rowcache.Room) {
	if !o.Entries {
		return room
	}
	each := 8 * (rowcache.BucketWords + rowcache.HintWords + 1)
	first := bytes / o.EntryShare
	if small := bytes / smallEntryShare; o.SmallPairs && o.EntryShare > smallEntryShare && (bytes/innerMost-small)/frame >= o.FewFrames {
		first = small
	}
	room.First = uint64(first / each)
	room.Part = max(1, uint64(bytes/leastEntryShare/each))
	if !o.Moves || room.First < room.Part {
		n := uint64(first / (each - 8))
		return rowcache.Room{Part: n, First: n, Most: n}
	}
	room.Most = max(room.First, uint64(bytes/mostEntryShare/each))
	return room
}

// finds counts ghosts that were found. Weight has for each of those of entries how many entries its
// bucket had for each ghost, times rowcache.GhostCount.
type finds struct{ entries, weight, leaves atomic.Int64 }

// entryShifts is the part of Budget for entries. Guarded by Budget.taken.
type entryShifts struct {
	goal  uint64 // buckets that there shall be; 0 = those that there are
	loose int64  // bytes that are neither frames' nor entries'
}

// shiftEntries moves bytes between frames and entries, a few at a time.
func (b *Budget) shiftEntries(flush func(*frame.Frame) error) error {
	c, m := b.frames, &b.share
	e := b.rows
	if !e.Moves() {
		return nil
	}
	n := e.Buckets()
	if m.goal == 0 || m.goal == n {
		m.goal = b.wantBuckets(n)
	}
	const each = 8 * rowcache.BucketWords
	for range bucketsAtOnce {
		more := n < m.goal
		if n == m.goal {
			break
		}
		if more && m.loose < each {
			got, err := c.Retire(each-m.loose, flush)
			if m.loose += got; err != nil {
				return err
			}
			if m.loose < each { // frames have no more to give
				m.goal = n
				break
			}
		}
		switch {
		case !e.Resize(more): // for now
			m.goal = n
		case more:
			n++
			m.loose -= each
		default:
			n--
			m.loose += each
		}
	}
	if n >= m.goal {
		m.loose = c.Revive(m.loose)
	}
	return nil
}

// wantBuckets returns how many buckets there should be, of n that there are.
func (b *Budget) wantBuckets(n uint64) uint64 {
	c, e, f := b.frames, b.rows, &b.finds
	if b.o.Wanders && b.env.Uint64()%16 == 0 {
		return e.Part + b.env.Uint64()%(e.Most-e.Part+1)
	}
	room := share{e.Room}
	if f.entries.Load()+f.leaves.Load() < room.findsOfStep() {
		return n
	}
	live, ghosts := c.Live()
	f.entries.Store(0)
	w := worth{share: room, few: b.o.FewFrames, live: live,
		entries: float64(f.weight.Swap(0)) / float64(rowcache.GhostCount*n*8*rowcache.BucketWords),
		frames:  float64(f.leaves.Swap(0)) / float64(ghosts*c.FrameBytes())}
	return w.buckets(n)
}

// share is the room of entries as the balance sees it.
type share struct{ rowcache.Room }

// step is how many buckets the share changes by, and findsOfStep how many ghosts have to be found
// before.
func (r *share) step() uint64 { return max(1, r.Part/stepsOfPart) }
func (r *share) findsOfStep() int64 {
	return max(enoughFinds, int64(r.step()/bucketsOfFind))
}

// worth is what is known when the number of buckets is decided.
type worth struct {
	share
	few, live       int     // frames that are few, and those in use
	entries, frames float64 // what a byte of the ghosts was worth, times the same number
}

// buckets returns how many there should be in place of n.
func (w *worth) buckets(n uint64) uint64 {
	step := w.step()
	less := max(w.Part, n-min(n, step))
	switch {
	case w.live < w.few && n > w.First:
		return less
	case w.frames*worthMore < w.entries*4 && w.live >= w.few:
		return min(w.Most, n+step)
	case w.entries*worthMore < w.frames*4:
		return less
	}
	return n
}

// Missed counts that a lookup of key READs a leaf, or has it searched elsewhere.
func (b *Budget) Missed(key []byte) {
	if stands, was := b.rows.Ghost(key); was {
		b.finds.entries.Add(1)
		b.finds.weight.Add(int64(stands))
	}
}

// LeafGhosts is where ghosts of leaves are counted (bufferpool.Options.Ghosts).
func (b *Budget) LeafGhosts() *atomic.Int64 { return &b.finds.leaves }

// EntriesFound returns how many ghosts of entries were found since the last decision, and
// ResetFound sets that back. They are for tests.
func (b *Budget) EntriesFound() int64 { return b.finds.entries.Load() }
func (b *Budget) ResetFound()         { b.finds.entries.Store(0) }
