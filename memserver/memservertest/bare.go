package memservertest

import (
	"log/slog"
	"time"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Bare is a memory server without listeners, files and gRPC: the ledger, tokens, leases, fences and
// holdings of a memserver.Server, as they are. It is for simulations of what stands above it. It
// belongs to one process of its env; its methods are what the control service calls.
type Bare struct {
	core *core.Core
	zero func(chunk uint32)
}

// BareOptions of a Bare.
type BareOptions struct {
	Locks  []byte               // the lock region
	Shape  ledger.Shape         // of a new ledger
	Stored []byte               // what was saved last; nil = the server is new
	Save   func(b []byte) error // keeps a copy of b, all of it or nothing
	Random func() verbs.Token   // makes tokens
	Lease  time.Duration        // that is granted
	Log    *slog.Logger

	Zero func(chunk uint32) // clears the memory of a chunk; nil where none is handed out

	Holdings int // of an index, at most; 0 = ledger.MaxHoldings
}

// NewBare returns a Bare. Offer a provider, then call Start, then Run.
func NewBare(e env.Env, o BareOptions) (*Bare, error) {
	var a *core.Accounts
	var err error
	if o.Stored == nil {
		a, err = core.NewAccounts(e, saver(o.Save), o.Shape)
	} else {
		a, err = core.FoundAccounts(e, saver(o.Save), o.Stored)
	}
	if err != nil {
		return nil, err
	}
	if o.Holdings > 0 {
		a.Note(func(l *ledger.Ledger) { l.LimitHoldings(o.Holdings) })
	}
	return &Bare{core.New(e, a, o.Random, o.Locks, o.Lease, o.Log), o.Zero}, nil
}

type saver func(b []byte) error

func (s saver) Save(b []byte) error { return s(b) }

// Admission decides which clients get a connection of a provider.
func (b *Bare) Admission(provider string) verbs.Admission { return b.core.Admission(provider) }

// Offer adds a provider.
func (b *Bare) Offer(name, address string, s verbs.Server) {
	b.core.Offer(core.Provider{Name: name, Address: address, Server: s})
}

// Start must be called before any client is served. It can be called again if the ledger could not
// be saved.
func (b *Bare) Start() error { return b.core.Start() }

// Run is the lease loop.
func (b *Bare) Run() { b.core.Run() }

// Admit admits an index; an admitted one stays.
func (b *Bare) Admit(index string, quota, locks uint64) error {
	return b.core.Accounts.Change(core.Grow, func(l *ledger.Ledger) error { _, err := l.Admit(index, quota, locks); return err })
}

// Register registers a client.
func (b *Bare) Register(index, name string) (client uint32, err error) {
	err = b.core.Accounts.Change(core.Move, func(l *ledger.Ledger) (err error) { client, err = l.Register(index, name); return err })
	return client, err
}

// Connect gives a client a token for a provider, its lease, and the epochs of reclamation.
func (b *Bare) Connect(index string, client uint32, provider string) (token verbs.Token, lease time.Duration, epoch, uncached uint64, err error) {
	_, token, now, err := b.core.Connect(index, client, b.core.Provider(provider), core.Caller{})
	return token, b.core.Lease, now.Epoch, now.Uncached, err
}

// Renew renews a lease.
func (b *Bare) Renew(index string, client uint32, e pool.Epochs) (pool.Renewal, error) {
	return b.core.Renew(index, client, e)
}

// Fence fences clients.
func (b *Bare) Fence(index string, clients []uint32, limit time.Duration) error {
	_, err := b.core.Fence(index, clients, false, limit)
	return err
}

// FenceDead fences clients that are confirmed dead.
func (b *Bare) FenceDead(index string, clients []uint32, limit time.Duration) error {
	_, err := b.core.Fence(index, clients, true, limit)
	return err
}

// Forget forgets clients of which nothing is left, and says which others could be forgotten.
func (b *Bare) Forget(index string, clients []uint32) (gone, next []uint32, err error) {
	return b.core.Forget(index, clients)
}

// Join notes how far a memory server is that joins the index.
func (b *Bare) Join(index string, s ledger.JoinedServer) error {
	_, _, err := b.core.Join(index, s)
	return err
}

// Joined returns the servers that joined the index, for a client that is not fenced, or for nobody.
func (b *Bare) Joined(index string, client uint32) (version uint64, all []ledger.JoinedServer, err error) {
	version, all, _, err = b.core.Joined(index, client)
	return version, all, err
}

// Behind returns how many clients with a lease do not reach all servers that joined.
func (b *Bare) Behind(index string) (n int, err error) {
	_, _, behind, err := b.core.Joined(index, 0)
	return len(behind), err
}

// Clients returns the known clients; with a name, only the living ones of that name.
func (b *Bare) Clients(index, name string) (all []ledger.Client, err error) {
	b.core.Accounts.Read(func(l *ledger.Ledger) { all, err = l.Clients(index, name) })
	return all, err
}

// Allocate gives a client a chunk for nodes of so many bytes, from the quota or, with adopt, one
// that a fenced client left; its number, from 1 on. Chunks that were given back are zeroed before.
func (b *Bare) Allocate(index string, client uint32, nodeBytes int, adopt bool) (number uint32, err error) {
	if adopt {
		return b.core.Adopt(index, client, uint32(nodeBytes))
	}
	b.clean()
	err = b.core.Accounts.Change(core.Move, func(l *ledger.Ledger) (err error) {
		number, err = l.Allocate(index, client, uint32(nodeBytes))
		return err
	})
	return number, err
}

// Free frees a client's chunk.
func (b *Bare) Free(index string, client, number uint32) error {
	return b.core.Accounts.Change(core.Mend, func(l *ledger.Ledger) error { return l.Free(index, client, number) })
}

// clean zeroes what was given back.
func (b *Bare) clean() {
	b.core.Accounts.Note(func(l *ledger.Ledger) {
		for number, ok := l.DirtyChunk(); ok; number, ok = l.DirtyChunk() {
			b.zero(number)
			l.CleanedChunk(number)
		}
	})
}

// Acquire grants a client the parts of its claim that may be granted.
func (b *Bare) Acquire(index string, c pool.Claim) (got pool.Acquired, err error) {
	own, blocked, err := b.core.Acquire(index, ledger.Claim{
		Client: c.Client, Generation: c.Generation, Start: c.Start, End: c.End, Log: c.Log, Fenced: c.Fenced,
	})
	for _, h := range own {
		got.Own = append(got.Own, core.Held(h))
	}
	for _, x := range blocked {
		got.Blocked = append(got.Blocked, pool.Blocked{Start: x.Start, End: x.End, Client: x.Client, Why: pool.Obstacle(x.Why)})
	}
	return got, err
}

// Settle records that a client replayed the logs that it inherited.
func (b *Bare) Settle(index string, client uint32, start, end []byte, epoch uint64) error {
	return b.core.Settle(index, client, start, end, epoch)
}

// Release ends a client's holding of keys.
func (b *Bare) Release(index string, client uint32, start, end []byte, epoch uint64) error {
	return b.core.Release(index, client, start, end, epoch)
}

// Holdings returns those of an index.
func (b *Bare) Holdings(index string) ([]pool.Held, error) { return b.core.Holdings(index) }

// Map returns the partition map; generation 0 = there is none.
func (b *Bare) Map(index string) (generation uint64, encoded []byte, err error) {
	b.core.Accounts.Read(func(l *ledger.Ledger) { generation, encoded, err = l.Map(index) })
	return generation, encoded, err
}

// SwapMap replaces the map if its generation is the expected one.
func (b *Bare) SwapMap(index string, expected, generation uint64, encoded []byte) error {
	return b.core.Accounts.Change(core.Move, func(l *ledger.Ledger) error { return l.SwapMap(index, expected, generation, encoded) })
}
