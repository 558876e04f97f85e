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
func (c *Core) Fence(index string, ids []uint16, dead bool, limit time.Duration) (locks int, err error) {
	if len(ids) == 0 || len(ids) > MaxFenced {
		return 0, fmt.Errorf("%w: %d clients to fence; 1 to %d are possible at once", ledger.ErrInvalid, len(ids), MaxFenced)
	}
	deadline := env.Deadline(c.env, limit)
	if err := c.refuse(index, ids); err != nil {
		return 0, err
	}
	if dead {
		c.confirmDead(index, ids)
	}
	if c.complete(index, ids) {
		return 0, nil
	}
	return c.finish(index, ids, env.Remaining(c.env, deadline))
}

// complete reports whether the fences of all of the clients are complete, so that nothing is left
// to do. So a caller that fences the same clients again and again does not hold the lock table, for
// which the fences of other indexes wait.
func (c *Core) complete(index string, ids []uint16) bool {
	all := true
	c.Accounts.Read(func(l *ledger.Ledger) {
		for _, id := range ids {
			all = all && l.Complete(index, id)
		}
	})
	return all
}

// refuse is steps 1 and 2.
func (c *Core) refuse(index string, ids []uint16) error {
	var fresh []uint16
	err := c.Accounts.changeThenOf(index, func(l *ledger.Ledger) error {
		for _, id := range ids {
			if id == 0 || id == ledger.NoClient {
				return fmt.Errorf("%w: client %d cannot be fenced; ids are 1 to %d", ledger.ErrInvalid, id, ledger.MaxClients)
			}
		}
		for _, id := range ids {
			news, err := l.Fence(index, id)
			if err != nil {
				return err // of the index, so it is the first
			}
			if news {
				fresh = append(fresh, id)
			}
		}
		if len(fresh) == 0 {
			return errNoNews
		}
		return nil
	}, func() {
		for _, id := range fresh {
			peer := verbs.Peer{Index: index, Client: id}
			c.Accounts.leases.end(peer, c.env.Now())
			c.Accounts.fences.begin(peer, c.env.Now()+firstRetry)
		}
	})
	if err != nil && !errors.Is(err, errNoNews) {
		return err
	}
	c.tokens.void(index, ids)
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

// areFenced returns the number of evictions at a moment when all of the clients were fenced. They
// stay fenced until the next eviction.
func (c *Core) areFenced(index string, ids []uint16) (evictions uint64, err error) {
	c.Accounts.Read(func(l *ledger.Ledger) {
		evictions = c.evictions.Load()
		for _, id := range ids {
			if !l.Fenced(index, id) {
				err = errAdmittedAnew
			}
		}
	})
	return evictions, err
}

// finish is steps 3 and 4. The number of evictions tells it whether the index is still the one
// whose clients were refused: 3 takes time, and the lock table's slice is looked up, used and
// released under the same lock.
func (c *Core) finish(index string, ids []uint16, limit time.Duration) (locks int, err error) {
	since, err := c.areFenced(index, ids)
	if err != nil {
		return 0, err
	}
	if err := c.quiet(index, ids, limit); err != nil {
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
		for _, id := range ids {
			if l.Finished(index, id) {
				c.Accounts.epochsOf(index).Leave(id)
			}
			c.Accounts.fences.end(verbs.Peer{Index: index, Client: id})
		}
	})
	c.Turned.Add(uint64(locks))
	c.Log.Info("fenced clients", "index", index, "clients", ids, "locks_to_repair", locks)
	return locks, nil
}

// quiet is step 3.
func (c *Core) quiet(index string, ids []uint16, limit time.Duration) error {
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
