package wal

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// keyLatches are taken by the hash of a key: of each key one session at a time has a record that
// was appended before its change. Nobody waits for a latch. Two keys may share one, so a change
// whose latch is taken is made in another way, or later.
type keyLatches struct {
	taken                    [1024]atomic.Bool
	made, refused, cancelled atomic.Uint64 // see Stats
}

// Stats counts the records that were appended before their change: those whose change was made,
// those whose change was refused, and those that were cancelled, refused or not.
type Stats struct{ Made, Refused, Cancelled uint64 }

// Stats returns the counts.
func (l *Log) Stats() Stats {
	c := &l.latches
	return Stats{c.made.Load(), c.refused.Load(), c.cancelled.Load()}
}

// CountMade and CountRefused count a change whose record was appended before.
func (l *Log) CountMade() { l.latches.made.Add(1) }

// CountRefused is CountMade of a change that was refused.
func (l *Log) CountRefused() { l.latches.refused.Add(1) }

// Pending is the place of a session's record that was appended before its change. A session has one
// at a time. It is to be committed, or cancelled, before its latch is released.
type Pending struct {
	recLSN atomic.Uint64 // what an entry of dirtyPages is compared with
	lsn    uint64        // of the record, until its change is made; 0 = none
	latch  *atomic.Bool  // of the key; nil = none
	// where the last cancellation ends: a change that failed waits for it
	cancelled uint64
	note      []byte // the record of a cancellation
	value     [8]byte
}

// LSN is where the record ends; 0 = there is none that is neither committed nor cancelled.
func (p *Pending) LSN() uint64 { return p.lsn }

// IsIdle reports whether the session has neither a record nor a latch.
func (p *Pending) IsIdle() bool { return p.latch == nil && p.recLSN.Load() == 0 }

// Cancelled is where the last cancellation since ForgetCancelled ends; 0 = there was none.
func (p *Pending) Cancelled() uint64 { return p.cancelled }

// ForgetCancelled is called when a change has ended.
func (p *Pending) ForgetCancelled() { p.cancelled = 0 }

// Forget removes the record from dirtyPages: its frame has taken its place, or it is cancelled.
func (p *Pending) Forget() {
	p.recLSN.Store(0)
	p.lsn = 0
}

// Latch acquires the latch of a key with a hash, and room in the ring for the cancellation of its
// record: so that needs no truncation, which the record itself may prevent. It returns false if one
// of them is not to be had now.
func (l *Log) Latch(p *Pending, hash uint64) bool {
	at := &l.latches.taken[hash>>32%uint64(len(l.latches.taken))]
	if at.Load() || !at.CompareAndSwap(false, true) {
		return false
	}
	if !l.log.Reserve(l.reserve) {
		at.Store(false)
		return false
	}
	p.latch = at
	return true
}

// Unlatch releases the latch, when the session owes no cancellation any more.
func (l *Log) Unlatch(p *Pending) {
	l.log.Unreserve(l.reserve)
	p.latch.Store(false)
	p.latch = nil
}

// CancelBytes is the length of the longest record that cancels one, if keys have at most so many
// bytes: the room in the ring that each latch reserves.
func CancelBytes(maxKey int) int { return record.FixedBytes + maxKey + 8 }

// Begin appends a record before its change is made, and puts it into dirtyPages. It returns what
// Append does.
func (l *Log) Begin(a *redo.Appender, p *Pending, rec []byte) error {
	l.dirty.Lock()
	defer l.dirty.Unlock()
	lsn, err := a.TryAppend(rec)
	if err != nil {
		return err
	}
	p.lsn = lsn
	p.recLSN.Store(lsn)
	l.pushLocked(page{pending: p, recLSN: lsn})
	return nil
}

// Commit puts f, which is clean, and in which the change of the record is about to be made, into
// dirtyPages in place of the record. Under the lock of f. It returns where the record ends.
func (l *Log) Commit(p *Pending, f *frame.Frame) uint64 {
	lsn := p.lsn
	l.dirty.Lock()
	defer l.dirty.Unlock()
	for i := len(l.dirty.pages) - 1; ; i-- { // it was appended a round trip ago
		if e := &l.dirty.pages[i]; e.pending == p && e.recLSN == lsn {
			e.f, e.pending = f, nil
			break
		}
	}
	f.SetRecLSN(lsn)
	p.Forget()
	return lsn
}

// Cancel appends that the record's change was not, and will not be, made. After an error the record
// stands in dirtyPages still, so the log is not truncated beyond it: a replay of it decides. The
// caller gives this client up, and then forgets the record.
func (l *Log) Cancel(a *redo.Appender, p *Pending, key []byte, epoch uint64) error {
	binary.LittleEndian.PutUint64(p.value[:], p.lsn)
	p.note = record.Append(p.note[:0], record.Cancel, epoch, key, p.value[:])
	lsn, err := a.AppendReserved(p.note)
	if err != nil {
		return err
	}
	p.Forget()
	p.cancelled = lsn
	l.latches.cancelled.Add(1)
	return nil
}
