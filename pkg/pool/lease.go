package pool

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// A client holds a lease on each memory server of its index. The server counts it from when it
// answered, the client from before it asked, and only for leaseShare of it, so that clocks which
// run at different rates do not matter: the client stops first. Who lets a lease run out is fenced
// there: its queue pairs are cut and its locks turn to Repair. So is a client that ends.

// leaseShare is the part of a lease that its holder uses: 7/8 of it allows for clocks that differ
// by an eighth.
func leaseShare(lease time.Duration) time.Duration { return lease - lease/8 }

// lease is what a client has at one memory server.
type lease struct {
	until atomic.Int64  // on the clock of env; env.Forever if the server has no leases
	every time.Duration // between renewals, if it was set; else it follows the lease
	usual atomic.Int64  // the same, as the lease has it; reclamation reads it, too
}

func (l *lease) renew(asked, length time.Duration) {
	l.until.Store(int64(asked + leaseShare(length)))
	l.usual.Store(int64(length / 4))
}

// interval is how long renewals are apart.
func (l *lease) interval() time.Duration {
	if l.every > 0 {
		return l.every
	}
	if usual := l.usual.Load(); usual > 0 {
		return time.Duration(usual)
	}
	return idleRenewal
}

// hurried is how long renewals are apart, instead of so long, while somebody waits for epochs:
// memory that was given up comes back after some six of them. Not faster, since with each epoch all
// inner nodes in caches have to be read again.
func hurried(usual time.Duration) time.Duration { return max(usual/16, min(usual, time.Millisecond)) }

// idleRenewal is how often a client asks a server that has no leases, for the sake of epochs.
const idleRenewal = 250 * time.Millisecond

// partingLimit bounds how long a client that ends tries to fence itself on a server. Where that
// fails its lease runs out instead.
const partingLimit = 2 * time.Second

// keeper renews the leases of a pool, with a goroutine for each server.
type leaseKeeper struct {
	pool    *Pool
	stopped atomic.Bool
	news    env.Event // there is something to reap or to sweep
	group   *env.WaitGroup

	following env.Mutex
	unfollow  []func() // end what follow began

	forget     env.Event // there are intent slots to be cleared
	forgetting atomic.Bool
	forgetAll  atomic.Uint64 // what operations named that began before
}

func newLeaseKeeper(p *Pool) *leaseKeeper {
	k := &leaseKeeper{pool: p, news: p.env.NewEvent(), forget: p.env.NewEvent(), group: env.NewWaitGroup(p.env), following: p.env.NewMutex()}
	for _, s := range p.servers() {
		k.begin(s)
	}
	if p.joins != nil {
		k.group.Go("join memory servers", k.join)
	}
	k.group.Go("reclamation", k.reapAndSweep)
	if _, ok := p.control.(Forgetter); ok {
		k.group.Go("forget clients that ended", func() {
			p.forgetEnded(func() bool { return k.stopped.Load() || p.condemned.Load() != nil })
		})
	}
	return k
}

func (k *leaseKeeper) begin(s *server) {
	k.group.Go(fmt.Sprintf("lease on memory server %d", s.id), func() { k.renewLease(s) })
	k.follow(s)
}

// renewLease renews the lease on s until the pool is closed or given up, or s lost.
func (k *leaseKeeper) renewLease(s *server) {
	p := k.pool
	wait := s.lease.interval()
	ps := passing{of: [reaches]pass{
		cached:   {epoch: s.grant.Epoch, passed: s.grant.Epoch},
		uncached: {epoch: s.grant.UncachedEpoch, passed: s.grant.UncachedEpoch},
	}}
	for {
		s.wake.Wait(wait)
		if k.stopped.Load() || p.condemned.Load() != nil || s.lost.Load() != nil {
			return
		}
		asked := p.env.Now()
		left := time.Duration(s.lease.until.Load()) - asked
		if left <= 0 {
			p.leaseLost(s, fmt.Errorf("the lease on memory server %d ran out", s.id))
			return
		}
		said := ps.epochsFor(p, s)
		if p.condemned.Load() != nil {
			return // what it says has been passed may be of a session that died in doubt
		}
		said.Servers = p.joined.reached.Load()
		r, err := p.control.Renew(s.id, p.number, said, min(p.limit, left))
		switch {
		case err == nil:
			if r.Lease > 0 {
				s.lease.renew(asked, r.Lease)
			}
			k.noteVersion(r.Servers)
			wait = s.lease.interval()
			hurry, news := ps.takeRenewal(p, s, &r)
			if hurry {
				wait = hurried(wait)
			}
			if news {
				k.news.Set()
			}
		case errors.Is(err, ErrFenced), errors.Is(err, verbs.ErrRefused), errors.Is(err, verbs.ErrLostMemory):
			p.leaseLost(s, fmt.Errorf("memory server %d does not renew the lease: %w", s.id, err))
			return
		default: // it cannot be reached; it may be back before the lease is over
			wait = s.lease.interval() / 8
		}
	}
}

// stop ends the renewals.
func (k *leaseKeeper) stop(limit time.Duration) {
	k.stopped.Store(true)
	for _, s := range k.pool.servers() {
		s.wake.Set()
	}
	k.pool.joined.news.Set()
	k.news.Set()
	k.forget.Set()
	k.group.Wait(limit)
}

// Alive is nil while this client holds its lease on every memory server, else why not, wrapping
// ErrFenced. Who answers from what it read or cached asks after reading and before answering. It
// costs a look at the clock.
func (p *Pool) Alive() error {
	if why := p.condemned.Load(); why != nil {
		return *why
	}
	now := p.env.Now()
	for _, s := range p.servers() {
		if int64(now) >= s.lease.until.Load() && s.used.Load() {
			return fmt.Errorf("the lease on memory server %d ran out: %w", s.id, ErrFenced)
		}
	}
	return nil
}

// Condemn gives this client up, for a reason: waits of its sessions end, its connections are cut,
// and everything that is posted later fails with ErrFenced. What remains to do is Close. A session
// that dies with a lock in its hand condemns its client, since only fencing frees such a lock. Safe
// for concurrent use; the first reason counts.
func (p *Pool) Condemn(reason error) {
	err := fmt.Errorf("this client was given up: %w: %w", ErrFenced, reason)
	if !p.condemned.CompareAndSwap(nil, &err) {
		return
	}
	for _, s := range p.servers() {
		s.local.cancel()
	}
	p.words.Cancel()
	if p.alloc != nil {
		p.alloc.fetcher.turn.cancel()
	}
	// Close cuts them again and says how it went
	p.env.Go("cut the connections of a client that was given up", func() { _ = p.closeConnections() })
}

// closeConnections closes all connections, side by side: each may wait for a server that does not
// answer.
func (p *Pool) closeConnections() error {
	return p.onEachServer("cut the connection to", func(s *server) error { return s.conn.Close() })
}

// fencePredecessors ends earlier clients of this process's name on every server, the home last, so
// that a process that dies meanwhile leaves them to the next one. What cannot be fenced now ends
// with its lease, so errors are not the caller's. Those that guard confirms dead are fenced as
// dead.
func (p *Pool) fencePredecessors(guard Guard) {
	ids, err := p.control.Predecessors(p.number, p.limit)
	if err != nil {
		return
	}
	var dead, others []uint32
	for _, id := range ids {
		if guard != nil && guard.Confirms(p.identity, id) {
			dead = append(dead, id)
		} else {
			others = append(others, id)
		}
	}
	p.fenceAll(dead, true)
	p.fenceAll(others, false)
}

func (p *Pool) fenceAll(ids []uint32, dead bool) {
	servers := p.control.Servers()
	for some := range slices.Chunk(ids, maxFence) {
		for i := len(servers) - 1; i >= 0; i-- {
			if p.fence(servers[i], some, dead) != nil {
				return
			}
		}
		// those that joined: after the home, see join.go
		all, err := p.Others()
		for _, id := range all {
			if err != nil || !slices.Contains(servers, id) && p.fence(id, some, dead) != nil {
				return
			}
		}
	}
}

// fence ends clients on a server. The home is told if they answer nothing any more: it decides who
// gets their keys.
func (p *Pool) fence(server uint16, clients []uint32, dead bool) error {
	if r, ok := p.control.(Ranges); ok && dead && server == p.control.Servers()[0] {
		return r.FenceDead(clients, partingLimit)
	}
	return p.control.Fence(server, clients, partingLimit)
}

// maxFence is how many clients one call of Fence takes.
const maxFence = 256

// fenceItself fences this client on every server, so that its locks and keys need not wait for the
// end of its lease. Alive says no before, so whatever is answered was read before.
func (p *Pool) fenceItself() error {
	return p.onEachServer("part from", func(s *server) error { return p.fence(s.id, []uint32{p.number}, true) })
}

// onEachServer does something at every server, side by side, and waits for all, since what is done
// has a limit of its own. Where it fails does not matter at servers that nothing of this client
// depends on.
func (p *Pool) onEachServer(what string, do func(*server) error) error {
	servers := p.servers()
	errs := make([]error, len(servers))
	g := env.NewWaitGroup(p.env)
	for i, s := range servers {
		g.Go(fmt.Sprintf("%s memory server %d", what, s.id), func() {
			if err := do(s); err != nil && s.needed() {
				errs[i] = fmt.Errorf("%s memory server %d: %w", what, s.id, err)
			}
		})
	}
	g.Wait(env.Forever)
	return errors.Join(errs...)
}
