//env:real zeroing goes on beside the control service

package memserver

import (
	"log/slog"
	"time"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
)

// zeroer zeroes what indexes gave back, one piece at a time. Memory is zeroed at several GB a
// second, which bounds how long an Admit or AllocateChunk waits on an otherwise full server.
type zeroer struct {
	accounts *core.Accounts
	waits    *waits
	region   *region.Region
	locks    *core.LockTable // of the core, which gets its provider later
	settle   func() error    // of the core, which gets its providers later
	log      *slog.Logger
	wake     chan struct{} // of one element
}

// progressEvery is how often the log says how far zeroing is.
const progressEvery = 10 * time.Second

func newZeroer(a *core.Accounts, w *waits, r *region.Region, locks *core.LockTable, log *slog.Logger) *zeroer {
	b := &zeroer{accounts: a, waits: w, region: r, locks: locks, settle: func() error { return nil }, log: log, wake: make(chan struct{}, 1)}
	b.nudge() // for what an earlier process left
	return b
}

// nudge says that there is something to zero.
func (b *zeroer) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run zeroes until stop is closed.
func (b *zeroer) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-b.wake:
		}
		if !b.sweep(stop) {
			return
		}
	}
}

// sweep zeroes all that is dirty; false if it was stopped before.
func (b *zeroer) sweep(stop <-chan struct{}) bool {
	start, told := time.Now(), time.Now()
	done := 0
	for b.step() {
		done++
		select {
		case <-stop:
			return false
		default:
		}
		if time.Since(told) >= progressEvery {
			told = time.Now()
			b.log.Info("zeroing freed memory", "done", done, "left_chunks", b.dirtyChunks())
		}
	}
	if done == 0 {
		return true
	}
	b.log.Info("zeroed freed memory", "pieces", done, "took", time.Since(start))
	if err := b.accounts.Change(core.Mend, func(*ledger.Ledger) error { return nil }); err != nil {
		b.log.Warn("what was zeroed could not be noted; after a restart it is zeroed again", "err", err)
	}
	return true
}

// step zeroes one piece; false if there is none. Nobody else gets the piece meanwhile, so the lock
// is free.
func (b *zeroer) step() bool {
	var slot int
	var number uint32
	var first, locks uint64
	var isPlace, isChunk bool
	b.accounts.Read(func(l *ledger.Ledger) {
		if slot, first, locks, isPlace = l.DirtyPlace(); !isPlace {
			number, isChunk = l.DirtyChunk()
		}
	})
	switch {
	case isPlace:
		err := b.region.ZeroPlace(slot, first, locks)
		if err == nil {
			err = b.locks.Zero(first, locks) // in the NIC, too
		}
		if err != nil {
			b.log.Warn("the place of an index that is gone cannot be used again yet", "err", err)
			time.AfterFunc(time.Second, b.nudge)
			return false
		}
	case isChunk:
		// A request that was let through before the chunk was given back may still write to it.
		err := b.settle()
		if err == nil {
			err = b.region.ZeroChunk(number)
		}
		if err != nil {
			b.log.Warn("a chunk that was given back cannot be used again yet", "chunk", number, "err", err)
			time.AfterFunc(time.Second, b.nudge)
			return false
		}
	default:
		return false
	}
	b.accounts.Note(func(l *ledger.Ledger) {
		if isPlace {
			l.CleanedPlace(slot)
		} else {
			l.CleanedChunk(number)
		}
	})
	b.waits.wasCleaned()
	return true
}

func (b *zeroer) dirtyChunks() (n uint64) {
	b.accounts.Read(func(l *ledger.Ledger) { n = l.Totals().Dirty })
	return n
}
