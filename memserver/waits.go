//env:real control calls wait within the context that gRPC gives them

package memserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dmindex/dmindex/memserver/ledger"
)

// maxMapWaiters bounds how many calls wait at once for a partition map, or for other holdings.
// Where there would be more, a call ends its wait at once, as if its time were over: one of those
// of which most wait for the same. So calls of one index take no place from those of another that
// has fewer.
const maxMapWaiters = 2048

// A topic is what calls wait for: the map of an index, which is the index's identity, or its
// holdings.
func holdingsOf(index string) (topic string) { return index + "\x00holdings" }

// waits are the control calls that wait for something to happen in the ledger. Who waits asks for
// the channel first and looks at the ledger then, so nothing that happens in between is missed.
type waits struct {
	mu      sync.Mutex
	cleaned chan struct{} // closed and replaced when something was zeroed
	// by topic that somebody waits for: closed when it changes or its index is evicted
	news    map[string]chan struct{}
	calls   int                // how many wait for topics
	waiting map[string]waiters // they, by topic
}

// waiters are the calls that wait for one topic: each ends its wait when its channel is closed.
type waiters map[chan struct{}]struct{}

func newWaits() *waits {
	return &waits{cleaned: make(chan struct{}), news: map[string]chan struct{}{}, waiting: map[string]waiters{}}
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

// mapChanged wakes the calls that wait for the map of an index.
func (w *waits) mapChanged(index string) { w.changed(index) }

// holdingsChanged wakes those that wait for its holdings.
func (w *waits) holdingsChanged(index string) { w.changed(holdingsOf(index)) }

func (w *waits) changed(topic string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if news := w.news[topic]; news != nil {
		close(news)
		delete(w.news, topic)
	}
}

func (w *waits) untilChanged(topic string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := w.news[topic]
	if news == nil {
		news = make(chan struct{})
		w.news[topic] = news
	}
	return news
}

// beginWait counts a call that waits for a topic. Its wait is over when the channel is closed.
func (w *waits) beginWait(topic string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := make(chan struct{})
	if w.waiting[topic] == nil {
		w.waiting[topic] = waiters{}
	}
	w.waiting[topic][over] = struct{}{}
	if w.calls++; w.calls <= maxMapWaiters {
		return over
	}
	most := topic
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
func (w *waits) endWait(topic string, over chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endWaitLocked(topic, over)
}

func (w *waits) endWaitLocked(topic string, over chan struct{}) {
	calls := w.waiting[topic]
	if _, is := calls[over]; !is { // it ended before
		return
	}
	w.calls--
	if delete(calls, over); len(calls) == 0 {
		delete(w.waiting, topic)
		delete(w.news, topic) // nobody waits for it; the index may be gone for good
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
	w.until(ctx, index, func() (done bool) {
		a.read(func(l *ledger.Ledger) { generation, bytes, err = l.Map(index) })
		return err != nil || generation > newerThan
	})
	return generation, bytes, err
}

// until looks at a topic, again each time that it changed, until look is satisfied, ctx ends, or
// too many calls wait. It looks at least once.
func (w *waits) until(ctx context.Context, topic string, look func() (done bool)) {
	if look() || ctx.Err() != nil {
		return
	}
	over := w.beginWait(topic)
	defer w.endWait(topic, over)
	for {
		changed := w.untilChanged(topic)
		if look() || ctx.Err() != nil {
			return
		}
		select {
		case <-changed:
		case <-over:
			look()
			return
		case <-ctx.Done():
		}
	}
}
