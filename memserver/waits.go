//env:real control calls wait within the context that gRPC gives them

package memserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
)

// maxMapWaiters bounds the calls that wait at once for a partition map, or for other holdings.
// Beyond it a call ends its wait at once, as if its time were over: one of the topic for which most
// calls wait. So calls of one index take no place from those of another that has fewer.
const maxMapWaiters = 2048

// holdingsOf returns the topic of an index's holdings. A topic is what calls wait for: the map of
// an index, whose topic is the index's identity, or its holdings.
func holdingsOf(index string) (topic string) { return index + "\x00holdings" }

// waits are the control calls that wait for a change of the ledger. A call first gets the channel
// and then reads the ledger, so it misses no change in between.
type waits struct {
	mu      sync.Mutex
	cleaned chan struct{} // closed and replaced when something was zeroed
	// by topic with waiters: closed when it changes or its index is evicted
	news    map[string]chan struct{}
	calls   int                // calls that wait for topics
	waiting map[string]waiters // the same, by topic
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

// wasCleaned wakes calls that wait for memory that is being zeroed.
func (w *waits) wasCleaned() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.cleaned)
	w.cleaned = make(chan struct{})
}

// mapChanged wakes the calls that wait for the map of an index.
func (w *waits) mapChanged(index string) { w.changed(index) }

// holdingsChanged wakes the calls that wait for its holdings.
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

// beginWait counts a call that waits for a topic. Its wait ends when the channel is closed.
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

// endWait ends the count of beginWait.
func (w *waits) endWait(topic string, over chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endWaitLocked(topic, over)
}

func (w *waits) endWaitLocked(topic string, over chan struct{}) {
	calls := w.waiting[topic]
	if _, is := calls[over]; !is { // it has ended
		return
	}
	w.calls--
	if delete(calls, over); len(calls) == 0 {
		delete(w.waiting, topic)
		delete(w.news, topic) // no call waits for it; the index may be gone for good
	}
}

// changeCleaned is accounts.changeOf, but waits while all free memory is being zeroed.
func (w *waits) changeCleaned(ctx context.Context, a *core.Accounts, index string, k core.Kind, f func(*ledger.Ledger) error) error {
	for {
		cleaned := w.untilCleaned()
		err := a.ChangeOf(index, k, f)
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

// partitionMap returns the map of an index. If its generation is not above newerThan, it waits for
// a newer one until ctx ends, or too many calls wait, and then returns the present one.
func (w *waits) partitionMap(ctx context.Context, a *core.Accounts, index string, newerThan uint64) (generation uint64, bytes []byte, err error) {
	w.until(ctx, index, func() (done bool) {
		a.Read(func(l *ledger.Ledger) { generation, bytes, err = l.Map(index) })
		return err != nil || generation > newerThan
	})
	return generation, bytes, err
}

// until calls look, and again each time that the topic changes, until look returns true, ctx ends,
// or too many calls wait. It calls look at least once.
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
