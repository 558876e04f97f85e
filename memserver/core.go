package memserver

import (
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

// core decides everything about a memory server's clients: which are admitted, for how long, and
// when their requests take effect no more. It knows no listeners and no gRPC, and takes time and
// goroutines from its env, so it runs under the simulator unchanged.
type core struct {
	env       env.Env
	accounts  *accounts
	tokens    *tokens
	providers []provider
	locks     lockTable
	words     words
	lease     time.Duration // that is granted
	log       *slog.Logger

	sweeping env.Mutex // held while an index must keep its slice of the lock table
	wake     env.Event // of the lease loop
	stopped  atomic.Bool

	// called after a change of an index's holdings may have been stored; it does not wait
	holdingsChanged func(index string)

	// when leases that an earlier process granted for longer are over; 0 = there are none
	longer  time.Duration
	earlier time.Duration // when all leases that an earlier process granted are over

	evictions atomic.Uint64 // of any index; changes under sweeping and the lock of the accounts

	expired atomic.Uint64 // leases that expired
	turned  atomic.Uint64 // locks of fenced clients that were set to REPAIR
	panics  atomic.Uint64 // connections to the memory that ended by a panic
}

// provider is a transport that the server offers.
type provider struct {
	name    string
	address string
	server  verbs.Server
}

func newCore(e env.Env, a *accounts, random func() verbs.Token, locks []byte, lease time.Duration, log *slog.Logger) *core {
	return &core{
		env: e, accounts: a, tokens: newTokens(e, random), locks: lockTable{bytes: locks}, lease: lease, log: log,
		sweeping: e.NewMutex(), wake: e.NewEvent(), holdingsChanged: func(string) {},
	}
}

// offer adds a provider, before the server serves.
func (c *core) offer(p provider) {
	c.providers = append(c.providers, p)
	if a, ok := p.server.(verbs.LocalAtomics); ok {
		c.locks.atomics, c.words.atomics = a, a
	}
}

func (c *core) provider(name string) *provider {
	for i := range c.providers {
		if c.providers[i].name == name {
			return &c.providers[i]
		}
	}
	return nil
}

// admission decides which clients get a connection of a provider.
func (c *core) admission(provider string) verbs.Admission { return admission{c.tokens, provider} }

// start is called before any client is served. All known clients that are not fenced get a whole
// lease, the longest that an earlier process may have promised. Fences that an earlier process did
// not finish are finished, or left to the lease loop. Until then all of these clients hold back the
// epochs.
func (c *core) start() error {
	granted := uint64(c.lease / time.Millisecond)
	first := c.lease
	type fencing struct {
		index string
		ids   []uint16
	}
	var left []fencing
	err := c.accounts.change(func(l *ledger.Ledger) error {
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
					c.accounts.leases.extend(verbs.Peer{Index: index.Identity, Client: client.ID}, c.env.Now()+first)
					c.accounts.epochsOf(index.Identity).Found(client.ID)
				}
			}
			left = append(left, fencing{index.Identity, l.Unfinished(index.Identity)})
			for _, id := range left[len(left)-1].ids {
				peer := verbs.Peer{Index: index.Identity, Client: id}
				c.accounts.fences.begin(peer, c.env.Now())
				c.accounts.epochsOf(index.Identity).Found(id)
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
				c.log.Warn("clients that an earlier process fenced are not quiet yet", "index", f.index, "clients", ids, "err", err)
			}
		}
	}
	return nil
}

// joined are the current epochs when a client connects.
type joined struct{ epoch, uncached uint64 }

// connect gives a client a token for one connection of p, its lease, and the current epochs. The
// token is made under the ledger's lock: either before the client is fenced or its index evicted,
// and then voided with the others, or not at all.
func (c *core) connect(index string, client uint16, p *provider) (view ledger.Index, token verbs.Token, now joined, err error) {
	peer := verbs.Peer{Index: index, Client: client}
	const tries = 3 // the index may be evicted and admitted again meanwhile
	for range tries {
		c.accounts.read(func(l *ledger.Ledger) {
			if err = l.Live(index, client); err != nil {
				return
			}
			if view, err = l.Index(index); err != nil {
				return
			}
			if token, err = c.tokens.issue(peer, p.name); err == nil {
				c.accounts.leases.extend(peer, c.env.Now()+c.lease)
				now.epoch, now.uncached = c.accounts.epochsOf(index).Join(client)
			}
		})
		if !errors.Is(err, ledger.ErrUnknownClient) {
			return view, token, now, err
		}
		if err = c.accounts.changeOf(index, func(l *ledger.Ledger) error { return l.Meet(index, client) }); err != nil {
			return view, token, now, err
		}
	}
	return view, token, now, fmt.Errorf("%w: index %s comes and goes; ask again", ledger.ErrUnknownClient, index)
}

// renew restarts a client's lease, returns its length, and processes the epochs. An expired lease
// can be renewed until the client is fenced. pool.ErrEpoch is returned to a client of an earlier
// process, whose lease is not renewed.
func (c *core) renew(index string, client uint16, e pool.Epochs) (r pool.Renewal, err error) {
	peer := verbs.Peer{Index: index, Client: client}
	c.accounts.read(func(l *ledger.Ledger) {
		switch err = l.Live(index, client); {
		case err != nil:
		case !c.accounts.leases.has(peer):
			err = fmt.Errorf("%w: %d of index %s never connected; connect first", ledger.ErrUnknownClient, client, index)
		default:
			if r, err = c.accounts.epochsOf(index).Renew(client, e); err == nil {
				r.Lease = c.lease
				c.accounts.leases.extend(peer, c.env.Now()+c.lease)
			}
		}
	})
	return r, err
}

// adopt gives a client a chunk of a fenced client, with slabs for nodes of so many bytes. It is
// stored before it is answered, so no two clients get the same chunk.
func (c *core) adopt(index string, client uint16, node uint32) (number uint32, err error) {
	err = c.accounts.changeOf(index, func(l *ledger.Ledger) (err error) {
		number, err = l.Adopt(index, client, node)
		return err
	})
	return number, err
}

// evict removes an index and all its resources. First no client is admitted any more, then
// connected clients are cut, then the resources are freed. A crash in between leaves the index
// admitted, and the operator evicts it again.
func (c *core) evict(index string) (freed uint64, cut int, err error) {
	c.tokens.block(index)
	defer c.tokens.unblock(index)
	for _, p := range c.providers {
		cut += p.server.Disconnect(func(peer verbs.Peer) bool { return peer.Index == index })
	}
	c.sweeping.Lock() // a sweep of its locks has ended then
	defer c.sweeping.Unlock()
	err = c.accounts.changeThen(func(l *ledger.Ledger) error {
		freed = l.Evict(index)
		return nil
	}, func() {
		c.evictions.Add(1)
		c.accounts.leases.dropIndex(index)
		c.accounts.fences.endIndex(index)
		delete(c.accounts.epochs, index)
	})
	return freed, cut, err
}

// connections counts the connections of each index. Disconnect passes every peer to its argument,
// which matches none here.
func (c *core) connections() map[string]int {
	count := map[string]int{}
	for _, p := range c.providers {
		p.server.Disconnect(func(peer verbs.Peer) bool {
			count[peer.Index]++
			return false
		})
	}
	return count
}

// settleLimit is how long a list may take from its check to its end. It waits for nothing but a
// processor.
const settleLimit = time.Second

// settleRequests returns nil once no request takes effect any more that was checked before.
func (c *core) settleRequests() error {
	var errs []error
	for _, p := range c.providers {
		if s, ok := p.server.(verbs.Checked); ok {
			errs = append(errs, s.Settle(settleLimit))
		}
	}
	return errors.Join(errs...)
}

// panicked is told of a panic in the code that serves a connection to the memory. The stack of the
// first one is logged: a client that provokes one may provoke many.
func (c *core) panicked(peer verbs.Peer, value any, stack []byte) {
	what := []any{"index", peer.Index, "client", peer.Client, "panic", fmt.Sprint(value)}
	if c.panics.Add(1) == 1 {
		what = append(what, "stack", string(stack))
	}
	c.log.Error("a connection to the memory ended by a panic: this is a fault of the program, please report it", what...)
}
