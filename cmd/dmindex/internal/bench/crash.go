package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// crash is the death of the last compute server in the middle of a simulated phase. After a while
// somebody notices: the dead client is fenced at each memory server, one after the other, which
// turns its locks to Repair. Where ranges have owners, its neighbour then takes what it had, with
// its log. Operations that it had under way have no answer, so each may have taken effect or not;
// those that nobody had begun are done by the other compute servers.
type crash struct {
	p     *phase
	world *simulated
	after uint64        // operations of the phase that are begun when it happens
	until time.Duration // from the death to the first fence
	group *env.WaitGroup
	heirs []*client // go on with what the dead server's clients had to do, where it had keys
	err   error

	happened      bool
	answered      uint64        // operations of the clients that died
	died, settled time.Duration // settled: the fences are done, and the keys are served again
}

// crash makes a phase's crash, after half of its operations.
func (b *bencher) crash(p *phase, until time.Duration) *crash {
	s := b.cluster.(*simulated)
	return &crash{p: p, world: s, after: p.length / 2, until: until, group: env.NewWaitGroup(s.env(0))}
}

// victim is the compute server that dies, heir the one that takes its keys.
func (b *bencher) victim() int { return b.run.ComputeServers - 1 }
func (b *bencher) heir() int   { return b.run.ComputeServers - 2 }

// look is what each client does before an operation: the first one that finds that it is time kills
// the server, unless it is one of the server's own.
func (c *crash) look(server int) {
	b := c.p.b
	if c.happened || server == b.victim() || c.p.begun() < c.after {
		return
	}
	c.happened, c.died = true, b.cluster.now()
	c.world.servers[b.victim()].Kill()
	c.group.Go("operator", func() {
		if c.err = c.settle(); c.err != nil {
			c.p.failed.Store(true)
		}
	})
}

// settle fences the dead client and has its keys served again.
func (c *crash) settle() error {
	b, process := c.p.b, c.world.servers[0]
	process.Sleep(c.until)
	dead := b.members[b.victim()]
	for id := range b.run.MemoryServers {
		if err := c.world.memory.Control(process).Fence(uint16(id+1), []uint32{dead.client}, operationLimit); err != nil {
			return fmt.Errorf("fence the client that died at memory server %d: %w", id+1, err)
		}
	}
	if b.owners != nil {
		if err := c.inherit(dead); err != nil {
			return fmt.Errorf("take the keys of the client that died: %w", err)
		}
	}
	c.settled = b.cluster.now()
	return nil
}

// inherit lets the heir take the dead client's keys, and starts as many clients there as died.
// Their first operations are those that waited since then.
func (c *crash) inherit(dead member) error {
	b := c.p.b
	h := b.owners.holding(b.victim(), b.victim())
	h.Inherits = []pool.Inherited{{Start: h.Start, End: h.End, Client: dead.client, Epoch: h.Epoch - 1, Log: dead.owner().Log()}}
	if err := b.inServer(b.heir(), "take", func() error { return b.members[b.heir()].owner().Take(h) }); err != nil {
		return err
	}
	b.owners.dead = true
	for i := range b.run.Clients / b.run.ComputeServers {
		s, err := b.session(b.heir())
		if err != nil {
			return err
		}
		s.SetLimit(operationLimit)
		heir := newClient(c.p, s, b.heir())
		heir.queue, heir.since = c.p.queues[b.victim()], c.died
		c.heirs = append(c.heirs, heir)
		c.group.Go(fmt.Sprint("heir ", i+1), heir.work)
	}
	return nil
}

// Crashed is what was measured around a death.
type Crashed struct {
	*Result                // of the clients that live, and of the whole phase
	Settled  time.Duration // from the death until all keys were served again
	answered uint64        // operations of the clients that died
}

// DoCrash does the run, with the death of its last compute server in the middle of the measurement.
// until is the time from then on until somebody notices.
func (r *Run) DoCrash(ctx context.Context, until time.Duration) (result Crashed, err error) {
	err = r.inCluster(ctx, func(b *bencher) (err error) {
		result, err = b.measureCrash(until)
		return err
	})
	return result, err
}

// measureCrash loads and warms up, and measures with a crash in it. Then content and structure are
// checked as ever.
func (b *bencher) measureCrash(until time.Duration) (_ Crashed, err error) {
	defer func() { err = errors.Join(err, b.closeMembers()) }()
	if err := b.prepare(); err != nil {
		return Crashed{}, err
	}
	if _, err := b.part("warm up", 0, b.run.Warmup); err != nil {
		return Crashed{}, err
	}
	live := b.members[:b.victim()]
	before, _, err := b.stats(live)
	if err != nil {
		return Crashed{}, err
	}
	p := newPhase(b, "measure", b.stream.Ops[b.run.Warmup:], uint64(b.run.Warmup), uint64(b.run.Ops))
	p.crash = b.crash(p, until)
	if err := p.run(); err != nil {
		return Crashed{}, err
	}
	b.members = live // the last one's client died with it
	if !p.crash.happened {
		return Crashed{}, fmt.Errorf("%d operations are too few: nobody was left to see the server die; give more --ops", b.run.Ops)
	}
	after, _, err := b.stats(live)
	if err != nil {
		return Crashed{}, err
	}
	res := &Result{Run: b.run, Throughput: p.throughput(), Took: p.took, Ops: p.latency.total, Missed: p.missed, Stats: less(after, before), Latency: p.latency, Skew: 1}
	res.ItemBytes, err = b.check()
	return Crashed{res, p.crash.settled - p.crash.died, p.crash.answered}, err
}

// survivors waits for those who live: clients of other compute servers, the operator and heirs. It
// returns them, and notes which operations the dead ones had under way.
func (c *crash) survivors(clients []*client, groups []*env.WaitGroup) (left []*client) {
	b := c.p.b
	for _, g := range groups[:b.victim()] {
		g.Wait(env.Forever)
	}
	c.group.Wait(env.Forever)
	for _, one := range clients {
		if one.server != b.victim() {
			left = append(left, one)
			continue
		}
		if c.answered += one.latency.total; one.under > 0 {
			b.doubt[c.p.first+one.under-1] = true
		}
	}
	return append(left, c.heirs...)
}
