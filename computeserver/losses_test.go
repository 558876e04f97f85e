package computeserver

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/pkg/env"
)

// losingLog is the log of a store, in which a change is not durable at once, and which is lost at
// times: a change that was not durable then was never made. So nobody may be told of it, neither
// by the reply to it nor by that to a read.
type losingLog struct {
	t     *testing.T
	store *memindex.Store
	j     *judge
	lost  int // changes

	mu      sync.Mutex
	held    chan struct{} // closed when waits go on; nil = they do
	waiting int
}

// wait is for memindex.Store.Log: a write of the log takes up to a millisecond.
func (l *losingLog) wait(position uint64) error {
	l.mu.Lock()
	held := l.held
	l.waiting++
	l.mu.Unlock()
	if held != nil {
		<-held
	}
	env.Real().Sleep(time.Duration(position%8) * 125 * time.Microsecond)
	l.mu.Lock()
	l.waiting--
	l.mu.Unlock()
	return nil
}

// lose loses the log at a moment when several wait for it, and some change is not durable.
func (l *losingLog) lose() {
	held := make(chan struct{})
	l.mu.Lock()
	l.held = held
	l.mu.Unlock()
	computeservertest.Await(l.t, "several wait for the log", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.waiting >= 8 && l.store.Volatile() > 0
	})
	l.lost += l.store.Lose(l.j.undone)
	l.mu.Lock()
	l.held = nil
	l.mu.Unlock()
	close(held)
}

// undone is for memindex.Store.Lose: the last change of the key was never made.
func (j *judge) undone(key, value []byte, there bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.changes[string(key)]
	last := len(all) - 1
	if last < 0 || all[last].there != there || !bytes.Equal([]byte(all[last].value), value) {
		panic(fmt.Sprintf("the last change of %q is not the one to %q that is undone: %v", key, value, all))
	}
	j.changes[string(key)] = all[:last]
}
