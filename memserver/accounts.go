//env:real the control service answers each call on a goroutine of gRPC

package memserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env/invariants"
)

// errStore is returned when a change could not be stored, and therefore was not made.
var errStore = errors.New("the ledger cannot be stored")

// accounts guard the ledger: a change is stored before anybody hears of it, or it is not made. So whenever the lock is free,
// what is in memory is what is stored, but for chunks and places that were zeroed since.
type accounts struct {
	path string // of the stored ledger; empty = it is not stored

	mu     sync.Mutex
	ledger *ledger.Ledger
	stored []byte // as it was stored last
	spare  []byte // room for the next

	cleaned    chan struct{}            // closed and replaced when something was zeroed
	newMap     map[string]chan struct{} // by index that somebody waits for: closed when its map changes or it goes
	newMapWait int                      // how many wait
}

// newAccounts starts from a new ledger, which it stores, or from the one at path, where the region was found with content.
// dir = "" keeps the ledger in memory only.
func newAccounts(dir string, r *region) (*accounts, error) {
	a := &accounts{cleaned: make(chan struct{}), newMap: map[string]chan struct{}{}}
	if dir != "" {
		a.path = filepath.Join(dir, ledgerFile)
	}
	shape := ledger.Shape{
		Incarnation: r.incarnation, ChunkBytes: r.chunkBytes, Chunks: r.chunks(), Slots: superblockSlots, Locks: r.lockBytes / 2,
	}
	var err error
	if r.existed {
		a.ledger, a.stored, err = loadLedger(a.path, shape)
		return a, err
	}
	if a.ledger, err = ledger.New(shape); err != nil {
		return nil, err
	}
	return a, a.change(func(*ledger.Ledger) error { return nil })
}

func loadLedger(path string, shape ledger.Shape) (*ledger.Ledger, []byte, error) {
	const advice = "without its ledger the region cannot be used: start again with empty data and state directories"
	stored, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("the region is there, its ledger is not: %w; %s", err, advice)
	}
	l, err := ledger.Decode(stored)
	if errors.Is(err, ledger.ErrVersion) {
		return nil, nil, fmt.Errorf("ledger %s: %w; run the program that wrote it, or drain the server and start again with empty directories", path, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("ledger %s: %w; %s", path, err, advice)
	}
	if have := l.Shape(); have != shape {
		return nil, nil, fmt.Errorf("ledger %s is of another region: it has %+v, the region %+v; %s", path, have, shape, advice)
	}
	return l, stored, nil
}

// read shows the ledger to f, which must not change it nor keep anything of it.
func (a *accounts) read(f func(*ledger.Ledger)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a.ledger)
}

// change makes one change and stores it. f leaves the ledger as it was if it returns an error; change returns that error.
func (a *accounts) change(f func(*ledger.Ledger) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changeLocked(f)
}

func (a *accounts) changeLocked(f func(*ledger.Ledger) error) error {
	returned := false
	defer func() {
		if !returned && a.stored != nil {
			a.undo(errors.New("the change panicked"))
		}
	}()
	err := f(a.ledger)
	returned = true
	if err != nil {
		return err
	}
	if invariants.Enabled {
		broken := a.ledger.Check()
		invariants.Check(broken == nil, "ledger: %v", broken)
	}
	next := a.ledger.Append(a.spare[:0])
	if err := a.save(next); err != nil {
		return a.undo(err)
	}
	a.spare, a.stored = a.stored, next
	return nil
}

// save replaces the stored ledger. Nothing is flushed to a device: the ledger must outlive the process, not the machine, whose
// restart the region does not outlive either (see bootID).
func (a *accounts) save(b []byte) error {
	if a.path == "" {
		return nil
	}
	temporary := a.path + ".new"
	if err := os.WriteFile(temporary, b, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, a.path)
}

// undo goes back to the stored ledger, and says why.
func (a *accounts) undo(cause error) error {
	cause = fmt.Errorf("%w: %w; nothing was changed: make room in the state directory and ask again", errStore, cause)
	if a.stored == nil {
		return cause // there never was one: the server does not start
	}
	l, err := ledger.Decode(a.stored)
	if err != nil {
		panic(fmt.Sprintf("memserver: the ledger that was stored cannot be read: %v", err))
	}
	a.ledger = l
	return cause
}

// changeCleaned is change, but waits while all that is left is being zeroed.
func (a *accounts) changeCleaned(ctx context.Context, f func(*ledger.Ledger) error) error {
	for {
		a.mu.Lock()
		err := a.changeLocked(f)
		cleaned := a.cleaned
		a.mu.Unlock()
		if !errors.Is(err, ledger.ErrCleaning) {
			return err
		}
		select {
		case <-cleaned:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// maxMapWaiters bounds how many calls wait for a partition map at once.
const maxMapWaiters = 4096

// errTooManyWaiters is returned when too many calls wait for partition maps.
var errTooManyWaiters = fmt.Errorf("%w: %d calls wait for partition maps; ask without waiting", ledger.ErrExhausted, maxMapWaiters)

// partitionMap reads the map of an index; if its generation is not above newerThan, it waits for a newer one until ctx ends and
// then returns whichever is there.
func (a *accounts) partitionMap(ctx context.Context, index string, newerThan uint64) (generation uint64, bytes []byte, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		generation, bytes, err = a.ledger.Map(index)
		if err != nil || generation > newerThan || ctx.Err() != nil {
			return generation, bytes, err
		}
		if a.newMapWait >= maxMapWaiters {
			return 0, nil, errTooManyWaiters
		}
		changed := a.newMap[index]
		if changed == nil {
			changed = make(chan struct{})
			a.newMap[index] = changed
		}
		a.newMapWait++
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		a.mu.Lock()
		a.newMapWait--
	}
}

// mapChanged wakes who waits for the map of an index.
func (a *accounts) mapChanged(index string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if changed := a.newMap[index]; changed != nil {
		close(changed)
		delete(a.newMap, index)
	}
}
