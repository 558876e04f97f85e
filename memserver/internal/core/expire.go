package core

import (
	"errors"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Run is the lease loop: it fences clients whose lease has expired, and finishes fences. It ends
// after stop.
func (c *Core) Run() {
	tick := min(max(c.Lease/20, 5*time.Millisecond), 250*time.Millisecond)
	for !c.stopped.Load() {
		c.expire()
		// As many attempts as there is time for until the next check of the leases. An attempt
		// delays the next one of its clients, so this ends.
		for end := c.env.Now() + tick; !c.stopped.Load() && c.retry() && c.env.Now() < end; {
		}
		c.forgetLonger()
		c.wake.Wait(tick)
	}
}

// Stop ends run.
func (c *Core) Stop() {
	c.stopped.Store(true)
	c.wake.Set()
}

// expire fences clients whose lease has expired. It checks the expiry under the lock under which it
// stores that they are fenced, so a client is either renewed in time or refused.
func (c *Core) expire() {
	var over []verbs.Peer
	look := func(*ledger.Ledger) { over = c.Accounts.leases.expired(c.env.Now(), MaxFenced) }
	if c.Accounts.Read(look); len(over) == 0 {
		return
	}
	var fenced []verbs.Peer
	var clients []uint32 // their numbers
	err := c.Accounts.changeThen(Mend, func(l *ledger.Ledger) error {
		look(l)
		for _, peer := range over {
			client, err := l.NumberOf(peer.Index, peer.Client)
			if err != nil {
				continue
			}
			if news, err := l.Fence(peer.Index, client); err == nil && news {
				fenced, clients = append(fenced, peer), append(clients, client)
			}
		}
		if len(fenced) == 0 {
			return errNoNews
		}
		return nil
	}, func() {
		for i, peer := range fenced {
			c.Accounts.fences.begin(peer.Index, clients[i], c.env.Now())
			c.tokens.void(peer.Index, []uint16{peer.Client})
		}
		for _, peer := range over {
			c.Accounts.leases.end(peer, c.env.Now())
		}
	})
	switch {
	case errors.Is(err, errNoNews): // all were renewed in between, or fenced
		return
	case err != nil:
		c.Log.Error("clients whose lease is over cannot be fenced yet", "err", err)
		return
	}
	c.Expired.Add(uint64(len(fenced)))
	for i, peer := range fenced {
		c.HoldingsChanged(peer.Index)
		c.Log.Warn("fencing a client that did not renew its lease", "index", peer.Index, "client", clients[i], "lease", c.Lease)
	}
}

// retry tries once to finish fences of the index whose turn it is. It returns false if there are
// none.
func (c *Core) retry() bool {
	var index string
	var ids []uint32
	c.Accounts.Note(func(*ledger.Ledger) { index, ids = c.Accounts.fences.nextDue(c.env.Now()) })
	if len(ids) == 0 {
		return false
	}
	if _, err := c.finish(index, ids, retryLimit); err != nil {
		c.Log.Warn("fenced clients are not quiet yet", "index", index, "clients", ids, "err", err)
	}
	return true
}

// forgetLonger stores that no lease of an earlier process remains that was longer than those of
// this one.
func (c *Core) forgetLonger() {
	if c.longer == 0 || c.env.Now() < c.longer {
		return
	}
	err := c.Accounts.Change(Mend, func(l *ledger.Ledger) error { return l.SetLease(uint64(c.Lease / time.Millisecond)) })
	if err == nil {
		c.longer = 0
	}
}
