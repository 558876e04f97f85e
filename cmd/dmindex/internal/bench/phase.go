package bench

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// phase is a part of a run: the load, which inserts all records, or a part of the stream.
type phase struct {
	b      *bencher
	name   string
	ops    []workload.Operation // of the stream; nil = the load
	first  uint64               // place of ops[0] in the stream
	length uint64
	queues []*queue

	failed atomic.Bool
	left   atomic.Int64 // queues in which there is something left
	// when the first client found nothing left to do, in the queue that took longest; 0 = not yet
	ended  atomic.Int64
	began  time.Duration
	report *progress
	crash  *crash // of a compute server, in its middle; nil = none dies

	// of all clients, once the phase is over
	latency Histogram
	done    uint64 // operations that were over before it ended
	missed  uint64
	took    time.Duration // until it ended
}

// newPhase makes a phase of some operations of the stream, from place first on, or with nil of the
// load.
func newPhase(b *bencher, name string, ops []workload.Operation, first, length uint64) *phase {
	p := &phase{b: b, name: name, ops: ops, first: first, length: length}
	p.queues = b.queues(length, func(i uint64) uint64 {
		if ops == nil {
			return b.stream.Record(i)
		}
		return ops[i].Item()
	})
	p.left.Store(int64(len(p.queues)))
	return p
}

// begun is how many operations were begun.
func (p *phase) begun() (n uint64) {
	for _, q := range p.queues {
		n += q.begun()
	}
	return n
}

// apart is what the compute servers did in a second, each while it had something left: as if each
// had a stream of its own.
func (p *phase) apart() (sum float64) {
	for _, q := range p.queues {
		if took := time.Duration(q.ended.Load()) - p.began; took > 0 {
			sum += float64(q.done) / took.Seconds()
		}
	}
	return sum
}

// throughput is that of the time in which every client had work, of those for the queue that took
// longest.
func (p *phase) throughput() float64 {
	if p.took <= 0 {
		return 0
	}
	return float64(p.done) / p.took.Seconds()
}

// load is the phase that inserts all records.
func (b *bencher) load() error {
	if b.run.BulkLoad {
		return b.bulkLoad()
	}
	return newPhase(b, "load", nil, 0, b.run.Records).run()
}

// bulkLoad loads all records at once. The keys of items compare as their scrambled numbers do.
func (b *bencher) bulkLoad() (err error) {
	r := b.run
	scrambled := make([]uint64, r.Records)
	for i := range scrambled {
		scrambled[i] = workload.Scramble(b.stream.Record(uint64(i)))
	}
	slices.Sort(scrambled)
	began := b.cluster.now()
	report := newProgress(r.Progress, fmt.Sprintf("%s %s: bulk load", r.Design, r.Workload.Name), r.Transport == "sim", began, r.Records)
	var key, value []byte
	g := env.NewWaitGroup(b.cluster.env(0))
	g.Go("bulk load", func() {
		err = b.members[0].BulkLoad(func(yield func(key, value []byte) bool) error {
			for i, x := range scrambled {
				item := workload.Unscramble(x)
				key, value = b.keys.Append(key[:0], item), workload.AppendValue(value[:0], r.ValueBytes, item, 0)
				if !yield(key, value) {
					break
				}
				if i&progressMask == 0 {
					report.at(b.cluster.now(), uint64(i))
				}
			}
			return b.ctx.Err()
		}, r.Clients)
	})
	g.Wait(env.Forever)
	if err == nil {
		report.line(b.cluster.now(), r.Records)
	}
	return err
}

// part is a phase that does the operations of the stream from one place up to another.
func (b *bencher) part(name string, from, to int) (*phase, error) {
	p := newPhase(b, name, b.stream.Ops[from:to], uint64(from), uint64(to-from))
	return p, p.run()
}

// run lets all clients work. Each has a session of its own for this phase, and all begin at once.
func (p *phase) run() error {
	b := p.b
	if p.length == 0 {
		return nil
	}
	clients := make([]*client, b.run.Clients)
	groups := make([]*env.WaitGroup, b.run.ComputeServers)
	for i := range clients {
		s, err := b.session(i % len(groups))
		if err != nil {
			return fmt.Errorf("session %d: %w", i+1, err)
		}
		s.SetLimit(operationLimit)
		clients[i] = newClient(p, s, i%len(groups))
	}
	p.began = b.cluster.now()
	p.report = newProgress(b.run.Progress, fmt.Sprintf("%s %s: %s", b.run.Design, b.run.Workload.Name, p.name), b.run.Transport == "sim", p.began, p.length)
	for i := range groups {
		groups[i] = env.NewWaitGroup(b.cluster.env(i))
		for j := i; j < len(clients); j += len(groups) {
			groups[i].Go(fmt.Sprint("client ", j+1), clients[j].work)
		}
	}
	var errs []error
	if p.crash == nil {
		for _, g := range groups {
			g.Wait(env.Forever)
		}
	} else {
		clients, errs = p.crash.survivors(clients, groups), []error{p.crash.err}
	}
	for _, c := range clients {
		errs = append(errs, c.err, c.session.Close())
		p.latency.add(&c.latency)
		p.done += c.done
		c.queue.done += c.own
		p.missed += c.missed
	}
	p.took = time.Duration(p.ended.Load()) - p.began
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.report.line(b.cluster.now(), p.length)
	return nil
}

// operationLimit is far above what any operation takes: one that goes over it fails the run.
const operationLimit = time.Minute

// client is one session's driver.
type client struct {
	p       *phase
	b       *bencher
	queue   *queue
	server  int
	since   time.Duration // its first operation waits since then; 0 = it begins with its work
	under   uint64        // place of the operation under way, counted from 1; 0 = none is
	env     env.Env
	session index.Session
	err     error

	key, value, dst []byte
	// order, as a value, so that scans allocate nothing
	visit    func(key, value []byte) bool
	previous []byte // key that order saw last
	disorder bool

	latency Histogram
	done    uint64
	own     uint64 // of them, those that were over before its queue was empty
	missed  uint64
	changed bool // the operation under way gave its item a value
}

// newClient makes a client on a compute server.
func newClient(p *phase, s index.Session, server int) *client {
	r := p.b.run
	c := &client{p: p, b: p.b, queue: p.queues[server%len(p.queues)], server: server, env: p.b.cluster.env(server), session: s, key: make([]byte, 0, r.KeyBytes), value: make([]byte, 0, r.ValueBytes+8),
		dst: make([]byte, 0, r.ValueBytes), previous: make([]byte, 0, r.KeyBytes)}
	c.visit = c.order
	return c
}

// work takes operations until there are none.
func (c *client) work() {
	p, q, now, charges := c.p, c.queue, c.b.cluster.now, c.b.cluster.processor()
	last := now()
	if c.since > 0 {
		last = c.since
	}
	for {
		if p.crash != nil {
			p.crash.look(c.server)
		}
		n := q.next.Add(1) - 1
		if n >= q.length {
			c.empty()
			return
		}
		i := q.place(n)
		o, writer := p.operation(i)
		c.under = i + 1
		if charges != nil {
			charges.begin(o)
		}
		if err := c.step(i, o, writer); err != nil {
			c.fail(err)
			return
		}
		if p.ops != nil && c.changed {
			c.b.behind[p.first+i] = uint32(q.place(q.begun()-1) - i + 1)
		}
		c.under = 0
		if charges != nil {
			c.env.Sleep(charges.end(o))
		}
		at := now()
		c.latency.Record(at - last)
		last = at
		if q.ended.Load() == 0 {
			c.own++
		}
		if p.ended.Load() == 0 {
			c.done++
		}
		if i&progressMask == 0 {
			p.report.at(at, p.begun())
			if err := c.b.ctx.Err(); err != nil {
				c.fail(err)
				return
			}
		}
	}
}

// empty notes that nothing is left in the queue.
func (c *client) empty() {
	at := int64(c.b.cluster.now())
	if c.queue.ended.CompareAndSwap(0, at) && c.p.left.Add(-1) == 0 {
		c.p.ended.Store(at)
	}
}

// fail ends the phase. Only the first error of a phase counts: those after it may come of it.
func (c *client) fail(err error) {
	if !c.p.failed.Swap(true) {
		c.err = err
	}
	for _, q := range c.p.queues {
		q.next.Store(q.length)
	}
	c.p.ended.CompareAndSwap(0, int64(c.b.cluster.now()))
}

// operation is the i-th of the phase, and how the value that it may write names it.
func (p *phase) operation(i uint64) (o workload.Operation, writer uint64) {
	if p.ops == nil {
		return workload.NewOperation(workload.Insert, p.b.stream.Record(i), 0), 0
	}
	return p.ops[i], p.first + i + 1
}

// step does operation i of the phase.
func (c *client) step(i uint64, o workload.Operation, writer uint64) error {
	if err := c.do(o, writer); err != nil {
		return fmt.Errorf("%s, operation %d, %v of item %d: %w", c.p.name, i, o.Kind(), o.Item(), err)
	}
	return nil
}

// do does an operation and looks at its answer.
func (c *client) do(o workload.Operation, writer uint64) error {
	s, item := c.session, o.Item()
	c.changed = false
	c.key = c.b.keys.Append(c.key[:0], item)
	switch o.Kind() {
	case workload.Lookup:
		return c.lookup(item)
	case workload.Modify:
		if err := c.lookup(item); err != nil {
			return err
		}
	case workload.Scan:
		c.previous, c.disorder = c.previous[:0], false
		if err := s.Scan(c.key, o.Length(), false, c.visit); err != nil {
			return err
		}
		if c.disorder {
			return errDisorder
		}
		return nil
	}
	c.value = workload.AppendValue(c.value[:0], c.b.run.ValueBytes, item, writer)
	switch o.Kind() {
	case workload.Insert:
		if err := s.Insert(c.key, c.value); err != nil {
			return err
		}
	case workload.Upsert:
		if err := s.Upsert(c.key, c.value); err != nil {
			return err
		}
	default:
		known := c.b.isPresent(item)
		if err := s.Update(c.key, c.value); err != nil {
			return c.absent(err, known)
		}
	}
	c.changed = true
	if !c.b.stream.IsLoaded(item) {
		c.b.present.Add(item)
	}
	return nil
}

func (c *client) lookup(item uint64) error {
	known := c.b.isPresent(item)
	var err error
	if c.dst, err = c.session.Lookup(c.key, c.dst[:0]); err != nil {
		return c.absent(err, known)
	}
	if _, ok := workload.WriterOf(c.dst, c.b.run.ValueBytes, item, false); !ok {
		return fmt.Errorf("%w: %x", workload.ErrForeign, c.dst)
	}
	return nil
}

// absent judges the error of an operation on an item of which we knew, before, whether it was
// there.
func (c *client) absent(err error, known bool) error {
	if known || !errors.Is(err, index.ErrNotFound) {
		return err
	}
	c.missed++
	return nil
}

var errDisorder = errors.New("the scan is not in order")

// order sees that keys ascend.
func (c *client) order(key, _ []byte) bool {
	if len(c.previous) > 0 && string(key) <= string(c.previous) || len(c.previous) == 0 && string(key) < string(c.key) {
		c.disorder = true
	}
	c.previous = append(c.previous[:0], key...)
	return true
}

// isPresent reports whether an item is certainly there: loaded, or its first write was answered.
func (b *bencher) isPresent(item uint64) bool { return b.stream.IsLoaded(item) || b.present.Has(item) }
