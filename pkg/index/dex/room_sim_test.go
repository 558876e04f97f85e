package dex_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestReplayInFullPool: a dead client's log has insertions for which leaves have to be split, and
// the pool has no node left. Then the replay says what it lacks, and ends when the pool has grown.
// With deletions beside, which empty leaves, it ends by itself. In half of the runs the range is
// taken in two parts, of which the boundary lies within a leaf.
func TestReplayInFullPool(t *testing.T) {
	stuck := 0
	for seed := range uint64(8) {
		var grown [2]bool
		for i, deletions := range []int{0, 60} {
			_, f, ended, err := replayInFullPool(t, seed, 1<<30, deletions)
			if err != nil || !ended {
				t.Fatalf("seed %d, %d deletions: ended %v, %v", seed, deletions, ended, err)
			}
			t.Logf("seed %d: %d insertions, %d deletions logged; refused %d times, grown: %v", seed, f.insertions, f.deletions, f.refused, f.grown)
			grown[i] = f.grown
		}
		if grown[0] {
			stuck++
		}
		if grown[1] {
			t.Errorf("seed %d: deletions made no room", seed)
		}
	}
	if stuck < 4 {
		t.Errorf("in %d runs of 8 there was no room: the pools are not full", stuck)
	}
}

// TestCrashInFullReplay kills a client that replays in a full pool after parts of its requests. See
// afterEachPart.
func TestCrashInFullReplay(t *testing.T) {
	seeds, step := uint64(4), 47
	afterEachPart(t, seeds, step, func(t *testing.T, seed uint64, part int) (bool, error) {
		_, _, ended, err := replayInFullPool(t, seed, part, 60)
		return ended, err
	})
}

// fullReplay is one run.
type fullReplay struct {
	o          *owners
	hog        *pool.Pool // has all chunks that nobody else has
	hogs       *simenv.Process
	chunks     []pool.Addr
	grown      bool
	insertions int
	deletions  int // at most, before the log is made
	refused    int // Takes that found no memory

	pause  time.Duration // before a Take that found no memory is tried again
	pair   bool          // two clients take it, at once
	middle uint64        // the first key of the upper one
}

const (
	fullKeys    = 1200
	fullOwn     = 1190 // from here on keys are the taker's own
	fullChunk   = 16 << 10
	fullRefuses = 10
)

func replayInFullPool(t *testing.T, seed uint64, part, deletions int) (o *owners, f *fullReplay, ended bool, err error) {
	return fullReplayWith(t, seed, part, &fullReplay{deletions: deletions, pause: 20 * time.Millisecond})
}

func fullReplayWith(t *testing.T, seed uint64, part int, f *fullReplay) (o *owners, _ *fullReplay, ended bool, err error) {
	o, err = dying(t, seed, "client-2", part, fullKeys, 512, poolsim.Options{Servers: 1 + int(seed%2), ChunkBytes: fullChunk, Chunks: 12})
	if err != nil {
		return nil, nil, false, err
	}
	f.o = o
	return o, f, ended, o.w.Run(func(p *simenv.Process) {
		o.main = p
		if err := f.run(&ended); err != nil {
			o.w.Fail(err)
		}
	})
}

func (f *fullReplay) run(ended *bool) error {
	o := f.o
	g := &owned{low: 0, high: fullOwn, start: simKey(0), end: simKey(fullOwn)}
	parts := []*owned{g}
	own := &owned{low: fullOwn, high: fullKeys, start: simKey(fullOwn)}
	o.ranges = []*owned{g, own}
	o.make()
	first := o.living[0]
	if err := o.moveTo(g, first); err != nil {
		return err
	}
	if err := f.fill(own); err != nil {
		return err
	}
	if _, err := o.in(first, "leave", func() error { return f.leave(first, g) }); err != nil {
		return err
	}
	first.p.Kill()
	o.died(first)
	switch {
	case f.pair:
		parts = nil
	case o.seed/2%2 == 1:
		const middle = fullOwn / 3
		above := &owned{low: middle, high: fullOwn, start: simKey(middle), end: g.end, inherits: slices.Clone(g.inherits)}
		above.inherits[0].Start = above.start
		g.end, g.high, g.inherits[0].End = above.start, middle, above.start
		parts = []*owned{g, above}
		o.ranges = append(o.ranges, above)
	}
	for _, g := range parts {
		if err := f.take(g); err != nil {
			return err
		}
	}
	if f.pair {
		if err := f.takeBoth(g); err != nil {
			return err
		}
	}
	*ended = o.counts.deaths == 1
	f.grow()
	return o.last()
}

// fill makes the pool full for all but client 1, which has begun a chunk. Client 2 has a range of
// its own, in which it writes a key, its places for images, and no other node.
func (f *fullReplay) fill(own *owned) (err error) {
	o := f.o
	var c *owner
	if o.make() {
		c = o.living[1]
		if err := o.moveTo(own, c); err != nil {
			return err
		}
	}
	for f.pair && len(o.living) < 3 { // who takes the other part; a full pool has no room for a log
		o.make()
	}
	if own.by != nil && own.by == c {
		alive, err := o.in(c, "write", func() error {
			s, err := c.x.Session()
			if err == nil {
				err = errors.Join(f.write(s, own.low), s.Close())
			}
			return err
		})
		if err != nil {
			return err
		}
		if !alive {
			o.died(c)
		}
	}
	if err := f.takeChunks(); err != nil || c == nil || c.p.Dead() {
		return err
	}
	_, err = o.in(c, "use all nodes", func() error {
		for {
			if _, err := c.pool.Allocate(o.opts.NodeBytes, pool.Nil); err != nil {
				return nil
			}
		}
	})
	return err
}

// takeChunks takes all that there are.
func (f *fullReplay) takeChunks() (err error) {
	o := f.o
	f.hogs = o.w.NewProcess("hog")
	over := o.main.NewEvent()
	f.hogs.Go("take all", func() {
		defer over.Set()
		if f.hog, err = o.c.Open(f.hogs); err != nil {
			return
		}
		control := o.c.Control(f.hogs)
		for _, id := range control.Servers() {
			for {
				at, err := control.AllocateChunk(id, f.hog.Client(), 4096, false, time.Second)
				if err != nil {
					break
				}
				f.chunks = append(f.chunks, pool.NewAddr(id, at))
			}
		}
	})
	over.Wait(time.Minute)
	return err
}

// grow gives the pool all of its memory.
func (f *fullReplay) grow() {
	over := f.o.main.NewEvent()
	f.hogs.Go("give back", func() {
		defer over.Set()
		control := f.o.c.Control(f.hogs)
		for _, a := range f.chunks {
			if err := control.FreeChunk(a.Server(), f.hog.Client(), a.Offset(), time.Second); err != nil {
				f.o.w.Fail(err)
			}
		}
		f.chunks = nil
	})
	over.Wait(time.Minute)
}

func (f *fullReplay) value(r *rand.Rand) []byte {
	v := make([]byte, 20)
	if f.o.opts.InlineBytes > 0 {
		v = v[:f.o.opts.InlineBytes]
	}
	for i := range v {
		v[i] = byte('a' + r.IntN(26))
	}
	return v
}

// write writes a key. One that is refused is as it was.
func (f *fullReplay) write(s index.Session, n uint64) error {
	key, r := simKey(n), rand.New(rand.NewPCG(f.o.seed, n))
	m, v := f.o.model[string(key)], f.value(r)
	was := *m
	m.begin(string(v))
	err := s.Upsert(key, v)
	switch {
	case err == nil:
		m.ack()
	case errors.Is(err, index.ErrPoolFull):
		*m = was
	}
	return err
}

// leave fills the leaves of a client until some insertions find no memory, and writes all back.
// Then its log gets these, and deletions of its lower keys.
func (f *fullReplay) leave(c *owner, g *owned) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	var there, refused []uint64
	for _, n := range rand.New(rand.NewPCG(f.o.seed, 11)).Perm(int(g.high)) {
		switch err := f.write(s, uint64(n)); {
		case errors.Is(err, index.ErrPoolFull):
			refused = append(refused, uint64(n))
		case err != nil:
			return err
		default:
			there = append(there, uint64(n))
		}
		if len(refused) == fullRefuses {
			break
		}
	}
	if len(refused) < fullRefuses {
		return errors.New("the pool does not get full")
	}
	if _, err := c.x.(index.Checker).Check(); err != nil {
		return err
	}
	c.p.Sleep(300 * time.Millisecond) // then the log is truncated
	slices.Sort(there)
	if err := f.write(s, there[len(there)-1]); err != nil { // the log is not truncated behind it
		return err
	}
	var keys, values [][]byte
	for _, n := range there[:min(f.deletions, len(there)/2)] {
		keys, values = append(keys, simKey(n)), append(values, nil)
	}
	f.deletions = len(keys)
	for _, n := range refused {
		if f.deletions > 0 && n < there[f.deletions+20] { // there is room now
			continue
		}
		keys, values = append(keys, simKey(n)), append(values, f.value(rand.New(rand.NewPCG(f.o.seed, 1000+n))))
		f.insertions++
	}
	if f.pair {
		for i, n := range f.around(there, refused) {
			v := []byte(nil)
			if i%3 > 0 {
				v = f.value(rand.New(rand.NewPCG(f.o.seed, 2000+n)))
			}
			keys, values = append(keys, simKey(n)), append(values, v)
		}
	}
	if err := dex.LogOnly(c.x, keys, values); err != nil {
		return err
	}
	for i, key := range keys {
		m := f.o.model[string(key)]
		m.begin(string(values[i]))
		m.ack()
	}
	return nil
}

// take lets clients take g, one after the other as they die. Where that does not end, the pool
// grows.
func (f *fullReplay) take(g *owned) error {
	o := f.o
	for g.by == nil {
		if len(o.living) == 0 && !o.make() {
			continue
		}
		if err := f.takeAs(o.living[len(o.living)-1], g); err != nil {
			return err
		}
	}
	return nil
}

// takeAs lets c take g, unless it dies.
func (f *fullReplay) takeAs(c *owner, g *owned) error {
	o := f.o
	o.epoch++
	g.epoch = o.epoch
	for tries := 0; ; tries++ {
		records := uint64(0)
		alive, err := o.in(c, "take", func() error {
			records = dex.Records(c.x)
			defer func() { records = dex.Records(c.x) - records }()
			return c.x.Take(pool.Holding{Start: g.start, End: g.end, Epoch: g.epoch, Inherits: g.inherits})
		})
		switch {
		case !alive:
			g.by = c
			o.died(c)
			return nil
		case errors.Is(err, index.ErrPoolFull):
			if f.refused++; !strings.Contains(err.Error(), "raise the quota") {
				return err
			}
			if tries >= 40 && !f.grown {
				f.grown = true
				f.grow()
			}
			o.main.Sleep(f.pause)
		case err != nil:
			return err
		case records > 0:
			return errors.New("a replay is in the log of who replays")
		default:
			g.by, g.inherits = c, nil
			return nil
		}
	}
}
