package poolsim

import (
	"maps"
	"slices"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// Fail-overs, as a mirrored memory server does them. The copy has the data region but for presence
// words, and the ledger, in one order. It does not have the lock region: a lock is free again
// before the copy has what was changed under it, and who takes it next READs that change, so waits
// for it. A server that opens turns all locks to Repair. Nor does it have presence words: all
// sessions that entered a node ended with the old server's connections, or will, and change nothing
// any more. A server that opens clears them.

// mirror makes s a mirrored server, if the plan has a fail-over.
func (c *Cluster) mirror(s *server) {
	if !s.half.Mirrored() {
		return
	}
	from := uint64(c.presenceFrom())
	end := from + uint64(pool.PresenceBytes*c.Options.Intents)
	s.half.Keep(sim.Mirror{
		Recorded: func(region verbs.RegionID, remote uint64) bool {
			return region == verbs.RegionData && (remote < from || remote >= end)
		},
		Opened: func() { c.opened(s, s.regions[verbs.RegionData].Bytes[from:end]) },
	})
}

// opened is what a copy does before it serves. All clients that it knows have a whole lease.
func (c *Cluster) opened(s *server, presence []byte) {
	switch locks := s.regions[verbs.RegionLocks].Bytes; c.Options.Fabric.Flaws.Locks {
	case sim.Kept:
	case sim.Freed:
		clear(locks)
	default:
		for i := range locks {
			locks[i] = pool.Repair & 0xff
		}
	}
	if !c.Options.Fabric.Flaws.Presence {
		clear(presence)
	}
	clear(s.tokens)
	for _, client := range s.clients {
		s.until[client] = s.world.Now() + c.Options.Lease
	}
	if s.id == 1 {
		clear(c.reached)
	}
}

// changes is called before the ledger of s changes.
func (c *Cluster) changes(s *server) {
	if !s.half.Mirrored() {
		return
	}
	before, until, clients, joined := s.ledger.clone(), maps.Clone(s.until), c.clients, c.joined
	s.half.Record(func() {
		s.ledger, s.until = before, until
		for i, k := range s.chunks {
			s.owners.Grant(i, uint32(min(k.client, 1)))
		}
		if s.id == 1 {
			c.clients, c.joined = clients, joined
		}
	})
}

// zero clears a chunk that is about to be handed out. Who gets it hears of that behind the zeroes.
func (s *server) zero(chunk []byte) {
	if s.half.Mirrored() {
		before := slices.Clone(chunk)
		s.half.Record(func() { copy(chunk, before) })
	}
	clear(chunk)
}

// ledger is what a server stores besides its memory.
type ledger struct {
	chunks  []chunk
	quota   int             // of these
	clients []uint32        // those that have a lease, in the order of their coming
	fenced  map[uint32]bool // who gets in no more
	done    map[uint32]bool // whose fence is complete
	joined  []uint32        // who has a part in the epochs
}

func (l *ledger) clone() ledger {
	return ledger{slices.Clone(l.chunks), l.quota, slices.Clone(l.clients), maps.Clone(l.fenced), maps.Clone(l.done), slices.Clone(l.joined)}
}

// forget takes a client out of those that have a lease.
func (s *server) forget(client uint32) {
	delete(s.until, client)
	s.clients = slices.DeleteFunc(s.clients, func(other uint32) bool { return other == client })
}
