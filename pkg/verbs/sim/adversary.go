package sim

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// adversary does to lists whatever the contract of package verbs does not forbid. A list becomes a
// [flight]; its requests begin as soon as G1 lets them, each after a delay of its own, and are
// served in parts, so that parts of others come in between.
//
// What it relies on is only the text of the contract:
//   - G1 decides which requests of a list must be through before another one begins
//     (flight.mayBegin).
//   - G2 decides what a part is: aligned words, or lines with CacheLineAtomic; in any order, or by
//     address with OrderedWrite. Atomics exclude each other on a word, and nothing else on it
//     (flight.atomic).
//   - A call is executed by a goroutine of the server, which reads the memory as READs do, each
//     word at a moment of its own.
//   - G3 decides when a wait ends: some time after the last part. After the end of a queue pair
//     whatever was under way goes on, and stops anywhere, down to WholeWrite, until the connection
//     is closed or cut or the client has connected anew (flight.abandon). To close a connection
//     that is lost ends nothing.
type adversary struct {
	fabric *Fabric
	plan   *Plan
	rand   *rand.Rand
	doomed []*doom // one for each name of a process

	copies *rand.Rand // what mirrored servers lose

	failOvers, again, undone int // as FailOvers says
}

// doom is what happens to processes of one name.
type doom struct {
	process string
	parts   int     // served
	faults  []Fault // in the order of their parts
	await   []Fault // fail-overs that wait for their moment
}

func newAdversary(f *Fabric, p *Plan) *adversary {
	e := &adversary{fabric: f, plan: p, rand: f.world.Faults(), copies: rand.New(rand.NewPCG(f.world.Seed(), 93))}
	for _, fault := range p.Faults {
		d := e.doomOf(fault.Process)
		d.faults = append(d.faults, fault)
	}
	for _, d := range e.doomed {
		sort.SliceStable(d.faults, func(i, j int) bool { return d.faults[i].Part < d.faults[j].Part })
	}
	return e
}

// doomOf is that of processes of a name.
func (e *adversary) doomOf(process string) *doom {
	i := slices.IndexFunc(e.doomed, func(d *doom) bool { return d.process == process })
	if i < 0 {
		i = len(e.doomed)
		e.doomed = append(e.doomed, &doom{process: process})
	}
	return e.doomed[i]
}

// delay is what a message takes longer than it might.
func (e *adversary) delay() time.Duration {
	mean := int64(max(1, e.plan.Delay))
	switch e.rand.IntN(8) {
	case 0:
		return 0
	case 1:
		return time.Duration(e.rand.Int64N(8 * mean))
	}
	if e.plan.Stall > 0 && e.rand.IntN(e.plan.Stall) == 0 {
		return time.Duration(e.rand.Int64N(int64(e.plan.StallFor) + 1))
	}
	return time.Duration(e.rand.Int64N(2 * mean))
}

// gap is how long after one part of a request the next one comes.
func (e *adversary) gap() time.Duration {
	mean := int64(max(1, e.plan.Gap))
	switch e.rand.IntN(4) {
	case 0:
		return time.Duration(e.rand.Int64N(mean/8 + 1))
	case 1:
		return time.Duration(e.rand.Int64N(5 * mean))
	}
	return time.Duration(e.rand.Int64N(2 * mean))
}

// served counts a part of a list of q and lets the faults happen that are due.
func (e *adversary) served(q *qp) {
	d := q.conn.device.doom
	d.parts++
	if len(d.await) > 0 && d.parts >= d.await[0].Part+patience {
		f := d.await[0]
		d.await = d.await[1:]
		e.happen(f, q)
	}
	for len(d.faults) > 0 && d.faults[0].Part <= d.parts {
		f := d.faults[0]
		d.faults = d.faults[1:]
		if f.At != "" {
			d.await = append(d.await, f)
			continue
		}
		e.happen(f, q)
	}
}

// moment is told of a moment of a list of q. Whoever waits for the answer has it before the server
// fails over.
func (e *adversary) moment(at Moment, q *qp) {
	d := q.conn.device.doom
	for i, f := range d.await {
		if f.At == at {
			d.await = append(d.await[:i:i], d.await[i+1:]...)
			e.fabric.world.After(time.Nanosecond, nil, func() { e.happen(f, q) })
			return
		}
	}
}

// happen makes a fault happen to the process or the server of q.
func (e *adversary) happen(f Fault, q *qp) {
	w, c := e.fabric.world, q.conn
	p, s := c.device.process, c.server
	w.Note(uint64(f.Part))
	switch f.Kind {
	case Crash:
		p.Kill()
	case Freeze:
		p.Freeze()
		w.After(f.For, nil, p.Thaw)
	case Drop:
		c.lose()
	case Restart:
		s.Restart(false)
	case FailOver:
		s.FailOver(f.For)
	case Lose:
		s.Restart(true)
	case Drift:
		p.SetDrift(f.PPM)
	case Jump:
		p.Jump(f.For)
	default:
		panic("sim: no fault is called " + string(f.Kind))
	}
}

// wholeTransfers is from how many words on a transfer is torn into runs only, which costs less.
const wholeTransfers = 1024

// tear says for each of n units at which of the moments that it returns it is served. kind 0 to 3:
// any unit at any moment; runs upwards; runs downwards; one unit apart from the rest.
func (e *adversary) tear(n int, ordered bool, at []uint8) (moments int) {
	moments = 1
	if m := min(e.plan.Tear, n, 250); m > 1 {
		moments = 1 + e.rand.IntN(m)
	}
	clear(at[:n])
	if moments == 1 {
		return 1
	}
	kind := e.rand.IntN(4)
	if ordered {
		kind = 1
	} else if n > wholeTransfers && kind == 0 {
		kind = 2
	}
	switch kind {
	case 0:
		for i := range n {
			at[i] = uint8(e.rand.IntN(moments))
		}
	case 1, 2:
		for range moments - 1 {
			at[e.rand.IntN(n)]++
		}
		for i := 1; i < n; i++ {
			at[i] += at[i-1]
		}
		if kind == 2 {
			for i := range n {
				at[i] = uint8(moments-1) - at[i]
			}
		}
	default:
		moments = 2
		alone := e.rand.IntN(n)
		if e.rand.IntN(4) == 0 {
			alone = (n - 1) * e.rand.IntN(2) // the first or the last
		}
		if e.rand.IntN(2) == 0 {
			at[alone] = 1
		} else {
			for i := range n {
				at[i] = 1
			}
			at[alone] = 0
		}
	}
	return moments
}

// units is how many parts r can be torn into, and bounds says where one begins: aligned words of
// the region, or lines.
func (e *adversary) units(r *verbs.Request) int {
	size := e.unit()
	first, last := r.Remote/size, (r.Remote+uint64(len(r.Local))-1)/size
	return int(last - first + 1)
}

func (e *adversary) unit() uint64 {
	if e.plan.Capabilities.CacheLineAtomic {
		return 64
	}
	return 8
}

// bounds are the bytes of so many units of r from unit i on, counted in its buffer.
func (e *adversary) bounds(r *verbs.Request, i, units int) (from, to int) {
	size := int(e.unit())
	from = i*size - int(r.Remote%uint64(size))
	return max(0, from), min(len(r.Local), from+units*size)
}
