package dolphin

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// recorder is a device that tells what each list has that is posted.
type recorder struct {
	verbs.Device
	posted func(list []verbs.Request)
	waited func()
}

// Connect implements verbs.Device.
func (d *recorder) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	c, err := d.Device.Connect(t, limit)
	return recorded{c, d}, err
}

type recorded struct {
	verbs.Conn
	d *recorder
}

// NewQP implements verbs.Conn.
func (c recorded) NewQP(a *verbs.Arena) (verbs.QP, error) {
	q, err := c.Conn.NewQP(a)
	return &recordedQP{q, c.d}, err
}

type recordedQP struct {
	verbs.QP
	d *recorder
}

// Start implements verbs.QP.
func (q *recordedQP) Start(list []verbs.Request) error {
	q.d.posted(list)
	return q.QP.Start(list)
}

// Wait implements verbs.QP.
func (q *recordedQP) Wait() error {
	q.d.waited()
	return q.QP.Wait()
}

// splitStep is what one step takes, in all splits.
type splitStep struct {
	trips, reads, writes, atomics, bytes int
}

// splits counts the requests of inserts that divide a leaf, by the step that they are of.
type splits struct {
	lay       *layout
	n         int
	steps     map[string]*splitStep
	trip      []verbs.Request // lists that are posted side by side
	waiting   bool
	inserts   int // all of them
	all, once splitStep
	of        []string
	takes     []splitStep
}

// stepOf names the step of what is posted together.
func (c *splits) stepOf(trip []verbs.Request) string {
	first, last := &trip[0], &trip[len(trip)-1]
	has := func(op verbs.Op, bytes int) bool {
		return slices.ContainsFunc(trip, func(r verbs.Request) bool { return r.Op == op && len(r.Local) == bytes })
	}
	acquires := slices.ContainsFunc(trip, func(r verbs.Request) bool { return r.Op.Atomic() }) && last.Op == verbs.Read
	leaf, write := c.lay.size, first.Op == verbs.Write
	switch n := len(first.Local); {
	case has(verbs.Write, leaf) && last.Op.Atomic():
		return "e WRITE of leaves and of the forward word, release"
	case has(verbs.Write, leaf):
		return "d WRITE of leaves that lie elsewhere"
	case acquires:
		return "a acquire, READ of the keys"
	case write && n == wordBytes && last.Op == verbs.Read:
		return "b shut, READ of the presence words"
	case write && last.Op.Atomic() && len(trip) > 2 && n == wordBytes:
		return "i WRITE of the pair, release"
	case write && last.Op.Atomic() && n == wordBytes:
		return "e WRITE of the forward word, release"
	case first.Op.Atomic():
		return "g swaps of slots"
	case write && n == headEnd:
		return "h dead marks"
	case first.Op == verbs.Read && len(c.of) > 0 && c.of[len(c.of)-1] < "c":
		return "c READ of the values"
	case first.Op == verbs.Read && n == leaf:
		return "f READ of a leaf"
	case first.Op == verbs.Read && n == wordBytes:
		return "f READ of a slot"
	}
	return "g inner nodes, with their swaps"
}

func (c *splits) posted(list []verbs.Request) {
	if c.lay == nil {
		return
	}
	if c.waiting {
		c.flush()
	}
	c.trip = append(c.trip, list...)
}

func (c *splits) waited() { c.waiting = true }

func (c *splits) flush() {
	if len(c.trip) == 0 {
		return
	}
	t := splitStep{trips: 1}
	for _, r := range c.trip {
		n := len(r.Local)
		switch {
		case r.Op == verbs.Read:
			t.reads++
		case r.Op == verbs.Write:
			t.writes++
		default:
			t.atomics++
			n = wordBytes
		}
		t.bytes += n
	}
	c.of, c.takes = append(c.of, c.stepOf(c.trip)), append(c.takes, t)
	c.trip, c.waiting = c.trip[:0], false
}

func (t *splitStep) add(o *splitStep) {
	t.trips += o.trips
	t.reads += o.reads
	t.writes += o.writes
	t.atomics += o.atomics
	t.bytes += o.bytes
}

func (t *splitStep) each(n int) string {
	per := func(i int) float64 { return float64(i) / float64(n) }
	return fmt.Sprintf("%6.2f trips %6.2f READs %6.2f WRITEs %6.2f atomics %7.0f bytes", per(t.trips), per(t.reads), per(t.writes), per(t.atomics), per(t.bytes))
}

// insert counts one insert.
func (c *splits) insert(s *Session, key []byte) error {
	c.of, c.takes = c.of[:0], c.takes[:0]
	err := s.Insert(key, key)
	c.flush()
	c.inserts++
	divided := slices.ContainsFunc(c.of, func(step string) bool { return strings.HasPrefix(step, "d") || strings.HasPrefix(step, "e") })
	if divided {
		c.n++
	}
	for i := range c.of {
		c.all.add(&c.takes[i])
		if divided {
			c.once.add(&c.takes[i])
			t := c.steps[c.of[i]]
			if t == nil {
				t = new(splitStep)
				c.steps[c.of[i]] = t
			}
			t.add(&c.takes[i])
		}
	}
	return err
}

// TestSplitCosts counts what each step of a split takes, for a client alone, with all inner nodes
// in its cache, and presence words for 64 intent slots; and for one of four that insert in turn, so
// its copies lack what the others put into slots. It has ceilings for all of a split, with the
// insert that makes it.
func TestSplitCosts(t *testing.T) {
	const keys, counted = 12_000, 8_000
	spread := func(i uint64) uint64 { return i * 0x9E3779B97F4A7C15 }
	// nodes of some leaves each, which are searched
	searched := func(i uint64) uint64 { return spread(i) >> 12 }
	ascending := func(i uint64) uint64 { return i }
	for _, d := range []struct {
		name         string
		key          func(i uint64) uint64
		without      bool // presence words
		clients      int
		trips, bytes float64
	}{
		{"random", spread, false, 1, 7.8, 3850},
		{"ascending", ascending, false, 1, 8.8, 3900},
		{"random, no presence words", spread, true, 1, 6.8, 3350},
		{"ascending, no presence words", ascending, true, 1, 7.8, 3400},
		{"random, of four clients", searched, false, 4, 9.4, 4100},
	} {
		t.Run(d.name, func(t *testing.T) {
			w := simenv.New(simenv.Options{Seed: 1, Ordered: true, MaxEvents: 50_000_000})
			c, err := poolsim.New(w, poolsim.Options{Servers: 4, Chunks: 16, ChunkBytes: 256 << 10, NamesAlone: d.without, Fabric: sim.Options{Capabilities: verbs.Capabilities{MaskedAtomics: true}}})
			must(t, err)
			must(t, w.Run(func(p *simenv.Process) {
				n := splits{steps: map[string]*splitStep{}}
				x := make([]*Session, d.clients)
				for i := range x {
					device := c.Fabric.Device(p)
					if i == 0 {
						device = &recorder{device, n.posted, n.waited}
					}
					of, err := pool.Open(pool.Config{Env: p, Control: c.Control(p), Identity: poolsim.Identity, Devices: []verbs.Device{device}})
					must(t, err)
					tree, err := open(of, index.Options{Uint64: true, MaxValueBytes: 8})
					must(t, err)
					x[i], err = tree.newSession()
					must(t, err)
				}
				n.lay = x[0].lay
				for i := range uint64(keys) {
					if i == keys-counted {
						n = splits{steps: map[string]*splitStep{}, lay: n.lay}
					}
					key := binary.BigEndian.AppendUint64(nil, d.key(i))
					if s := x[i%uint64(d.clients)]; s != x[0] {
						must(t, s.Insert(key, key))
						continue
					}
					must(t, n.insert(x[0], key))
				}
				t.Logf("%d inserts, %d of them divide a leaf", n.inserts, n.n)
				var names []string
				for name := range n.steps {
					names = append(names, name)
				}
				slices.Sort(names)
				for _, name := range names {
					t.Logf("%-52s %s", name, n.steps[name].each(n.n))
				}
				t.Logf("%-52s %s", "a split and its insert", n.once.each(n.n))
				t.Logf("%-52s %s", "an insert, with its share", n.all.each(n.inserts))
				trips, bytes := float64(n.once.trips)/float64(n.n), float64(n.once.bytes)/float64(n.n)
				if n.n == 0 || trips > d.trips || bytes > d.bytes {
					t.Errorf("%d splits of %.2f round trips and %.0f bytes, at most %.2f and %.0f", n.n, trips, bytes, d.trips, d.bytes)
				}
			}))
		})
	}
}
