package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// MaxFenced bounds the clients that one call fences.
const MaxFenced = 256

// ErrNotQuiet is returned when a fenced client may still change memory.
var ErrNotQuiet = errors.New("fenced, but not quiet yet")

// Fence ends clients of an index for good. When it returns nil, none of their requests takes effect
// any more, and the locks that they held say REPAIR; it returns how many these were. Its steps,
// each of which needs those before it:
//
//  1. The ledger stores that they are fenced. From then on Connect, Renew, AllocateChunk and
//     FreeChunk refuse them, also after a crash.
//  2. Their unused tokens become void. (Tokens are issued under the lock of the ledger, so none is
//     issued after 1.)
//  3. Every provider cuts their connections and confirms that they are quiet.
//  4. Locks that hold one of their ids become REPAIR, in the lock table and in the index's own
//     memory. Before 3 a client could acquire one more lock behind the sweep.
//
// dead says that the clients answer nothing any more, whatever their leases say. That is recorded
// after 1, when none of them can get keys any more.
//
// ErrNotQuiet is returned when 3 was not confirmed within limit. The clients stay refused; a later
// call, or the lease loop, completes the fence. Safe for concurrent use: all steps may be repeated.
func (c *Core) Fence(index string, clients []uint32, dead bool, limit time.Duration) (locks int, err error) {
	if len(clients) == 0 || len(clients) > MaxFenced {
		return 0, fmt.Errorf("%w: %d clients to fence; 1 to %d are possible at once", ledger.ErrInvalid, len(clients), MaxFenced)
	}
	deadline := env.Deadline(c.env, limit)
	if err := c.refuse(index, clients); err != nil {
		return 0, err
	}
	if dead {
		c.confirmDead(index, clients)
	}
	return c.finish(index, clients, env.Remaining(c.env, deadline))
}

// refuse is steps 1 and 2.
func (c *Core) refuse(index string, clients []uint32) error {
	var fresh []uint32
	err := c.Accounts.changeThenOf(index, Mend, func(l *ledger.Ledger) error {
		for _, client := range clients {
			if id := uint16(client); id == 0 || id == ledger.NoClient {
				return fmt.Errorf("%w: client %d cannot be fenced; ids are 1 to %d", ledger.ErrInvalid, client, ledger.MaxClients)
			}
		}
		for _, client := range clients {
			news, err := l.Fence(index, client)
			if err != nil {
				return err // of the index, so it is the first
			}
			if news {
				fresh = append(fresh, client)
			}
		}
		if len(fresh) == 0 {
			return errNoNews
		}
		return nil
	}, func() {
		for _, client := range fresh {
			c.Accounts.leases.end(peerOf(index, client), c.env.Now())
			c.Accounts.fences.begin(index, client, c.env.Now()+firstRetry)
		}
		c.tokens.void(index, idsOf(fresh))
	})
	if err != nil && !errors.Is(err, errNoNews) {
		return err
	}
	if len(fresh) > 0 {
		c.HoldingsChanged(index)
		c.Log.Info("fencing clients", "index", index, "clients", fresh)
	}
	return nil
}

// errNoNews ends a change that would change nothing.
var errNoNews = errors.New("nothing is new")

// errAdmittedAnew is returned when an index was evicted while clients of it were being fenced.
// Clients of its next admission may have their ids: those hold locks and connections of their own,
// which a fence of the earlier ones must not touch.
var errAdmittedAnew = fmt.Errorf("%w: the index was evicted while its clients were being fenced", ledger.ErrUnknownClient)

// beginFinish returns the ids of the clients whose fence is not complete, and the number of
// evictions at a moment when all of the clients were fenced. They stay fenced until the next
// eviction, and are not forgotten before endFinish: a later client with one of these ids could have
// connections and locks then.
func (c *Core) beginFinish(index string, clients []uint32) (left []uint32, evictions uint64, err error) {
	c.Accounts.Read(func(l *ledger.Ledger) {
		evictions = c.evictions.Load()
		for _, client := range clients {
			switch {
			case l.Complete(index, client):
			case l.Fenced(index, client):
				left = append(left, client)
			default:
				err = errAdmittedAnew
			}
		}
		if err == nil {
			c.Accounts.fences.countFinishing(index, left, 1)
		}
	})
	return left, evictions, err
}

func (c *Core) endFinish(index string, clients []uint32) {
	c.Accounts.Note(func(*ledger.Ledger) { c.Accounts.fences.countFinishing(index, clients, -1) })
}

// finish is steps 3 and 4 for the clients whose fence is not complete. A caller that fences the
// same clients again and again does not hold the lock table, for which the fences of other indexes
// wait. The number of evictions tells it whether the index is still the one whose clients were
// refused: 3 takes time, and the lock table's slice is looked up, used and released under the same
// lock.
func (c *Core) finish(index string, clients []uint32, limit time.Duration) (locks int, err error) {
	clients, since, err := c.beginFinish(index, clients)
	if err != nil || len(clients) == 0 {
		return 0, err
	}
	defer c.endFinish(index, clients)
	ids := idsOf(clients)
	if err := c.awaitQuiet(index, ids, limit); err != nil {
		return 0, err
	}
	locks, err = c.sweep(index, ids, since)
	if err != nil {
		return locks, err
	}
	c.Accounts.Note(func(l *ledger.Ledger) {
		if c.evictions.Load() != since {
			return
		}
		for _, client := range clients {
			if l.Finished(index, client) {
				c.Accounts.epochsOf(index).Leave(uint16(client))
			}
			c.Accounts.fences.end(index, client)
		}
	})
	c.Turned.Add(uint64(locks))
	c.Log.Info("fenced clients", "index", index, "clients", clients, "locks_to_repair", locks)
	return locks, nil
}

func idsOf(clients []uint32) (ids []uint16) {
	for _, client := range clients {
		ids = append(ids, uint16(client))
	}
	return ids
}

// awaitQuiet is step 3.
func (c *Core) awaitQuiet(index string, ids []uint16, limit time.Duration) error {
	deadline := env.Deadline(c.env, limit)
	match := func(p verbs.Peer) bool { return p.Index == index && slices.Contains(ids, p.Client) }
	var loud []string
	for _, p := range c.Providers {
		err := p.Server.Fence(match, env.Remaining(c.env, deadline))
		if err != nil {
			loud = append(loud, p.Name+": "+err.Error())
			continue
		}
		if lasting, ok := p.Server.(verbs.Lasting); ok {
			for _, id := range ids {
				if err := lasting.Quiet(verbs.Peer{Index: index, Client: id}); err != nil {
					loud = append(loud, p.Name+": "+err.Error())
				}
			}
		}
	}
	if len(loud) == 0 {
		return nil
	}
	return fmt.Errorf("%w: clients %v of index %s are refused from now on, but of some it cannot be proven that nothing of theirs takes effect "+
		"any more (%s); end their processes and ask again", ErrNotQuiet, ids, index, strings.Join(loud, "; "))
}

// sweep is step 4. Meanwhile the index keeps its slice of the lock table.
func (c *Core) sweep(index string, ids []uint16, since uint64) (locks int, err error) {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	var view ledger.Index
	c.Accounts.Read(func(l *ledger.Ledger) { view, err = l.Index(index) })
	if err == nil && c.evictions.Load() != since {
		err = errAdmittedAnew
	}
	if err != nil {
		return 0, err
	}
	if locks, err = c.Locks.toRepair(view.FirstLock, view.Locks, ids); err != nil {
		return locks, err
	}
	n, err := c.wordsToRepair(&view, ids)
	return locks + n, err
}
