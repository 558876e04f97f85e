package core

import (
	"errors"

	"github.com/dmindex/dmindex/memserver/ledger"
)

// The home server of an index knows which servers joined the index since it was made, and which of
// its clients reach them. pkg/pool/join.go has the protocol.

// MaxBehind is how many clients are named that do not reach all servers yet.
const MaxBehind = 64

// Join notes how far a server is that joins an index.
func (c *Core) Join(index string, s ledger.JoinedServer) (now ledger.JoinState, version uint64, err error) {
	err = c.Accounts.ChangeOf(index, Move, func(l *ledger.Ledger) (err error) {
		var news bool
		now, news, err = l.Join(index, s)
		version = l.Joins(index)
		return unlessNew(news, err)
	})
	if errors.Is(err, errNoNews) {
		err = nil
	}
	return now, version, err
}

// Joined are the servers that joined an index, and the version of the list. A client, unless 0,
// must not be fenced. Without a client, behind are those with a lease that do not reach all servers
// yet: the first of them.
func (c *Core) Joined(index string, client uint32) (version uint64, all []ledger.JoinedServer, behind []ledger.Client, err error) {
	c.Accounts.Read(func(l *ledger.Ledger) {
		if version, all, err = l.Joined(index, client); err != nil || client != 0 {
			return
		}
		clients, _ := l.Clients(index, "")
		at := 0
		for _, id := range c.Accounts.leases.behind(index, version, MaxBehind) {
			for at < len(clients) && (uint16(clients[at].Number) < id || clients[at].Fenced) {
				at++
			}
			if at < len(clients) && uint16(clients[at].Number) == id {
				behind = append(behind, clients[at])
			}
		}
	})
	return version, all, behind, err
}
