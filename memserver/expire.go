package memserver

import (
	"errors"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// run is the lease loop: it fences clients whose lease has expired, and finishes fences. It ends
// after stop.
func (c *core) run() {
	tick := min(max(c.lease/20, 5*time.Millisecond), 250*time.Millisecond)
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

// stop ends run.
func (c *core) stop() {
	c.stopped.Store(true)
	c.wake.Set()
}

// expire fences clients whose lease has expired. It checks the expiry under the lock under which it
// stores that they are fenced, so a client is either renewed in time or refused.
func (c *core) expire() {
	var over []verbs.Peer
	look := func(*ledger.Ledger) { over = c.accounts.leases.over(c.env.Now(), maxFenced) }
	if c.accounts.read(look); len(over) == 0 {
		return
	}
	var fenced []verbs.Peer
	err := c.accounts.changeThen(func(l *ledger.Ledger) error {
		look(l)
		for _, peer := range over {
			if news, err := l.Fence(peer.Index, peer.Client); err == nil && news {
				fenced = append(fenced, peer)
			}
		}
		if len(fenced) == 0 {
			return errNoNews
		}
		return nil
	}, func() {
		for _, peer := range fenced {
			c.accounts.fences.begin(peer, c.env.Now())
		}
		for _, peer := range over {
			c.accounts.leases.end(peer, c.env.Now())
		}
	})
	switch {
	case errors.Is(err, errNoNews): // all were renewed in between, or fenced
		return
	case err != nil:
		c.log.Error("clients whose lease is over cannot be fenced yet", "err", err)
		return
	}
	c.expired.Add(uint64(len(fenced)))
	for _, peer := range fenced {
		c.tokens.void(peer.Index, []uint16{peer.Client})
		c.holdingsChanged(peer.Index)
		c.log.Warn("fencing a client that did not renew its lease", "index", peer.Index, "client", peer.Client, "lease", c.lease)
	}
}

// retry tries once to finish fences of the index whose turn it is. It returns false if there are
// none.
func (c *core) retry() bool {
	var index string
	var ids []uint16
	c.accounts.note(func(*ledger.Ledger) { index, ids = c.accounts.fences.due(c.env.Now()) })
	if len(ids) == 0 {
		return false
	}
	if _, err := c.finish(index, ids, retryLimit); err != nil {
		c.log.Warn("fenced clients are not quiet yet", "index", index, "clients", ids, "err", err)
	}
	return true
}

// forgetLonger stores that no lease of an earlier process remains that was longer than those of
// this one.
func (c *core) forgetLonger() {
	if c.longer == 0 || c.env.Now() < c.longer {
		return
	}
	err := c.accounts.change(func(l *ledger.Ledger) error { return l.SetLease(uint64(c.lease / time.Millisecond)) })
	if err == nil {
		c.longer = 0
	}
}
