package dex

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
	"github.com/dmindex/dmindex/pkg/pool"
)

// cache holds the leaves that a client keeps (section 5). It consists of independent shards, by the
// address of the leaf. Each has frames, and a table from addresses to frames. Finding a frame takes
// no lock. The cache's bytes are fixed.
//
// A leaf that is being READ has a frame already, which is locked. Other sessions that want it wait
// (the I/O flag of the paper).
type cache struct {
	env    env.Env
	with   techniques
	shards []shard
	frames []frame.Frame // of all shards
	images []uint64      // their images, one after the other, each followed by the frame's notes
	words  int           // of an image
	stride int           // words from one image to the next: see strideOf
	bytes  atomic.Int64

	evictions evictionClock
	paper     paperCache // with frequencies off
	// ghosts of leaves that were found again
	ghostsFound atomic.Int64
}

type shard struct {
	first  int32 // number of its first frame in the cache
	mu     env.Mutex
	frames []frame.Frame
	live   int // the number of frames in use, which are the first ones: see balance
	free   []int32
	table  []place    // ways for each hash, in one line of the processor's cache
	missed lfu.Sketch // how often leaves without a frame were looked for
	ghosts leafGhosts
	seen   int // misses since counts were halved

	evictions *evictionClock
}

// place has the number of a frame, plus 1, in its lower half, and a part of the hash of its leaf's
// address in the upper; 0 = free. It is a hint; the frame has the leaf's address.
type place struct{ atomic.Uint64 }

func placeOf(a pool.Addr, frame int32) uint64 { return tagOf(a)<<32 | uint64(frame+1) }

func tagOf(a pool.Addr) uint64 { return lfu.Hash(a) & (1<<32 - 1) }

const (
	ways       = 8
	places     = 3 // for each frame
	counts     = 8 // of leaves that are missed, for each frame
	mostShards = 16

	uncachedShare = 8 // the part of the cache that frames take at most with caching off
)

// frameCost returns the bytes that a frame takes besides its image: itself, its notes, its places
// of the table, its counts, a time, its number in the list of free ones, and a place in the cooling
// map if there is one.
func frameCost(words int, with techniques) int {
	n := int(unsafe.Sizeof(frame.Frame{})) + 8*(strideOf(words)-words) + places*int(unsafe.Sizeof(place{})) + counts + 8 + 4 + 4/framesOfGhost + 1
	if !with.frequencies {
		n += coolCost
	}
	return n
}

// shardFrames is from how many frames on a shard is divided in two, departedShare how many frames
// share a time of departure. Tests with few frames change them, so that leaves of several shards
// meet.
var shardFrames, departedShare = 256, 1

// uncached is how many frames there are with caching off, for leaves that are being changed. If
// their part of a small cache has room for less, they have bytes besides. Tests have fewer, so that
// sessions wait for frames.
var uncached = 256

// leastInCache is how many frames a cache has at least. Tests with many entries change it.
var leastInCache = 8

// newCache returns a cache for leaves of nodeBytes, of at most n frames, of which live are in use
// at first. ghosts: leaves without a frame are remembered.
func newCache(e env.Env, with techniques, nodeBytes, n, live int, ghosts bool) *cache {
	words := nodeBytes / 8
	each, image := nodeBytes+frameCost(words, with), 8*strideOf(words)
	shards := 1
	for shards < mostShards && live/shards >= shardFrames && (with.frequencies || with.coolingMap) {
		shards *= 2
	}
	c := &cache{env: e, with: with, shards: make([]shard, shards), words: words, stride: strideOf(words)}
	n, live = n/shards, live/shards
	c.bytes.Store(int64(shards * (n*(each-image) + live*image)))
	c.frames, c.images = make([]frame.Frame, n*shards), make([]uint64, n*shards*c.stride)
	memory.Huge(c.frames)
	memory.Huge(c.images)
	c.evictions.start(max(1, n*shards/departedShare))
	for i := range c.shards {
		h := &c.shards[i]
		h.mu, h.evictions = c.env.NewMutex(), &c.evictions
		h.table = make([]place, ways*max(1, places*n/ways))
		memory.Huge(h.table)
		if with.frequencies {
			h.start(c, i*n, n, live)
			if ghosts {
				h.ghosts = make(leafGhosts, ghostWays*max(1, n/framesOfGhost/ghostWays))
			}
		} else { // frames are of no shard
			h.frames, h.missed = c.frames, lfu.New(1)
		}
	}
	if !with.frequencies {
		c.paper.start(c)
	}
	return c
}

// start gives a shard n frames from first on, of which so many are in use.
func (h *shard) start(c *cache, first, n, live int) {
	h.first = int32(first)
	h.frames, h.live = c.frames[first:first+n:first+n], live
	h.free = make([]int32, 0, n)
	for i := range h.frames {
		f := &h.frames[i]
		f.Init(int32(first+i), c.image(int32(first+i)))
		if i < live {
			h.free = append(h.free, int32(live-1-i))
		}
	}
	h.missed = lfu.New(counts * n)
}

// strideOf returns the words of an image with its notes, rounded up so that each image begins at a
// cache line.
func strideOf(words int) int { return (words + frame.NoteWords(words) + 7) &^ 7 }

// image is the words of frame id.
func (c *cache) image(id int32) []uint64 {
	at := int(id) * c.stride
	return c.images[at : at+c.words : at+c.words+frame.NoteWords(c.words)]
}

// at is the number of f in the shard.
func (h *shard) at(f *frame.Frame) int32 { return f.ID() - h.first }

func (c *cache) shard(a pool.Addr) *shard {
	return &c.shards[lfu.Hash(a)>>60*uint64(len(c.shards))>>4]
}

func (h *shard) set(a pool.Addr) []place {
	i := lfu.Hash(a) << 4 >> 32 * uint64(len(h.table)/ways) >> 32 * ways
	return h.table[i : i+ways : i+ways]
}

// find returns the frame of the leaf at a, or nil. The caller checks the version, and then the
// address again.
func (h *shard) find(a pool.Addr) *frame.Frame {
	set, tag := h.set(a), tagOf(a)
	for i := range set {
		if p := set[i].Load(); p>>32 == tag && p != 0 {
			if f := &h.frames[uint32(p)-1]; f.Addr() == a {
				return f
			}
		}
	}
	return nil
}

func (c *cache) find(a pool.Addr) *frame.Frame { return c.shard(a).find(a) }

// hinted returns the frame of a hint, and prefetches what will be read of its leaf: the header and
// most slots.
func (c *cache) hinted(hint uint32) *frame.Frame {
	id := int(hint - 1)
	memory.Lines(unsafe.Pointer(&c.images[id*c.stride]))
	return &c.frames[id]
}

// locate is find for the leaf where p leads. The copy of the inner node has a hint to its frame
// (pointer swizzling, section 5.1). If the frame still holds the leaf, the table is not searched.
func (c *cache) locate(p *btree.Path) *frame.Frame {
	if h := p.Hint(); h != 0 {
		if f := c.hinted(h); f.Addr() == p.Addr() {
			return f
		}
	}
	f := c.find(p.Addr())
	switch {
	case f == nil:
	case c.with.frequencies:
		p.SetHint(uint32(f.ID()) + 1)
	default:
		c.paper.swizzle(p, f)
	}
	return f
}

// reserve returns a frame for the leaf at a, locked and without content: fresh. If the leaf has a
// frame already, it returns that one, in whatever state. It returns nil if no frame can be had or,
// unless must, if none is worth less than the leaf. flush is called with the lock of the victim: it
// writes the frame back, or, if the frame was changed and is clean, only keeps its entries. The
// caller counts a frame as found once it has used it; until then the leaf is worth one less than it
// was looked for.
func (c *cache) reserve(a pool.Addr, must bool, flush func(*frame.Frame) error) (f *frame.Frame, fresh bool, err error) {
	if !c.with.frequencies {
		return c.admit(a, must, flush)
	}
	h := c.shard(a)
	h.mu.Lock()
	defer h.mu.Unlock()
	worth := h.miss(a)
	if h.find(a) == nil && h.ghosts.remove(lfu.Hash(a)) {
		c.ghostsFound.Add(1)
	}
	for range 8 {
		if f := h.find(a); f != nil {
			return f, false, nil
		}
		p := h.vacancy(a)
		f := h.take(c, a, p == nil)
		switch {
		case f == nil:
			return nil, false, nil
		case f.Addr() == pool.Nil:
		case !must && !c.admits(f, worth):
			f.Unlock()
			h.ghosts.add(lfu.Hash(a), worth)
			return nil, false, nil
		case f.RecLSN() != 0 || f.AnyChanged():
			// that is done without the shard's lock, and then looked for anew
			h.mu.Unlock()
			err := flush(f)
			h.mu.Lock()
			if err == nil {
				h.forget(f)
				h.free = append(h.free, h.at(f))
			}
			f.Unlock()
			if err != nil {
				return nil, false, err
			}
			continue
		default:
			h.forget(f)
		}
		if p == nil {
			p = h.vacancy(a)
		}
		f.SetAddr(a)
		f.SetUses(uint32(worth - 1))
		p.Store(placeOf(a, h.at(f)))
		return f, true, nil
	}
	return nil, false, nil
}

// vacancy is a free place of the table for a; nil if there is none.
func (h *shard) vacancy(a pool.Addr) *place {
	set := h.set(a)
	for i := range set {
		if set[i].Load() == 0 {
			return &set[i]
		}
	}
	return nil
}

// take locks a frame that is free, or the least used one of a few; of those that take the places
// for a, if none of these is left. nil: somebody has the lock of what was found.
func (h *shard) take(c *cache, a pool.Addr, full bool) *frame.Frame {
	for i := len(h.free) - 1; i >= 0 && !full; i-- {
		// else somebody has it who is about to see that it is free
		if f := &h.frames[h.free[i]]; f.TryLock() {
			h.free = append(h.free[:i], h.free[i+1:]...)
			return f
		}
	}
	set, n := h.set(a), samples
	if full {
		n = len(set)
	}
	var best *frame.Frame
	next := 0 // samples lie one behind the other: that is one random number, and few cache misses
	if !full {
		next = int(c.env.Uint64() % uint64(h.live))
	}
	for i := range n {
		var f *frame.Frame
		if full {
			f = &h.frames[uint32(set[i].Load())-1]
		} else {
			f = &h.frames[next]
			if next++; next == h.live {
				next = 0
			}
		}
		if f.Addr() != pool.Nil && !f.IsLocked() && (best == nil || f.Uses() < best.Uses()) {
			best = f
		}
	}
	if best == nil || !best.TryLock() {
		return nil
	}
	if best.Addr() == pool.Nil {
		best.Unlock()
		return nil
	}
	return best
}

// forget takes the place of f away, whose lock the caller has, besides that of the shard.
func (h *shard) forget(f *frame.Frame) {
	a := f.Addr()
	h.evictions.record(a) // before nobody finds it any more
	h.missed.Raise(a, uint8(f.Uses()))
	h.ghosts.add(lfu.Hash(a), uint8(f.Uses()))
	set := h.set(a)
	for i := range set {
		if set[i].Load() == placeOf(a, h.at(f)) {
			set[i].Store(0)
			break
		}
	}
	f.SetAddr(pool.Nil)
}

// drop gives a frame back whose lock the caller has, and which is clean: its changes would be lost
// with it. See session.discard.
func (c *cache) drop(f *frame.Frame) {
	if first := f.RecLSN(); first != 0 {
		panic(fmt.Sprintf("dex: the frame of leaf %v is dropped, and its changes from log position %d on are not written back", f.Addr(), first))
	}
	if !c.with.frequencies {
		c.clear(f)
		c.paper.freeFrame(f)
		return
	}
	h := c.shard(f.Addr())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(f)
	h.free = append(h.free, h.at(f))
	f.Unlock()
}

// each calls do with every frame. Frames come and go meanwhile.
func (c *cache) each(do func(f *frame.Frame) error) error {
	for i := range c.frames {
		if err := do(&c.frames[i]); err != nil {
			return err
		}
	}
	return nil
}
