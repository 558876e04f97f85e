//env:real control calls wait within the context that gRPC gives them

package memserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dmindex/dmindex/memserver/ledger"
)

// maxMapWaiters bounds how many calls wait for a partition map at once.
const maxMapWaiters = 4096

// errTooManyWaiters is returned when too many calls wait for partition maps.
var errTooManyWaiters = fmt.Errorf("%w: %d calls wait for partition maps; ask without waiting", ledger.ErrExhausted, maxMapWaiters)

// waits are the control calls that wait for something to happen in the ledger. Who waits asks for the channel first and looks at the
// ledger then, so nothing that happens in between is missed.
type waits struct {
	mu       sync.Mutex
	cleaned  chan struct{}            // closed and replaced when something was zeroed
	newMap   map[string]chan struct{} // by index that somebody waits for: closed when its map changes or it goes
	mapCalls int                      // how many wait for maps
}

func newWaits() *waits {
	return &waits{cleaned: make(chan struct{}), newMap: map[string]chan struct{}{}}
}

// untilCleaned is closed when something is zeroed after this call.
func (w *waits) untilCleaned() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cleaned
}

// wasCleaned wakes who waits for memory that is being zeroed.
func (w *waits) wasCleaned() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.cleaned)
	w.cleaned = make(chan struct{})
}

// mapChanged wakes who waits for the map of an index.
func (w *waits) mapChanged(index string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if changed := w.newMap[index]; changed != nil {
		close(changed)
		delete(w.newMap, index)
	}
}

func (w *waits) untilMapChanges(index string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.newMap[index]
	if changed == nil {
		changed = make(chan struct{})
		w.newMap[index] = changed
	}
	return changed
}

// waitForMap counts one more who waits, or one less.
func (w *waits) waitForMap(n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mapCalls+n > maxMapWaiters {
		return errTooManyWaiters
	}
	w.mapCalls += n
	return nil
}

// changeCleaned is accounts.change, but waits while all that is left is being zeroed.
func (w *waits) changeCleaned(ctx context.Context, a *accounts, f func(*ledger.Ledger) error) error {
	for {
		cleaned := w.untilCleaned()
		err := a.change(f)
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

// partitionMap reads the map of an index; if its generation is not above newerThan, it waits for a newer one until ctx ends and
// then returns whichever is there.
func (w *waits) partitionMap(ctx context.Context, a *accounts, index string, newerThan uint64) (generation uint64, bytes []byte, err error) {
	look := func() (done bool) {
		a.read(func(l *ledger.Ledger) { generation, bytes, err = l.Map(index) })
		return err != nil || generation > newerThan || ctx.Err() != nil
	}
	if look() {
		return generation, bytes, err
	}
	if err := w.waitForMap(1); err != nil {
		return 0, nil, err
	}
	defer w.waitForMap(-1)
	for {
		changed := w.untilMapChanges(index)
		if look() {
			return generation, bytes, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
