package dex

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/bufferpool"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/rowcache"
)

// What another byte of entries would save, and what another byte of frames.
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
//   - Frames: the most used of the leaves without a frame (shard.ghosts).

// entryShare and smallEntryShare are the parts of the cache that entries have at first: the second
// if every pair of the index is small enough to be kept as one, and fewFrames frames are left even
// when inner nodes have half. Many sessions may need a frame at a time. Tests change these, so that
// much of a small cache is entries; and then they let the share wander at random.
var (
	entryShare = 6
	fewFrames  = 48
	wanders    = false
)

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

// entryRoomOf is the room of entries in so many bytes, if a frame takes so many.
func (t *techniques) entryRoomOf(bytes, frame int) (room rowcache.Room) {
	if !t.entries {
		return room
	}
	each := 8 * (rowcache.BucketWords + rowcache.HintWords + 1)
	first := bytes / entryShare
	if small := bytes / smallEntryShare; t.smallPairs && entryShare > smallEntryShare && (bytes/innerMost-small)/frame >= fewFrames {
		first = small
	}
	room.First = uint64(first / each)
	room.Part = max(1, uint64(bytes/leastEntryShare/each))
	if !t.frequencies || room.First < room.Part {
		n := uint64(first / (each - 8))
		return rowcache.Room{Part: n, First: n, Most: n}
	}
	room.Most = max(room.First, uint64(bytes/mostEntryShare/each))
	return room
}

// finds counts ghosts of entries that were found. Weight has for each of them how many entries its
// bucket had for each ghost, times ghostCount. The cache counts those of leaves.
type finds struct{ entries, weight atomic.Int64 }

// entryShifts is the part of balance for entries. Guarded by balance.taken.
type entryShifts struct {
	goal  uint64 // buckets that there shall be; 0 = those that there are
	loose int64  // bytes that are neither frames' nor entries'
}

// shardFrames is from how many frames on a shard is divided in two, departedShare how many frames
// share a time of departure. Tests with few frames change them, so that leaves of several shards
// meet.
var shardFrames, departedShare = 256, 1

// leastInCache is how many frames a cache has at least. Tests with many entries change it.
var leastInCache = 8

// cachesOf divides so many bytes between frames for leaves of nodeBytes and entries.
func cachesOf(e env.Env, with techniques, bytes, nodeBytes int, inners bufferpool.InnerNodes) (c *bufferpool.Pool, room rowcache.Room) {
	words := nodeBytes / 8
	each, image := nodeBytes+bufferpool.FrameCost(words, !with.frequencies), 8*bufferpool.StrideOf(words)
	room = with.entryRoomOf(bytes, each)
	least := rowcache.Room{Part: room.Part, First: room.Part, Most: room.Most}
	// as many frames as there may be with the fewest entries. At first some are retired
	n := max(leastInCache, (bytes-int(least.Bytes(rowcache.BucketWords)))/each)
	live := (bytes - int(room.Bytes(rowcache.BucketWords)) - n*(each-image)) / image
	return bufferpool.New(e, bufferpool.Options{NodeBytes: nodeBytes, Frames: n, Live: min(n, max(leastInCache, live)), Ghosts: room.Moves(), Least: leastInCache,
		ShardFrames: shardFrames, DepartedShare: departedShare,
		LeafAdmission: with.leafAdmission, Paper: !with.frequencies, CoolingMap: with.coolingMap, Inners: inners}), room
}

// shiftEntries moves bytes between frames and entries, a few at a time.
func (b *balance) shiftEntries(s *session) error {
	c, m := b.x.cache, &b.share
	e := &b.x.rows
	if !e.Moves() {
		return nil
	}
	n := e.Buckets()
	if m.goal == 0 || m.goal == n {
		m.goal = b.x.wantBuckets(n)
	}
	const each = 8 * rowcache.BucketWords
	for range bucketsAtOnce {
		more := n < m.goal
		if n == m.goal {
			break
		}
		if more && m.loose < each {
			got, err := c.Retire(each-m.loose, s.back)
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
func (x *dex) wantBuckets(n uint64) uint64 {
	c, e, f := x.cache, &x.rows, &x.finds
	if wanders && x.env.Uint64()%16 == 0 {
		return e.Part + x.env.Uint64()%(e.Most-e.Part+1)
	}
	room := share{e.Room}
	if f.entries.Load()+c.GhostsFound() < room.findsOfStep() {
		return n
	}
	live, ghosts := c.Live()
	f.entries.Store(0)
	w := worth{share: room, live: live,
		entries: float64(f.weight.Swap(0)) / float64(rowcache.GhostCount*n*8*rowcache.BucketWords),
		frames:  float64(c.TakeGhosts()) / float64(ghosts*c.FrameBytes())}
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
	live            int     // frames in use
	entries, frames float64 // what a byte of the ghosts was worth, times the same number
}

// buckets returns how many there should be in place of n.
func (w *worth) buckets(n uint64) uint64 {
	step := w.step()
	less := max(w.Part, n-min(n, step))
	switch {
	case w.live < fewFrames && n > w.First:
		return less
	case w.frames*worthMore < w.entries*4 && w.live >= fewFrames:
		return min(w.Most, n+step)
	case w.entries*worthMore < w.frames*4:
		return less
	}
	return n
}

// missed counts that a lookup of key READs a leaf, or has it searched elsewhere.
func (x *dex) missed(key []byte) {
	if stands, was := x.rows.Ghost(key); was {
		x.finds.entries.Add(1)
		x.finds.weight.Add(int64(stands))
	}
}

// fetches counts that a lookup READs a leaf, because the cache has neither that nor the entry of
// key.
func (x *dex) fetches(key []byte) {
	x.fetched.Add(1)
	x.missed(key)
}
