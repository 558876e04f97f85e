package bufferpool

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The paper's replacement (sections 5.1 to 5.4):
//
//   - Two nodes drawn at random from all that the cache has are cooled when a frame is wanted and
//     none is free. They go to the cooling map. A node that has to leave its full bucket is
//     evicted, and its frame is the wanted one; otherwise the oldest of a bucket drawn at random
//     is.
//   - Path-aware caching, if there is a cache of inner nodes to ask (Options.Inners): an inner node
//     with cached children is not cooled. One of its children, drawn at random, is cooled in its
//     place, or one of that node's, down to the end of the path. So the cache has the parent of
//     each leaf that is not cooled, and all nodes above. Leaves and inner nodes compete for being
//     cooled.
//   - A cooled node is unswizzled: its parent does not lead to it, so the table does. A node that
//     is found again is an ordinary one and is swizzled again (a second chance).
//   - One in ten of the leaves that are READ is kept (Options.LeafAdmission), and every inner node.
//
// Differences: a cooled leaf is written back when it is evicted, in the round trip of the READ of
// the new leaf, not when it is cooled. Inner nodes have bytes of their own, which grow and shrink
// in steps. A leaf that a scan READ is swizzled only when it is found by its key, and so is one
// whose parent was evicted while the leaf was READ. When epochs have moved, a new copy of an inner
// node begins without children.
//
// Who may see what. A frame is cooled, and uncooled, by a plain store to used, by anybody, without
// a lock: this decides only what is evicted. An eviction has the frame's lock:
//
//	the evicting session                         another session
//	1  takes an entry from the cooling map
//	2  finds a frame of that leaf that is        finds the frame and uses it (used is not 0): it
//	   still cooled, and locks it, if nobody     stays, if that comes before 3
//	   has its lock
//	3  checks under the lock that it still has   finds it locked: tries again
//	   that leaf, and is cooled
//	4  writes it back, if it was changed         the same
//	5  records the eviction, removes it from     has seen it before: its version or its address is
//	   the table, clears the hint of its parent  another one now, so the session searches again
//	6  enters it for the other leaf, still       finds it locked: the I/O flag
//	   locked; READs that; unlocks it
//
// An address in the cooling map that has another node by now, or whose frame Give has dropped,
// finds no cooled frame at 2. A frame that was dropped and admitted again in between is at worst
// evicted early. Frames belong to no shard, because a frame is used again for whatever leaf is
// READ; shards only divide the table. The frame's lock comes before that of a shard or of the list
// of free frames, and nobody waits for a frame's lock with one of these.
//
// Hints. up[f] is the place of the hint that leads to frame f. A session that finds the frame
// stores the hint first and then its place, and clears the hint of the place that it replaces. An
// eviction, or cooling, removes the place and clears its hint, if it still leads to the frame. So
// whenever no session is between its two steps, a frame has at most one hint that keeps its parent
// in the cache. A hint that was stored for a frame that has got another leaf meanwhile leads to a
// frame of another address, which every user of a hint checks; it is cleared with the next eviction
// of that frame, or by the next session that follows it.
type paperCache struct {
	c       *Pool
	cooling coolingMap
	inners  InnerNodes               // nil = not path-aware
	up      []atomic.Pointer[uint32] // by frame

	mu struct {
		env.Mutex
		free    []int32
		leavers []uint64 // see CoolLeaf
	}
	// the number of frames in use, which are the first ones, see Retire. It changes under mu
	live atomic.Int32
}

// InnerNodes is what the cache of leaves asks of that of inner nodes: see btree.Tree.
type InnerNodes interface {
	SamplePlaces() int
	CoolPath(place int, random func() uint64, warm func(hint uint32, a pool.Addr) bool) (hint uint32, cooled pool.Addr)
	EvictCooled(a pool.Addr) bool
}

const (
	cooled   = 2  // nodes are cooled at once
	admitOne = 10 // leaf in so many is kept

	// coolCost is the bytes of a frame in the map, rounded up, and its place of up
	coolCost = (8*coolWords+coolShare*coolSize-1)/(coolShare*coolSize) + 8
)

func (p *paperCache) start(c *Pool) {
	p.c = c
	n := len(p.c.frames)
	p.inners = c.o.Inners
	p.cooling.start(p.c.env, n, p.c.o.CoolingMap)
	p.up = make([]atomic.Pointer[uint32], n)
	p.mu.Mutex, p.mu.free = p.c.env.NewMutex(), make([]int32, 0, n)
	p.live.Store(int32(n))
	for i := range p.c.frames {
		f := &p.c.frames[i]
		f.Init(int32(i), p.c.image(int32(i)))
		p.mu.free = append(p.mu.free, int32(n-1-i))
	}
}

// lucky reports whether a leaf is kept.
func (p *paperCache) lucky() bool { return !p.c.o.LeafAdmission || p.c.env.Uint64()%admitOne == 0 }

// found implements replacement: the parent that has the hint leads to f from now on (swizzling).
func (p *paperCache) found(hint *uint32, f *frame.Frame) {
	if hint == nil {
		return
	}
	atomic.StoreUint32(hint, uint32(f.ID())+1)
	if old := p.up[f.ID()].Swap(hint); old != nil && old != hint {
		atomic.CompareAndSwapUint32(old, uint32(f.ID())+1, 0)
	}
}

// unswizzle clears the hint that leads to frame id.
func (p *paperCache) unswizzle(id int32) {
	if at := p.up[id].Swap(nil); at != nil {
		atomic.CompareAndSwapUint32(at, uint32(id)+1, 0)
	}
}

// warm reports whether the hint leads to the frame of the leaf at a, and that is not cooled.
func (p *paperCache) warm(hint uint32, a pool.Addr) bool {
	f := &p.c.frames[hint-1]
	return f.Addr() == a && f.Uses() > 0
}

// draws bounds the places that are drawn for a node that can be cooled: some are empty.
const draws = 32

// coolOne cools a node drawn at random, and returns the entry that has to leave its bucket for it;
// 0 if nothing was cooled, or nothing has to leave.
func (p *paperCache) coolOne() uint64 {
	live, places := int(p.live.Load()), 0
	if p.inners != nil {
		places = p.inners.SamplePlaces()
	}
	for range draws {
		x := int(p.c.env.Uint64() % uint64(live+places))
		if x >= live {
			hint, inner := p.inners.CoolPath(x-live, p.c.env.Uint64, p.warm)
			if inner != pool.Nil {
				return p.cooling.push(uint64(inner) | innerBit)
			}
			if hint == 0 {
				continue
			}
			x = int(hint - 1)
		}
		f := &p.c.frames[x]
		if a := f.Addr(); a != pool.Nil && f.Uses() > 0 && !f.IsLocked() {
			return p.cool(f, a)
		}
	}
	return 0
}

// coolLeaf cools the leaf at a in the frame of a hint, if it has that still. If another node has to
// leave the cooling map for the leaf, it is the next victim. If many have to leave before one is
// wanted, it stays in the cache.
func (p *paperCache) coolLeaf(hint uint32, a pool.Addr) {
	f := &p.c.frames[hint-1]
	if f.Addr() != a || f.Uses() == 0 {
		return
	}
	out := p.cool(f, a)
	if out == 0 || p.leave(out) || out&innerBit != 0 {
		return
	}
	if f := p.c.Find(pool.Addr(out)); f != nil && f.Uses() == 0 {
		f.SetUses(1)
	}
}

// mostLeavers bounds the entries that have left the cooling map and wait for an eviction.
const mostLeavers = 256

// leave notes an entry that has left the cooling map; false if there are too many.
func (p *paperCache) leave(entry uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.leavers) == mostLeavers {
		return false
	}
	p.mu.leavers = append(p.mu.leavers, entry)
	return true
}

// victim returns a cooled frame, locked: steps 1 to 3. nil if there is none. out is an entry that
// has left the cooling map; 0 = none.
func (p *paperCache) victim(out uint64) *frame.Frame {
	m := &p.cooling
	for try := range 16 + 4*m.size*m.buckets {
		if try > 0 {
			out = 0
		}
		for i := 0; i < cooled && out == 0; i++ {
			out = p.coolOne()
		}
		if out == 0 {
			out = m.any()
		}
		if out&innerBit != 0 {
			p.inners.EvictCooled(pool.Addr(out &^ innerBit))
			continue
		}
		if out == 0 {
			continue
		}
		if f := p.c.Find(pool.Addr(out)); f != nil && p.claim(f, pool.Addr(out)) {
			return f
		}
	}
	return nil
}

// empty is steps 4 and 5, of a frame whose lock the caller has. After an error the frame is
// unlocked, and its leaf an ordinary one: the cooling map does not have it any more.
func (p *paperCache) empty(f *frame.Frame, flush func(*frame.Frame) error) error {
	if f.RecLSN() != 0 || f.AnyChanged() {
		if err := flush(f); err != nil {
			f.SetUses(1)
			f.Unlock()
			return err
		}
	}
	p.clear(f)
	return nil
}

// clear removes a frame from the table, whose lock the caller has.
func (p *paperCache) clear(f *frame.Frame) {
	h := p.c.shard(f.Addr())
	h.mu.Lock()
	h.forget(f)
	h.mu.Unlock()
	p.unswizzle(f.ID())
}

// page returns a frame without a leaf, locked; nil if none can be had.
func (p *paperCache) page(flush func(*frame.Frame) error) (*frame.Frame, error) {
	f, leaver := p.freePage()
	if f != nil {
		return f, nil
	}
	f = p.victim(leaver)
	if f == nil {
		return nil, nil
	}
	return f, p.empty(f, flush)
}

// freePage locks a free frame. If there is none, it returns an entry that has left the cooling map
// (leave), or 0.
func (p *paperCache) freePage() (f *frame.Frame, leaver uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.mu.free) - 1; i >= 0; i-- {
		// else somebody has it who is about to see that it is free
		if f := &p.c.frames[p.mu.free[i]]; f.TryLock() {
			p.mu.free = append(p.mu.free[:i], p.mu.free[i+1:]...)
			if invariants.Enabled {
				invariants.Check(f.Addr() == pool.Nil, "free frame %d has the leaf at %v", f.ID(), f.Addr())
			}
			return f, 0
		}
	}
	if n := len(p.mu.leavers); n > 0 {
		leaver, p.mu.leavers = p.mu.leavers[n-1], p.mu.leavers[:n-1]
	}
	return nil, leaver
}

// freeFrame frees a frame without a leaf, whose lock the caller has.
func (p *paperCache) freeFrame(f *frame.Frame) {
	p.mu.Lock()
	p.mu.free = append(p.mu.free, f.ID())
	p.mu.Unlock()
	f.Unlock()
}

// reserve implements replacement.
func (p *paperCache) reserve(a pool.Addr, must bool, flush func(*frame.Frame) error) (f *frame.Frame, fresh bool, err error) {
	h := p.c.shard(a)
	admitted := must || p.lucky()
	for range 8 {
		if f := h.find(a); f != nil || !admitted {
			return f, false, nil
		}
		f, err := p.page(flush)
		if f == nil || err != nil {
			return nil, false, err
		}
		h.mu.Lock()
		other, place := h.find(a), h.vacancy(a)
		if other == nil && place != nil {
			f.SetAddr(a) // step 6
			f.SetUses(1)
			place.Store(placeOf(a, f.ID()))
			h.mu.Unlock()
			return f, true, nil
		}
		h.mu.Unlock()
		p.freeFrame(f)
		if other == nil {
			err = p.makePlace(h, a, flush)
		}
		if other != nil || err != nil {
			return other, false, err
		}
	}
	return nil, false, nil
}

// makePlace evicts a leaf that has one of the places of the table for a, if it can be locked.
func (p *paperCache) makePlace(h *shard, a pool.Addr, flush func(*frame.Frame) error) error {
	set := h.set(a)
	n := uint32(set[p.c.env.Uint64()%uint64(len(set))].Load())
	if n == 0 {
		return nil
	}
	f := &p.c.frames[n-1]
	if !f.TryLock() {
		return nil
	}
	if f.Addr() == pool.Nil {
		f.Unlock()
		return nil
	}
	if err := p.empty(f, flush); err != nil {
		return err
	}
	p.freeFrame(f)
	return nil
}
