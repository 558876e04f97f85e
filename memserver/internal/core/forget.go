package core

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
)

// MaxForgotten bounds the clients that one call forgets.
const MaxForgotten = 256

// Forget forgets those of the clients of an index of which nothing is left on this server, and
// returns them; memserver/ledger/forget.go has the conditions, and the order over all servers. next
// are clients that the server would like to be forgotten, because ids run short; those of the home
// server matter. Safe for concurrent use, and may be repeated.
func (c *Core) Forget(index string, clients []uint32) (gone, next []uint32, err error) {
	if len(clients) > MaxForgotten {
		return nil, nil, fmt.Errorf("%w: %d clients to forget; at most %d are possible at once", ledger.ErrInvalid, len(clients), MaxForgotten)
	}
	if len(clients) > 0 {
		if gone, err = c.forget(index, clients); err != nil {
			return nil, nil, err
		}
		c.Log.Info("forgot clients", "index", index, "clients", gone)
	}
	c.Accounts.Note(func(l *ledger.Ledger) { next = l.Forgettable(index, MaxForgotten) })
	return gone, next, nil
}

// forget looks at the intent slots first, and then changes the ledger. No slot becomes a client's
// in between: nothing of a client whose fence is complete takes effect any more. If the index was
// evicted in between, these were slots of another one.
func (c *Core) forget(index string, clients []uint32) (gone []uint32, err error) {
	slots, since, err := c.slotsOwned(index)
	if err != nil {
		return nil, err
	}
	err = c.Accounts.changeThenOf(index, Mend, func(l *ledger.Ledger) (err error) {
		if c.evictions.Load() != since {
			return errAdmittedAnew
		}
		var news bool
		gone, news, err = l.Forget(index, clients, func(id uint16) bool {
			peer := peerOf(index, uint32(id))
			return slots[id] || c.Accounts.fences.isHeld(peer) || c.Accounts.leases.has(peer)
		})
		return unlessNew(news, err)
	}, func() {
		for _, client := range gone {
			c.Accounts.leases.forget(peerOf(index, client))
		}
	})
	if errors.Is(err, errNoNews) {
		err = nil
	}
	return gone, err
}

// forgetEarlier forgets the earlier client that this server still knows by the id of one which the
// home server registered, if nothing is left of it here. It reports whether it is forgotten. The
// end of the comment in memserver/ledger/forget.go says why.
func (c *Core) forgetEarlier(index string, client uint32) bool {
	var earlier uint32
	var err error
	c.Accounts.Read(func(l *ledger.Ledger) { earlier, err = l.NumberOf(index, uint16(client)) })
	if err != nil {
		return true // somebody else did
	}
	gone, err := c.forget(index, []uint32{earlier})
	if err != nil || len(gone) == 0 {
		return false
	}
	c.Log.Info("forgot a client whose id another one has", "index", index, "client", earlier, "later", client)
	return true
}

// slotsOwned are the ids of clients that have an intent slot of an index, and the number of
// evictions then. Meanwhile the index keeps its slots, as during a sweep.
func (c *Core) slotsOwned(index string) (owned map[uint16]bool, evictions uint64, err error) {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	var view ledger.Index
	c.Accounts.Read(func(l *ledger.Ledger) { view, err = l.Index(index) })
	if err != nil || c.Words.Bytes == nil {
		return nil, c.evictions.Load(), err
	}
	owners, err := pool.SlotOwners(indexWords{&c.Words, c.Accounts, index}, c.Words.First(view.Slot), c.Words.Slots)
	owned = map[uint16]bool{}
	for _, id := range owners {
		owned[id] = true
	}
	return owned, c.evictions.Load(), err
}
