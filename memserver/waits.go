//env:real control calls wait within the context that gRPC gives them

package memserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dmindex/dmindex/memserver/ledger"
)

// maxMapWaiters bounds how many calls wait for a partition map at once. Where there would be more,
// a call ends its wait at once, as if its time were over: one for the index for which most wait. So
// calls of one index take no place from those of another that has fewer.
const maxMapWaiters = 2048

// waits are the control calls that wait for something to happen in the ledger. Who waits asks for
// the channel first and looks at the ledger then, so nothing that happens in between is missed.
type waits struct {
	mu      sync.Mutex
	cleaned chan struct{} // closed and replaced when something was zeroed
	// by index that somebody waits for: closed when its map changes or it goes
	newMap   map[string]chan struct{}
	mapCalls int                // how many wait for maps
	waiting  map[string]waiters // they, by index
}

// waiters are the calls that wait for the map of one index: each ends its wait when its channel is
// closed.
type waiters map[chan struct{}]struct{}

func newWaits() *waits {
	return &waits{cleaned: make(chan struct{}), newMap: map[string]chan struct{}{}, waiting: map[string]waiters{}}
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

// beginWait counts a call that waits for the map of an index. Its wait is over when the channel is
// closed.
func (w *waits) beginWait(index string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := make(chan struct{})
	if w.waiting[index] == nil {
		w.waiting[index] = waiters{}
	}
	w.waiting[index][over] = struct{}{}
	if w.mapCalls++; w.mapCalls <= maxMapWaiters {
		return over
	}
	most := index
	for other, calls := range w.waiting { // one of the largest, in any order
		if len(calls) > len(w.waiting[most]) {
			most = other
		}
	}
	for call := range w.waiting[most] {
		close(call)
		w.endWaitLocked(most, call)
		break
	}
	return over
}

// endWait counts it no more.
func (w *waits) endWait(index string, over chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endWaitLocked(index, over)
}

func (w *waits) endWaitLocked(index string, over chan struct{}) {
	calls := w.waiting[index]
	if _, is := calls[over]; !is { // it ended before
		return
	}
	w.mapCalls--
	if delete(calls, over); len(calls) == 0 {
		delete(w.waiting, index)
		delete(w.newMap, index) // nobody waits for it; the index may be gone for good
	}
}

// changeCleaned is accounts.changeOf, but waits while all that is left is being zeroed.
func (w *waits) changeCleaned(ctx context.Context, a *accounts, index string, f func(*ledger.Ledger) error) error {
	for {
		cleaned := w.untilCleaned()
		err := a.changeOf(index, f)
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

// partitionMap reads the map of an index; if its generation is not above newerThan, it waits for a
// newer one until ctx ends, or too many wait, and then returns whichever is there.
func (w *waits) partitionMap(ctx context.Context, a *accounts, index string, newerThan uint64) (generation uint64, bytes []byte, err error) {
	look := func() (done bool) {
		a.read(func(l *ledger.Ledger) { generation, bytes, err = l.Map(index) })
		return err != nil || generation > newerThan || ctx.Err() != nil
	}
	if look() {
		return generation, bytes, err
	}
	over := w.beginWait(index)
	defer w.endWait(index, over)
	for {
		changed := w.untilMapChanges(index)
		if look() {
			return generation, bytes, err
		}
		select {
		case <-changed:
		case <-over:
			look()
			return generation, bytes, err
		case <-ctx.Done():
		}
	}
}
