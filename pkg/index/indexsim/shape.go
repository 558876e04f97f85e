package indexsim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/register"
)

// shape is the part of a run that is not the adversary's.
type shape struct {
	options  index.Options
	clients  int // processes
	sessions int // of each
	ops      int // of each session
	keys     int
	preload  int
	scans    int // one of how many operations
	// of keys, in which all clients work for a while, so that they meet where leaves split; 0 = all
	// keys
	window  int
	even    bool // most values have the same length, and half of the operations give keys others
	growing bool // more is written than deleted
	// for a while most operations write, then most delete, so that nodes split and are merged
	waves bool
	// most operations look up one of few keys
	popular bool
	limit   time.Duration
	lease   time.Duration // of clients, in runs in which they die; 0 = nobody does
	// how often clients hear of epochs: often, where nodes shall be used again; 0 = seldom
	renew time.Duration
	used  bool // memory was used before any client came: see used.go
	bulk  bool // the first keys are bulk loaded while the clients read
	// there is little memory: allocations fail, and what deletes bring back is waited for
	full bool
	// memory may end though there is much: without its small nodes and compressed paths SMART takes
	// 2 KiB for each byte of a key, and of what it gives up nothing is used again before a client
	// that died is fenced
	hoards bool
	// of which is drawn who is fenced on one memory server, where others still take its requests;
	// nil = nobody
	half     *rand.Rand
	sweeps   bool       // clients sweep beside their operations, where the design has that
	switches *rand.Rand // of which each client that opens draws its switches; nil = all are on
}

// RoomyCache bounds a cache that has room for all that a run has. Designs make room for a whole
// cache when they open: for those of their own, which are 64 times as large, that took a third of
// the time of all runs.
const RoomyCache = 1 << 20

// shapeOf draws a shape. Trees are small and nodes as small as they may be, so that splits and
// conflicts are frequent.
func shapeOf(r *rand.Rand) shape {
	s := shape{
		clients: 1 + r.IntN(3), sessions: 1 + r.IntN(3), ops: 20 + r.IntN(60),
		keys: []int{2, 8, 40, 150, 600}[r.IntN(5)], scans: []int{1 << 30, 4, 12}[r.IntN(3)],
		growing: r.IntN(2) == 0, limit: longLimit,
	}
	switch r.IntN(8) {
	case 0, 1:
		s.limit = shortLimit
	case 2, 3, 4:
		s.lease = []time.Duration{10, 30, 100}[r.IntN(3)] * time.Millisecond
	}
	if r.IntN(2) == 0 {
		s.renew = []time.Duration{20, 100, 1000}[r.IntN(3)] * time.Microsecond
	}
	if r.IntN(2) == 0 {
		s.waves, s.keys, s.ops = true, []int{40, 150}[r.IntN(2)], 3*s.ops
	}
	if s.keys >= 40 && r.IntN(2) == 0 {
		s.window = 8 + r.IntN(32)
	}
	s.preload = r.IntN(1 + s.keys>>r.IntN(6))
	if r.IntN(2) == 0 {
		s.options = index.Options{Uint64: true, MaxValueBytes: 8 + r.IntN(24), NodeBytes: 256 << r.IntN(2)}
	} else {
		s.options = index.Options{MaxKeyBytes: 40, MaxValueBytes: 8 + r.IntN(40), NodeBytes: []int{0, 512, 640}[r.IntN(3)]}
	}
	s.options.CacheBytes = RoomyCache
	if r.IntN(3) == 0 {
		s.options.CacheBytes = 2048 // next to nothing
	}
	return s
}

// switchesOf is where clients draw their switches from, each for itself: in half of the runs, else
// nil. The source is one of its own, so that what a seed stood for before there were switches, it
// stands for still, but for what these change.
func switchesOf(seed uint64) *rand.Rand {
	r := rand.New(rand.NewPCG(seed, 78))
	if r.IntN(2) == 0 {
		return nil
	}
	return r
}

// halfOf draws whether clients are fenced on single servers, in half of the runs in which they die.
// The source is one of its own.
func halfOf(seed uint64, sh *shape) *rand.Rand {
	r := rand.New(rand.NewPCG(seed, 81))
	if sh.lease == 0 || r.IntN(2) == 0 {
		return nil
	}
	return r
}

// inlineOf draws the inline size of values: in half of the runs some are longer. The source is one
// of its own, as that of switches is.
func inlineOf(seed uint64, o *index.Options) int {
	r := rand.New(rand.NewPCG(seed, 80))
	if r.IntN(2) == 0 {
		return 0
	}
	return 1 + r.IntN(o.MaxValueBytes)
}

// shorten makes values words, in half of the runs; in half of these most have one length, and half
// of the operations are updates, which change nothing but the word. The source is one of its own,
// as that of switches is.
func shorten(seed uint64, sh *shape) {
	r := rand.New(rand.NewPCG(seed, 87))
	if r.IntN(2) == 0 {
		sh.options.MaxValueBytes, sh.options.InlineBytes = 8, 0
		sh.even = r.IntN(2) == 0
	}
}

// memoryOf draws how much memory there is on each server, and in half of the runs another size of
// nodes. One run in four has few chunks of a few nodes each. Most of those have long values, small
// caches and many deletes too: there a write that met a leaf which its parent does not know yet
// has to wait for memory. The sources are its own.
func memoryOf(seed uint64, sh *shape) (chunkBytes, chunks int) {
	o := &sh.options
	if r := rand.New(rand.NewPCG(seed, 83)); r.IntN(2) == 0 {
		least := 512
		if o.Uint64 {
			least = 256
		}
		if o.NodeBytes = least + 64*r.IntN(12); r.IntN(16) == 0 {
			o.NodeBytes = 32 << 10
		}
	}
	r := rand.New(rand.NewPCG(seed, 82))
	if r.IntN(4) != 0 {
		return 256 << 10, 32
	}
	sh.full = true
	if o.NodeBytes > 2<<10 {
		o.NodeBytes = 0
	}
	if sh.renew == 0 {
		sh.renew = 100 * time.Microsecond
	}
	if r.IntN(4) != 0 {
		o.InlineBytes = 1 + r.IntN(8) // writes of long values wait for memory
	}
	chunkBytes, chunks = 8<<10, 2+r.IntN(2+2*sh.clients)
	if r.IntN(4) != 0 {
		o.CacheBytes, o.InlineBytes = 2048<<r.IntN(3), 1
		sh.waves, sh.keys, sh.ops = true, 150, max(sh.ops, 150)
		sh.preload = min(sh.preload, 40)
	}
	return chunkBytes, chunks
}

// crowd lets more sessions of each client work, in one run of four, so that several queue for a
// lock. In half of these they look up two or three keys more than they do anything else, so that
// many READ one node. The source is one of its own.
func crowd(seed uint64, sh *shape) {
	r := rand.New(rand.NewPCG(seed, 84))
	if r.IntN(4) == 0 {
		sh.sessions += 2 + r.IntN(4)
		sh.ops = 1 + sh.ops/2
		if sh.popular = r.IntN(2) == 0; sh.popular {
			sh.window = 2 + r.IntN(2)
		}
	}
}

// span gives a design of hopscotch leaves, in half of the runs, leaves of more slots than a
// neighbourhood has, so that keys hop; and strings that lie in the leaf. The source is one of its
// own.
func span(seed uint64, sh *shape) {
	r := rand.New(rand.NewPCG(seed, 85))
	if sh.full || r.IntN(2) == 0 {
		return
	}
	if sh.options.NodeBytes = 1088 + 64*r.IntN(20); !sh.options.Uint64 {
		sh.options.MaxKeyBytes = 32
	}
	sh.keys = max(sh.keys, 150)
}

// neighbourhoodOf draws that of a design of hopscotch leaves: in half of the runs another one than
// 8. Other designs have none. The source is one of its own.
func neighbourhoodOf(d index.Design, seed uint64) int {
	if !slices.Contains(d.Switches, "hopscotchLeaf") {
		return 0
	}
	r := rand.New(rand.NewPCG(seed, 86))
	return []int{0, 0, 0, 16, 16, 3}[r.IntN(6)]
}

// pick draws a key. Windows change with the time of the history, so all clients go from one to the
// next together.
func (s *shape) pick(r *rand.Rand, h *history) string {
	if s.window == 0 {
		return s.key(r.IntN(s.keys))
	}
	start := uint64(h.clock) / uint64(8*s.window) * 0x9E3779B97F4A7C15 >> 33
	return s.key((int(start) + r.IntN(s.window)) % s.keys)
}

// drawKeys draws keys for a batch.
func (s *shape) drawKeys(r *rand.Rand, h *history) (keys []string) {
	for range 1 + r.IntN(20) {
		keys = append(keys, s.pick(r, h))
	}
	return keys
}

// draw draws what to do.
func (s *shape) draw(r *rand.Rand, h *history) register.Verb {
	if s.even && r.IntN(2) == 0 {
		return []register.Verb{register.Update, register.Update, register.Upsert, register.Modify}[r.IntN(4)]
	}
	if s.waves && r.IntN(4) != 0 {
		if int(h.clock)/(3*s.keys)%2 == 0 {
			return register.Upsert
		}
		return register.Delete
	}
	if s.popular && r.IntN(4) != 0 {
		return register.Lookup
	}
	if s.growing && r.IntN(2) == 0 {
		return []register.Verb{register.Lookup, register.Insert, register.Upsert}[r.IntN(3)]
	}
	return register.Verb(r.IntN(int(register.NumVerbs)))
}

func (s *shape) key(n int) string {
	if s.options.Uint64 {
		var b [8]byte
		b[7], b[6], b[0] = byte(n), byte(n>>8), byte(n%3)
		return string(b[:])
	}
	return fmt.Sprintf("%03d%*s", n, n%30, "")
}
