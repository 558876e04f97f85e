package core

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// ErrStore is returned when a change could not be stored, and therefore was not made.
var ErrStore = errors.New("the ledger cannot be stored")

// ErrFull is returned, and nothing was changed, when the ledger has no room for a change of this
// kind.
var ErrFull = fmt.Errorf("%w: the ledger is full", ledger.ErrExhausted)

// Kind is what a change is for. Where the ledger has a limit, some room is kept for each kind that
// must not fail because of those before it: an index whose accounts fill the ledger, or many
// indexes, would keep dead clients of all others from being fenced.
type Kind int

// Kinds of changes, and how many eighths of the limit the ledger may fill before one.
const (
	Grow Kind = 5 // an index is admitted
	Move Kind = 7 // clients come, chunks are allocated, keys and maps change, servers join
	Mend Kind = 8 // clients are fenced and forgotten, something is given back: never refused
)

// Accounts guard the ledger: a change is stored before anybody hears of it, or it is not made. So
// whenever the lock is free, what is in memory is what is stored, but for what was noted since.
//
// Leases, unfinished fences and epochs live under the same lock, so that a lease is extended before
// its client is fenced or not at all.
type Accounts struct {
	store Store // nil = it is not stored
	limit int   // bytes of the ledger; 0 = none. See Kind
	turns turns // of the indexes

	mu     env.Mutex
	ledger *ledger.Ledger
	chunks *verbs.Chunks // nil, or whose the ledger says that they are
	stored []byte        // as it was stored last
	spare  []byte        // room for the next
	leases leases
	fences fences
	epochs map[string]*pool.EpochTables // by index

	Undone func() // nil, or called when what was noted is forgotten; it does not block
}

// Store keeps the ledger beyond the process.
type Store interface {
	// Save replaces what is stored by b, all of it or nothing, and keeps nothing of b.
	Save(b []byte) error
}

// NewAccounts starts from a new ledger, which it stores.
func NewAccounts(e env.Env, s Store, shape ledger.Shape) (*Accounts, error) {
	l, err := ledger.New(shape)
	if err != nil {
		return nil, err
	}
	a := &Accounts{store: s, turns: newTurns(e), mu: e.NewMutex(), ledger: l}
	return a, a.Change(Mend, func(*ledger.Ledger) error { return nil })
}

// FoundAccounts starts from a ledger that was stored.
func FoundAccounts(e env.Env, s Store, stored []byte) (*Accounts, error) {
	l, err := ledger.Decode(stored)
	return &Accounts{store: s, turns: newTurns(e), mu: e.NewMutex(), ledger: l, stored: stored}, err
}

// Read shows the ledger to f, which must not change it nor keep anything of it.
func (a *Accounts) Read(f func(*ledger.Ledger)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a.ledger)
}

// Note lets f change what need not be stored at once: what is forgotten by that is done again.
func (a *Accounts) Note(f func(*ledger.Ledger)) { a.Read(f) }

// Limit says how many bytes the ledger may have stored: the room of its volume holds two, since a
// new one is written beside the old one. It is called before the first change.
func (a *Accounts) Limit(bytes int) { a.limit = bytes }

// Size is how many bytes are stored, and the limit; 0 = there is none. It is called under the lock.
func (a *Accounts) Size() (stored, limit int) { return len(a.stored), a.limit }

// Change makes one change and stores it. f leaves the ledger as it was if it returns an error;
// change returns that error. ErrFull is returned without a call of f.
func (a *Accounts) Change(k Kind, f func(*ledger.Ledger) error) error {
	return a.changeThen(k, f, nil)
}

// ChangeOf is change in its turn: for calls of clients of an index.
func (a *Accounts) ChangeOf(index string, k Kind, f func(*ledger.Ledger) error) error {
	return a.changeThenOf(index, k, f, nil)
}

// changeThenOf is changeThen in its turn.
func (a *Accounts) changeThenOf(index string, k Kind, f func(*ledger.Ledger) error, then func()) error {
	defer a.turns.begin(index)()
	return a.changeThen(k, f, then)
}

// checkRoom returns ErrFull if there is none for a change. What is stored counts, and not what it
// would become: so a refusal costs nothing, and undoes nothing. A change adds 1 MiB at most, a map
// or an index's holdings, which is less than an eighth of the limit that the operator sets. It is
// called under the lock.
func (a *Accounts) checkRoom(k Kind) error {
	if is, most := len(a.stored), a.limit/8*int(k); a.limit > 0 && k < Mend && is >= most {
		return fmt.Errorf("%w: it has %d bytes, from %d on the rest of %d is for fences: evict an index, or let indexes have fewer servers, fewer ranges or shorter keys", ErrFull, is, most, a.limit)
	}
	return nil
}

// changeThen is Change; once the change is stored, and before anybody sees it, it calls then.
func (a *Accounts) changeThen(k Kind, f func(*ledger.Ledger) error, then func()) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.checkRoom(k)
	if err == nil {
		err = a.changeLocked(f)
	}
	if err == nil && then != nil {
		then()
	}
	return err
}

func (a *Accounts) changeLocked(f func(*ledger.Ledger) error) error {
	returned := false
	defer func() {
		if !returned && a.stored != nil {
			a.undo(errors.New("the change panicked"))
		}
	}()
	err := f(a.ledger)
	if err != nil {
		returned = true
		return err
	}
	if invariants.Enabled {
		broken := a.ledger.Check()
		invariants.Check(broken == nil, "ledger: %v", broken)
	}
	next := a.ledger.Append(a.spare[:0])
	if a.store != nil {
		err = a.store.Save(next)
	}
	returned = true
	if err != nil {
		return a.undo(err)
	}
	a.spare, a.stored = a.stored, next
	if a.chunks != nil {
		grantChunks(a.chunks, a.ledger)
	}
	return nil
}

// GrantTo makes the owners of chunks what the ledger says, from now on.
func (a *Accounts) GrantTo(chunks *verbs.Chunks) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.chunks = chunks
	grantChunks(chunks, a.ledger)
}

// grantChunks makes the owners those of the ledger. It is called under the lock of the accounts,
// once what the ledger says is stored.
func grantChunks(c *verbs.Chunks, l *ledger.Ledger) {
	for n := range l.Shape().Chunks {
		c.Grant(int(n), uint32(l.Owner(n+1)))
	}
}

// Unfinished returns how many fences are not finished. It is called under the lock.
func (a *Accounts) Unfinished() int { return a.fences.len() }

// epochsOf is the table of an index. It is called under the lock.
func (a *Accounts) epochsOf(index string) *pool.EpochTables {
	t := a.epochs[index]
	if t == nil {
		if a.epochs == nil {
			a.epochs = map[string]*pool.EpochTables{}
		}
		t = pool.NewEpochTables()
		a.epochs[index] = t
	}
	return t
}

// undo goes back to the stored ledger, and says why.
func (a *Accounts) undo(cause error) error {
	cause = fmt.Errorf("%w: %w; nothing was changed: make room in the state directory and ask again", ErrStore, cause)
	if a.stored == nil {
		return cause // there never was one: the server does not start
	}
	l, err := ledger.Decode(a.stored)
	if err != nil {
		panic(fmt.Sprintf("memserver: the ledger that was stored cannot be read: %v", err))
	}
	l.LimitHoldings(a.ledger.MostHoldings())
	a.ledger = l
	for _, index := range l.Indexes() { // what was noted since is forgotten, so it is done again
		for _, id := range l.Unfinished(index.Identity) {
			a.fences.begin(index.Identity, id, 0)
		}
	}
	if a.Undone != nil {
		a.Undone()
	}
	return cause
}
