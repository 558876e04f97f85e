// Package wal says what the redo log must still keep. It knows when a page is dirty, and nothing of
// what is in it: records come as bytes, and changes are made by its callers, under the locks of
// their frames.
//
//	              Begin                    Commit(f): the change is made in f
//	record  ---------------> Pending ------------------------------------+
//	        Append(f): f is clean                                        v
//	        ------------------------------------------------------> dirtyPages
//	                         Pending                                     |
//	                            | Cancel                                 | f is written back
//	                            v                                        v
//	                         nothing is kept                       nothing is kept
//
//	ring:   tail ......... recLSN of the oldest entry ............... durable ....... head
//	             Truncate ^ moves the tail to right below it
//
// dirtyPages is a queue in the order of recLSN. An entry is a frame or a pending record. A frame
// that was flushed leaves its entry behind, which then does not match the frame any more, and goes
// when it is the first one. So the log is never truncated beyond a record whose change is neither
// written back nor cancelled.
//
// Lock order: the frame's lock comes before the queue's. Nobody waits for the log with either:
// where a record has to wait, Append and Begin return redo.ErrBusy, and the caller waits without
// them.
package wal

import (
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// Log is the redo log of a client with its dirty pages and the latches of keys.
type Log struct {
	log     *redo.Log
	latches keyLatches
	// room in the ring for the longest record that cancels one
	reserve int

	dirty struct {
		env.Mutex
		pages []page
		begin int // of the remaining ones
	}
}

// page is an entry of dirtyPages: a frame with changes that are not written back, or the place of a
// record whose change is not made yet.
type page struct {
	f       *frame.Frame
	pending *Pending // nil = f is one
	recLSN  uint64
}

// matches reports whether the entry still says what its frame, or its record, does.
func (p *page) matches() bool {
	if p.pending != nil {
		return p.pending.recLSN.Load() == p.recLSN
	}
	return p.f.RecLSN() == p.recLSN
}

// Start makes l that of log, for keys of at most so many bytes.
func (l *Log) Start(e env.Env, log *redo.Log, maxKey int) {
	l.log, l.reserve = log, CancelBytes(maxKey)
	l.dirty.Mutex = e.NewMutex()
}

// Append appends a record of a change of f, whose lock the caller holds. While the first record of
// a clean frame is appended, no other session appends such a one, so entries are in the order of
// their positions, and none can be truncated before it is queued. Where it would have to wait for
// the log it returns redo.ErrBusy, and redo.ErrFull where the ring has no room.
func (l *Log) Append(a *redo.Appender, f *frame.Frame, record []byte) (lsn uint64, err error) {
	if f.RecLSN() != 0 {
		return a.TryAppend(record)
	}
	l.dirty.Lock()
	defer l.dirty.Unlock()
	lsn, err = a.TryAppend(record)
	if err == nil {
		f.SetRecLSN(lsn)
		l.pushLocked(page{f: f, recLSN: lsn})
	}
	return lsn, err
}

// AppendGroup appends one record of changes of several frames, whose locks the caller holds. It
// returns what Append does.
func (l *Log) AppendGroup(a *redo.Appender, fs []*frame.Frame, record []byte) (lsn uint64, err error) {
	l.dirty.Lock()
	defer l.dirty.Unlock()
	if lsn, err = a.TryAppend(record); err != nil {
		return 0, err
	}
	for _, f := range fs {
		if f.RecLSN() == 0 {
			f.SetRecLSN(lsn)
			l.pushLocked(page{f: f, recLSN: lsn})
		}
	}
	return lsn, nil
}

// MostGroup is how long the record of a group may be: as long as a record, and a quarter of the
// ring, since nothing is written back for room in a ring that is used by half.
func (l *Log) MostGroup() int { return min(l.log.MostRecord(), int(l.log.Ref().Bytes)/4) }

func (l *Log) pushLocked(p page) {
	l.trimLocked()
	l.dirty.pages = append(l.dirty.pages, p)
}

// trimLocked drops outdated entries at the front.
func (l *Log) trimLocked() {
	d := &l.dirty
	for d.begin < len(d.pages) && !d.pages[d.begin].matches() {
		d.begin++
	}
	if d.begin > len(d.pages)/2 {
		n := copy(d.pages, d.pages[d.begin:])
		d.pages, d.begin = d.pages[:n], 0
	}
}

// Dirty returns the dirty frames, each once. Others flush and change frames meanwhile.
func (l *Log) Dirty() []*frame.Frame {
	l.dirty.Lock()
	defer l.dirty.Unlock()
	var frames []*frame.Frame
	for _, p := range l.dirty.pages[l.dirty.begin:] {
		if p.pending == nil && p.matches() {
			frames = append(frames, p.f)
		}
	}
	return frames
}

// Oldest appends the frames to fs that prevent most of the log from being truncated, the oldest
// first, as many as fs has room for.
func (l *Log) Oldest(fs []*frame.Frame) []*frame.Frame {
	l.dirty.Lock()
	defer l.dirty.Unlock()
	l.trimLocked()
	for i := l.dirty.begin; i < len(l.dirty.pages) && len(fs) < cap(fs); i++ {
		if p := &l.dirty.pages[i]; p.pending == nil && p.matches() {
			fs = append(fs, p.f)
		}
	}
	return fs
}

// Truncate truncates the log as far as possible.
func (l *Log) Truncate() {
	l.dirty.Lock()
	defer l.dirty.Unlock()
	l.trimLocked()
	upTo := l.log.Durable()
	if l.dirty.begin < len(l.dirty.pages) {
		upTo = min(upTo, l.dirty.pages[l.dirty.begin].recLSN-1)
	}
	l.log.Truncate(upTo)
}
