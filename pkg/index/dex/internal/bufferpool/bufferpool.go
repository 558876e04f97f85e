// Package bufferpool holds the leaves that a client keeps (DEX, section 5): from the address of a
// leaf to its frame, which leaf gets one, and which leaves it for that. It knows neither the log
// nor the entries beside the leaves: its callers write a victim back, and keep what they want of
// it, in a hook.
//
//	       hint of the parent's copy                       retired
//	   Hinted  |                                              |
//	           v                                              v
//	address -> table -> frames [ leaf ][ leaf ][ free ][ leaf ][ ][ ]
//	   Locate     ^        |
//	              |        | Reserve: the victim, locked; the hook writes it back
//	              |        v
//	              +-- Clock records the eviction, then the table loses the leaf
//
// Finding a frame takes no lock. A leaf that is being READ has a frame already, which is locked;
// other sessions that want it wait (the I/O flag of the paper). Frames are never freed, so a frame
// that was found is one for ever: every user of it checks its version and its address.
//
// A shard has a part of the leaves, by their addresses, and a lock. Lock order: a frame's lock
// comes before that of a shard, or of the list of free frames. Nobody waits for a frame's lock with
// one of these, and nobody holds one during I/O: Reserve and Retire release it for the hook. The
// bytes are fixed, but for what Retire gives and Revive takes.
//
// There are two replacements: frequencies (frequencies.go), and the paper's (paper.go).
package bufferpool

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

// Pool holds leaves.
type Pool struct {
	env    env.Env
	o      Options
	shards []shard
	frames []frame.Frame // of all shards
	images []uint64      // their images, one after the other, each followed by the frame's notes
	words  int           // of an image
	stride int           // words from one image to the next: see StrideOf
	taken  atomic.Int64

	Clock    Clock
	replaces replacement
	paper    *paperCache // which replaces; nil = frequencies do
}

const (
	ways       = 8
	places     = 3 // for each frame
	counts     = 8 // of leaves that are missed, for each frame
	mostShards = 16
)

// FrameCost returns the bytes that a frame takes besides its image: itself, its notes, its places
// of the table, its counts, a time, its number in the list of free ones, and a place in the cooling
// map if there is one.
func FrameCost(words int, paper bool) int {
	n := int(unsafe.Sizeof(frame.Frame{})) + 8*(StrideOf(words)-words) + places*int(unsafe.Sizeof(place{})) + counts + 8 + 4 + 4/framesOfGhost + 1
	if paper {
		n += coolCost
	}
	return n
}

// Options say how large a cache is, and how it replaces leaves.
type Options struct {
	NodeBytes    int
	Frames, Live int // that there are at most, and that are in use at first
	Least        int // frames that there are at least
	// Ghosts counts leaves that were found again among those that are remembered without a frame;
	// nil = none are
	Ghosts *atomic.Int64
	// from how many frames on a shard is divided in two, and how many frames share a time of the
	// eviction clock
	ShardFrames, DepartedShare int

	LeafAdmission bool       // a leaf that is READ is not always kept
	Paper         bool       // the paper's replacement; else frequencies
	CoolingMap    bool       // its queues; false = one queue, and one shard
	Inners        InnerNodes // of a path-aware cache; else nil
}

// New returns a cache.
func New(e env.Env, o Options) *Pool {
	words, n, live := o.NodeBytes/8, o.Frames, o.Live
	each, image := o.NodeBytes+FrameCost(words, o.Paper), 8*StrideOf(words)
	shards := 1
	for shards < mostShards && live/shards >= o.ShardFrames && (!o.Paper || o.CoolingMap) {
		shards *= 2
	}
	c := &Pool{env: e, o: o, shards: make([]shard, shards), words: words, stride: StrideOf(words)}
	n, live = n/shards, live/shards
	c.taken.Store(int64(shards * (n*(each-image) + live*image)))
	c.frames, c.images = make([]frame.Frame, n*shards), make([]uint64, n*shards*c.stride)
	memory.Huge(c.frames)
	memory.Huge(c.images)
	c.Clock.start(max(1, n*shards/o.DepartedShare))
	for i := range c.shards {
		h := &c.shards[i]
		h.mu, h.evictions = c.env.NewMutex(), &c.Clock
		h.table = make([]place, ways*max(1, places*n/ways))
		memory.Huge(h.table)
		if o.Paper { // frames are of no shard
			h.frames, h.missed = c.frames, lfu.New(1)
			continue
		}
		h.start(c, i*n, n, live)
		if o.Ghosts != nil {
			h.ghosts = make(leafGhosts, ghostWays*max(1, n/framesOfGhost/ghostWays))
		}
	}
	if c.replaces = (&frequencies{c}); o.Paper {
		c.paper = new(paperCache)
		c.paper.start(c)
		c.replaces = c.paper
	}
	return c
}

// StrideOf returns the words of an image with its notes, rounded up so that each image begins at a
// cache line.
func StrideOf(words int) int { return (words + frame.NoteWords(words) + 7) &^ 7 }

// image is the words of frame id.
func (c *Pool) image(id int32) []uint64 {
	at := int(id) * c.stride
	return c.images[at : at+c.words : at+c.words+frame.NoteWords(c.words)]
}

func (c *Pool) shard(a pool.Addr) *shard {
	return &c.shards[lfu.Hash(a)>>60*uint64(len(c.shards))>>4]
}

// Find returns the frame of the leaf at a; nil if it has none. The caller checks the frame's
// version, and then its address again.
func (c *Pool) Find(a pool.Addr) *frame.Frame { return c.shard(a).find(a) }

// Hinted returns the frame of a hint, and prefetches what will be read of its leaf: the header and
// most slots.
func (c *Pool) Hinted(hint uint32) *frame.Frame {
	id := int(hint - 1)
	memory.Lines(unsafe.Pointer(&c.images[id*c.stride]))
	return &c.frames[id]
}

// Reserve returns a frame for the leaf at a, locked and without content: fresh. If the leaf has a
// frame already, it returns that one, in whatever state. It returns nil if no frame can be had or,
// unless must, if none is worth less than the leaf. flush is called with the lock of the victim: it
// writes the frame back, or, if the frame was changed and is clean, only keeps its entries. The
// caller counts a frame as found once it has used it; until then the leaf is worth one less than it
// was looked for.
func (c *Pool) Reserve(a pool.Addr, must bool, flush func(*frame.Frame) error) (f *frame.Frame, fresh bool, err error) {
	return c.replaces.reserve(a, must, flush)
}

// Locate is Find for the leaf where p leads. The copy of the inner node has a hint to its frame
// (pointer swizzling, section 5.1). If the frame still holds the leaf, the table is not searched.
func (c *Pool) Locate(p *btree.Path) *frame.Frame {
	if h := p.Hint(); h != 0 {
		if f := c.Hinted(h); f.Addr() == p.Addr() {
			return f
		}
	}
	f := c.Find(p.Addr())
	if f != nil {
		c.replaces.found(p.HintAt(), f)
	}
	return f
}

// Drop gives a frame back whose lock the caller has, and which is clean: its changes would be lost
// with it.
func (c *Pool) Drop(f *frame.Frame) {
	if first := f.RecLSN(); first != 0 {
		panic(fmt.Sprintf("dex: the frame of leaf %v is dropped, and its changes from log position %d on are not written back", f.Addr(), first))
	}
	c.replaces.drop(f)
}

// CoolLeaf is for a path-aware cache of inner nodes: see paperCache.
func (c *Pool) CoolLeaf(hint uint32, a pool.Addr) { c.paper.coolLeaf(hint, a) }

// Each calls do with every frame. Frames come and go meanwhile.
func (c *Pool) Each(do func(f *frame.Frame) error) error {
	for i := range c.frames {
		if err := do(&c.frames[i]); err != nil {
			return err
		}
	}
	return nil
}

// Frame returns the frame of a hint.
func (c *Pool) Frame(hint uint32) *frame.Frame { return &c.frames[hint-1] }

// Bytes is what the cache takes.
func (c *Pool) Bytes() int64 { return c.taken.Load() }

// FrameBytes is what a frame gives when it is retired.
func (c *Pool) FrameBytes() int { return 8 * c.stride }

// Prefetch asks the processor for what a change of the leaf in f will look at first.
func (c *Pool) Prefetch(hint uint32) {
	id := int(hint - 1)
	memory.Line(unsafe.Pointer(&c.frames[id]))
	memory.Lines(unsafe.Pointer(&c.images[id*c.stride]))
	memory.Line(unsafe.Pointer(&c.images[id*c.stride+c.words]))
}

// Live is how many frames are in use, and for how many ghosts stand.
func (c *Pool) Live() (frames, ghosts int) {
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
