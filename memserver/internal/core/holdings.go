package core

import (
	"encoding/binary"
	"errors"
	"hash/fnv"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// The home server of an index alone decides, in its ledger, which client holds which keys.
// docs/design/ownership.md says why no key has two holders at once.

// Acquire grants a client the parts of its claim that may be granted. It checks leases under the
// lock under which the grant is stored, and the lease of a fenced client is not extended, so an
// expired one stays expired. It does not wait for a turn of its index: one such call of an identity
// is under way at a time (see large), and behind other calls of its index it would delay those of
// other indexes.
func (c *Core) Acquire(index string, claim ledger.Claim) (own []ledger.Holding, blocked []ledger.Blocked, err error) {
	err = c.Accounts.Change(Move, func(l *ledger.Ledger) (err error) {
		var news bool
		own, blocked, news, err = l.Acquire(index, claim, func(client uint32) bool { return c.outlasted(peerOf(index, client)) })
		return unlessNew(news, err)
	})
	if err == nil {
		c.HoldingsChanged(index)
	}
	if errors.Is(err, errNoNews) {
		err = nil
	}
	return own, blocked, err
}

// outlasted reports whether a fenced client cannot believe any more in a lease that this server
// granted, in whichever process. Called under the lock of the accounts.
func (c *Core) outlasted(peer verbs.Peer) bool {
	now := c.env.Now()
	return c.Accounts.leases.isDead(peer) || now >= c.earlier && !c.Accounts.leases.believed(peer, now)
}

// confirmDead records that fenced clients answer nothing any more. It is not stored: after a
// restart the server waits for a whole lease. A client that is forgotten says nothing about a later
// one with its id.
func (c *Core) confirmDead(index string, clients []uint32) {
	c.Accounts.Note(func(l *ledger.Ledger) {
		var ids []uint16
		for _, client := range clients {
			if l.Fenced(index, client) {
				ids = append(ids, uint16(client))
			}
		}
		holdings, _ := l.Holdings(index) // none if there is no such index
		holders := map[uint16]bool{}
		for _, h := range holdings {
			holders[uint16(h.Client)] = true
		}
		c.Accounts.leases.confirmDead(index, ids, holders)
	})
}

// Settle records that a client replayed the logs that it inherited.
func (c *Core) Settle(index string, client uint32, start, end []byte, epoch uint64) error {
	err := c.Accounts.ChangeOf(index, Mend, func(l *ledger.Ledger) error { return unlessNew(l.Settle(index, client, start, end, epoch)) })
	if err == nil {
		c.HoldingsChanged(index)
	}
	if errors.Is(err, errNoNews) {
		return nil
	}
	return err
}

// Release ends a client's holding of keys. It is never refused, but for one that would divide a
// holding: the ledger would grow by it, as by keys that others take.
func (c *Core) Release(index string, client uint32, start, end []byte, epoch uint64) error {
	err := c.Accounts.ChangeOf(index, Mend, func(l *ledger.Ledger) error {
		return unlessNew(l.Release(index, client, start, end, epoch, c.Accounts.checkRoom(Move) == nil))
	})
	if err == nil {
		c.HoldingsChanged(index)
	}
	if errors.Is(err, errNoNews) {
		return nil
	}
	return err
}

// unlessNew returns the outcome of a change that need not be stored if it changed nothing.
func unlessNew(news bool, err error) error {
	if err == nil && !news {
		return errNoNews
	}
	return err
}

// Holdings returns those of an index, with the state of their clients.
func (c *Core) Holdings(index string) (all []pool.Held, err error) {
	c.Accounts.Read(func(l *ledger.Ledger) {
		var holdings []ledger.Holding
		if holdings, err = l.Holdings(index); err != nil || len(holdings) == 0 {
			return
		}
		var clients []ledger.Client
		if clients, err = l.Clients(index, ""); err != nil {
			return
		}
		known := make(map[uint32]ledger.Client, len(clients))
		for _, client := range clients {
			known[client.Number] = client
		}
		for _, h := range holdings {
			client := known[h.Client]
			all = append(all, pool.Held{Holding: Held(h), Client: h.Client, Name: client.Name, Fenced: client.Fenced, Log: h.Log})
		}
	})
	return all, err
}

// Held returns a holding as its holder sees it.
func Held(h ledger.Holding) pool.Holding {
	out := pool.Holding{Start: h.Start, End: h.End, Epoch: h.Epoch}
	for _, in := range h.Inherits {
		out.Inherits = append(out.Inherits, pool.Inherited{Start: in.Start, End: in.End, Client: in.Client, Epoch: in.Epoch, Log: in.Log})
	}
	return out
}

// VersionOf returns a digest of what ListHoldings returns for the holdings; it is never 0.
func VersionOf(all []pool.Held) uint64 {
	d := fnv.New64a()
	var number [8]byte
	bytes := func(b []byte) {
		binary.LittleEndian.PutUint64(number[:], uint64(len(b)))
		_, _ = d.Write(number[:]) // a hash returns no error
		_, _ = d.Write(b)
	}
	word := func(v uint64) {
		binary.LittleEndian.PutUint64(number[:], v)
		_, _ = d.Write(number[:])
	}
	for _, h := range all {
		bytes(h.Start)
		bytes(h.End)
		word(h.Epoch)
		word(uint64(h.Client))
		bytes([]byte(h.Name))
		word(map[bool]uint64{true: 1}[h.Fenced])
		word(uint64(len(h.Inherits)))
		for _, in := range h.Inherits {
			bytes(in.Start)
			bytes(in.End)
			word(in.Epoch)
			word(uint64(in.Client))
		}
	}
	return max(1, d.Sum64())
}
