package dex

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
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

// leafGhosts are the most used leaves of a shard that have no frame: sets of four, with a part of
// the hash in the upper 24 bits, and the uses in the lower 8. Guarded by the shard's lock.
type leafGhosts []uint32

const (
	ghostWays     = 4
	framesOfGhost = 8
)

func (g leafGhosts) set(hash uint64) []uint32 {
	// the first bits are the shard's
	i := hash << 4 >> 40 * uint64(len(g)/ghostWays) >> 24 * ghostWays
	return g[i : i+ghostWays]
}

// add makes a leaf that was used so often a ghost, if another one was not used more.
func (g leafGhosts) add(hash uint64, uses uint8) {
	if len(g) == 0 {
		return
	}
	s, least := g.set(hash), 0
	for i, w := range s {
		if w>>8 == uint32(hash&(1<<24-1)) {
			least = i
			break
		}
		if w&0xff < s[least]&0xff {
			least = i
		}
	}
	if w := s[least]; w&0xff <= uint32(uses) || w>>8 == uint32(hash&(1<<24-1)) {
		s[least] = uint32(hash&(1<<24-1))<<8 | uint32(uses)
	}
}

// remove reports whether the leaf was a ghost, and it is no more.
func (g leafGhosts) remove(hash uint64) bool {
	if len(g) == 0 {
		return false
	}
	s := g.set(hash)
	for i, w := range s {
		if w != 0 && w>>8 == uint32(hash&(1<<24-1)) {
			s[i] = 0
			return true
		}
	}
	return false
}

// halve halves the uses.
func (g leafGhosts) halve() {
	for i, w := range g {
		g[i] = w&^0xff | w&0xff/2
	}
}

// entryShifts is the part of balance for entries. Guarded by balance.taken.
type entryShifts struct {
	goal  uint64 // buckets that there shall be; 0 = those that there are
	loose int64  // bytes that are neither frames' nor entries'
}

// cachesOf divides so many bytes between frames for leaves of nodeBytes and entries.
func cachesOf(e env.Env, with techniques, bytes, nodeBytes int) (c *cache, room rowcache.Room) {
	words := nodeBytes / 8
	each, image := nodeBytes+frameCost(words, with), 8*strideOf(words)
	room = with.entryRoomOf(bytes, each)
	least := rowcache.Room{Part: room.Part, First: room.Part, Most: room.Most}
	// as many frames as there may be with the fewest entries. At first some are retired
	n := max(leastInCache, (bytes-int(least.Bytes(rowcache.BucketWords)))/each)
	live := (bytes - int(room.Bytes(rowcache.BucketWords)) - n*(each-image)) / image
	return newCache(e, with, nodeBytes, n, min(n, max(leastInCache, live)), room.Moves()), room
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
			got, err := c.retire(each-m.loose, s.back)
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
		m.loose = c.revive(m.loose)
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
	if f.entries.Load()+c.ghostsFound.Load() < room.findsOfStep() {
		return n
	}
	live, ghosts := c.live()
	f.entries.Store(0)
	w := worth{share: room, live: live,
		entries: float64(f.weight.Swap(0)) / float64(rowcache.GhostCount*n*8*rowcache.BucketWords),
		frames:  float64(c.ghostsFound.Swap(0)) / float64(ghosts*8*c.stride)}
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

// live is how many frames are in use, and for how many ghosts stand.
func (c *cache) live() (frames, ghosts int) {
	for i := range c.shards {
		frames += c.shards[i].inUse()
		ghosts += len(c.shards[i].ghosts)
	}
	return frames, ghosts
}

func (h *shard) inUse() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live
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
