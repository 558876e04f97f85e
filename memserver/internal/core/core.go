package core

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Core decides everything about a memory server's clients: which are admitted, for how long, and
// when their requests take effect no more. It knows no listeners and no gRPC, and takes time and
// goroutines from its env, so it runs under the simulator unchanged.
type Core struct {
	env       env.Env
	Accounts  *Accounts
	tokens    *tokens
	Providers []Provider
	Locks     LockTable
	Words     Words
	Lease     time.Duration // that is granted
	Log       *slog.Logger

	sweeping env.Mutex // held while an index must keep its slice of the lock table
	wake     env.Event // of the lease loop
	stopped  atomic.Bool

	// The identity in a verified certificate, as Caller has it.
	Whose func(*tls.ConnectionState) (identity string, err error)

	// called after a change of an index's holdings may have been stored; it does not wait
	HoldingsChanged func(index string)

	// when leases that an earlier process granted for longer are over; 0 = there are none
	longer  time.Duration
	earlier time.Duration // when all leases that an earlier process granted are over

	evictions atomic.Uint64 // of any index; changes under sweeping and the lock of the accounts

	Expired atomic.Uint64 // leases that expired
	Turned  atomic.Uint64 // locks of fenced clients that were set to REPAIR
	Panics  atomic.Uint64 // connections to the memory that ended by a panic
}

// Provider is a transport that the server offers.
type Provider struct {
	Name    string
	Address string
	Server  verbs.Server
}

// New returns a Core that grants leases of that length. Offer its providers, then call Start, then
// Run. random makes its tokens, locks is the lock region.
func New(e env.Env, a *Accounts, random func() verbs.Token, locks []byte, lease time.Duration, log *slog.Logger) *Core {
	return &Core{
		env: e, Accounts: a, tokens: newTokens(e, random), Locks: LockTable{bytes: locks}, Lease: lease, Log: log,
		sweeping: e.NewMutex(), wake: e.NewEvent(), HoldingsChanged: func(string) {},
	}
}

// Offer adds a provider, before the server serves.
func (c *Core) Offer(p Provider) {
	c.Providers = append(c.Providers, p)
	if a, ok := p.Server.(verbs.LocalAtomics); ok {
		c.Locks.atomics, c.Words.atomics = a, a
	}
}

// Provider returns the provider of that name; nil if it is not offered.
func (c *Core) Provider(name string) *Provider {
	for i := range c.Providers {
		if c.Providers[i].Name == name {
			return &c.Providers[i]
		}
	}
	return nil
}

// Admission decides which clients get a connection of a provider.
func (c *Core) Admission(provider string) verbs.Admission {
	return admission{c.tokens, provider, c.Whose}
}

// RefusedTokens is how many connections of all providers showed a token that admits to nothing.
func (c *Core) RefusedTokens() uint64 { return c.tokens.refused.Load() }

// Start is called before any client is served. All known clients that are not fenced get a whole
// lease, the longest that an earlier process may have promised. Fences that an earlier process did
// not finish are finished, or left to the lease loop. Until then all of these clients hold back the
// epochs.
func (c *Core) Start() error {
	granted := uint64(c.Lease / time.Millisecond)
	first := c.Lease
	type fencing struct {
		index string
		ids   []uint32
	}
	var left []fencing
	err := c.Accounts.Change(Mend, func(l *ledger.Ledger) error {
		if before := l.Lease(); before > granted {
			first = time.Duration(before) * time.Millisecond
			c.longer = c.env.Now() + first
		} else if err := l.SetLease(granted); err != nil {
			return err
		}
		c.earlier = c.env.Now() + first
		for _, index := range l.Indexes() {
			clients, _ := l.Clients(index.Identity, "")
			for _, client := range clients {
				if !client.Fenced {
					c.Accounts.leases.extend(peerOf(index.Identity, client.Number), c.env.Now()+first)
					c.Accounts.epochsOf(index.Identity).Found(uint16(client.Number))
				}
			}
			left = append(left, fencing{index.Identity, l.Unfinished(index.Identity)})
			for _, id := range left[len(left)-1].ids {
				c.Accounts.fences.begin(index.Identity, id, c.env.Now())
				c.Accounts.epochsOf(index.Identity).Found(uint16(id))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range left {
		for ids := range slices.Chunk(f.ids, maxTogether) {
			if _, err := c.finish(f.index, ids, 0); err != nil {
				c.Log.Warn("clients that an earlier process fenced are not quiet yet", "index", f.index, "clients", ids, "err", err)
			}
		}
	}
	return nil
}

// peerOf is a client as connections, leases and epochs name it: by its id. Of an id no more than
// one client has any of these at a time: see memserver/ledger/forget.go.
func peerOf(index string, client uint32) verbs.Peer {
	return verbs.Peer{Index: index, Client: uint16(client)}
}

// Joined are the current epochs when a client connects.
type Joined struct{ Epoch, Uncached uint64 }

// Connect gives a client a token for one connection of p, its lease, and the current epochs. caller
// is who asks: the connection is to be its own. The token is made under the ledger's lock: either
// before the client is fenced or its index evicted, and then voided with the others, or not at all.
func (c *Core) Connect(index string, client uint32, p *Provider, caller Caller) (view ledger.Index, token verbs.Token, now Joined, err error) {
	peer := peerOf(index, client)
	const tries = 4 // the index may be evicted and admitted again meanwhile
	for range tries {
		c.Accounts.Read(func(l *ledger.Ledger) {
			if err = l.Live(index, client); err != nil {
				return
			}
			if view, err = l.Index(index); err != nil {
				return
			}
			if token, err = c.tokens.issue(peer, p.Name, caller); err == nil {
				c.Accounts.leases.extend(peer, c.env.Now()+c.Lease)
				now.Epoch, now.Uncached = c.Accounts.epochsOf(index).Join(peer.Client)
			}
		})
		if !errors.Is(err, ledger.ErrUnknownClient) {
			return view, token, now, err
		}
		err = c.Accounts.ChangeOf(index, Move, func(l *ledger.Ledger) error { return l.Meet(index, client) })
		if errors.Is(err, ledger.ErrUnknownClient) && c.forgetEarlier(index, client) {
			continue
		}
		if err != nil {
			return view, token, now, err
		}
	}
	return view, token, now, fmt.Errorf("%w: index %s comes and goes; ask again", ledger.ErrUnknownClient, index)
}

// Renew restarts a client's lease, returns its length, and processes the epochs. An expired lease
// can be renewed until the client is fenced. pool.ErrEpoch is returned to a client of an earlier
// process, whose lease is not renewed.
func (c *Core) Renew(index string, client uint32, e pool.Epochs) (r pool.Renewal, err error) {
	peer := peerOf(index, client)
	c.Accounts.Read(func(l *ledger.Ledger) {
		switch err = l.Live(index, client); {
		case err != nil:
		case !c.Accounts.leases.has(peer):
			err = fmt.Errorf("%w: %d of index %s never connected; connect first", ledger.ErrUnknownClient, client, index)
		default:
			if r, err = c.Accounts.epochsOf(index).Renew(peer.Client, e); err == nil {
				r.Lease = c.Lease
				c.Accounts.leases.extend(peer, c.env.Now()+c.Lease)
				c.Accounts.leases.noteReach(peer, e.Servers)
				r.Servers = l.Joins(index)
			}
		}
	})
	return r, err
}

// Adopt gives a client a chunk of a fenced client, with slabs for nodes of so many bytes. It is
// stored before it is answered, so no two clients get the same chunk.
func (c *Core) Adopt(index string, client, node uint32) (number uint32, err error) {
	err = c.Accounts.ChangeOf(index, Move, func(l *ledger.Ledger) (err error) {
		number, err = l.Adopt(index, client, node)
		return err
	})
	return number, err
}

// Evict removes an index and all its resources. First no client is admitted any more, then
// connected clients are cut, then the resources are freed. A crash in between leaves the index
// admitted, and the operator evicts it again.
func (c *Core) Evict(index string) (freed uint64, cut int, err error) {
	c.tokens.block(index)
	defer c.tokens.unblock(index)
	for _, p := range c.Providers {
		cut += p.Server.Disconnect(func(peer verbs.Peer) bool { return peer.Index == index })
	}
	c.sweeping.Lock() // a sweep of its locks has ended then
	defer c.sweeping.Unlock()
	err = c.Accounts.changeThen(Mend, func(l *ledger.Ledger) error {
		freed = l.Evict(index)
		return nil
	}, func() {
		c.evictions.Add(1)
		c.Accounts.leases.dropIndex(index)
		c.Accounts.fences.endIndex(index)
		delete(c.Accounts.epochs, index)
	})
	return freed, cut, err
}

// Connections counts the connections of each index. Disconnect passes every peer to its argument,
// which matches none here.
func (c *Core) Connections() map[string]int {
	count := map[string]int{}
	for _, p := range c.Providers {
		p.Server.Disconnect(func(peer verbs.Peer) bool {
			count[peer.Index]++
			return false
		})
	}
	return count
}

// settleLimit is how long a list may take from its check to its end. It waits for nothing but a
// processor.
const settleLimit = time.Second

// SettleRequests returns nil once no request takes effect any more that was checked before.
func (c *Core) SettleRequests() error {
	var errs []error
	for _, p := range c.Providers {
		if s, ok := p.Server.(verbs.Checked); ok {
			errs = append(errs, s.Settle(settleLimit))
		}
	}
	return errors.Join(errs...)
}

// AnswerRequests returns nil once all that clients' requests had executed before is answered.
func (c *Core) AnswerRequests() error {
	var errs []error
	for _, p := range c.Providers {
		if s, ok := p.Server.(verbs.Answering); ok {
			errs = append(errs, s.Answered(settleLimit))
		}
	}
	return errors.Join(errs...)
}

// Panicked is told of a panic in the code that serves a connection to the memory. The stack of the
// first one is logged: a client that provokes one may provoke many.
func (c *Core) Panicked(peer verbs.Peer, value any, stack []byte) {
	what := []any{"index", peer.Index, "client", peer.Client, "panic", fmt.Sprint(value)}
	if c.Panics.Add(1) == 1 {
		what = append(what, "stack", string(stack))
	}
	c.Log.Error("a connection to the memory ended by a panic: this is a fault of the program, please report it", what...)
}
