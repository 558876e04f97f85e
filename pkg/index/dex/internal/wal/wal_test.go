package wal

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// opened is a log with an appender.
type opened struct {
	Log
	a   *redo.Appender
	log *redo.Log
}

func openLog(t *testing.T) *opened {
	t.Helper()
	p := pooltest.New(t, pooltest.Options{Provider: "shm", Servers: 1, Chunks: 8}).Open(t)
	log, err := redo.Create(p, redo.MinBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(true); err != nil {
			t.Error(err)
		}
	})
	o := &opened{a: log.Appender(), log: log}
	o.Start(p.Env(), log, 8)
	return o
}

func newFrame() *frame.Frame {
	f := new(frame.Frame)
	f.Init(0, make([]uint64, 32, 32+frame.NoteWords(32)))
	return f
}

func put(key string) []byte { return record.Append(nil, record.Put, 1, []byte(key), []byte("value")) }

// durable waits for everything up to lsn, and truncates. It returns how many bytes are in use.
func (o *opened) durable(t *testing.T, lsn uint64) uint64 {
	t.Helper()
	if err := o.a.Wait(lsn, time.Minute); err != nil {
		t.Fatal(err)
	}
	o.Truncate()
	return o.log.Used()
}

// TestTruncateStopsAtTheOldest: the log keeps a record that is pending, then that of the frame
// which has its change, and nothing once the frame is clean. A pending record is no frame to write
// back.
func TestTruncateStopsAtTheOldest(t *testing.T) {
	o, f, later := openLog(t), newFrame(), newFrame()
	var p Pending
	if !o.Latch(&p, 7) {
		t.Fatal("the latch is taken")
	}
	if err := o.Begin(o.a, &p, put("first")); err != nil {
		t.Fatal(err)
	}
	first := p.LSN()
	lsn, err := o.Append(o.a, later, put("second"))
	if err != nil {
		t.Fatal(err)
	}
	kept := o.durable(t, lsn)
	if fs := o.Dirty(); len(fs) != 1 || fs[0] != later {
		t.Errorf("%d frames are dirty beside a pending record", len(fs))
	}
	later.SetRecLSN(0) // as if it were written back
	if got := o.durable(t, lsn); got != kept {
		t.Errorf("%d bytes are in use and a record is pending, %d before", got, kept)
	}
	if got := o.Commit(&p, f); got != first || f.RecLSN() != first || p.LSN() != 0 {
		t.Errorf("the record at %d is committed at %d; recLSN %d", first, got, f.RecLSN())
	}
	o.Unlatch(&p)
	if got := o.durable(t, lsn); got != kept || !p.IsIdle() {
		t.Errorf("%d bytes are in use and a frame has the change, %d before", got, kept)
	}
	if fs := o.Oldest(make([]*frame.Frame, 0, 4)); len(fs) != 1 || fs[0] != f {
		t.Errorf("the oldest are %d frames", len(fs))
	}
	f.SetRecLSN(0)
	if got := o.durable(t, lsn); got >= kept {
		t.Errorf("%d bytes are in use and all is written back, %d before", got, kept)
	}
}

// TestCancelledIsNotKept: a record that is cancelled holds nothing up. The latch of a key is one.
func TestCancelledIsNotKept(t *testing.T) {
	o := openLog(t)
	var p, other Pending
	if !o.Latch(&p, 7) || o.Latch(&other, 7) || !o.Latch(&other, 9<<32) {
		t.Fatal("latches are not those of keys")
	}
	o.Unlatch(&other)
	if err := o.Begin(o.a, &p, put("first")); err != nil {
		t.Fatal(err)
	}
	kept := o.durable(t, p.LSN())
	if err := o.Cancel(o.a, &p, []byte("first"), 1); err != nil {
		t.Fatal(err)
	}
	o.Unlatch(&p)
	if !p.IsIdle() || p.Cancelled() == 0 || o.Stats().Cancelled != 1 {
		t.Errorf("after a cancellation: %+v, %d", o.Stats(), p.Cancelled())
	}
	if got := o.durable(t, p.Cancelled()); got >= kept {
		t.Errorf("%d bytes are in use and the record is cancelled, %d before", got, kept)
	}
}

// TestFailedCancelKeepsTheRecord: a cancellation that cannot be appended leaves the record in
// dirtyPages, so that the log is not truncated beyond it before the client is given up (Cancel).
func TestFailedCancelKeepsTheRecord(t *testing.T) {
	o := openLog(t)
	var p Pending
	if !o.Latch(&p, 7) {
		t.Fatal("the latch is taken")
	}
	if err := o.Begin(o.a, &p, put("first")); err != nil {
		t.Fatal(err)
	}
	kept := o.durable(t, p.LSN())
	// as an append that waits too long for a batch: an error, and the log lives
	if err := o.Cancel(o.a, &p, make([]byte, 1<<20), 1); err == nil {
		t.Fatal("no error")
	}
	o.Truncate() // as the page cleaner does at any moment
	if got := o.log.Used(); got < kept {
		t.Errorf("%d bytes are in use after a cancellation that failed, %d before: the record is forgotten, and the client is not given up yet", got, kept)
	}
	p.Forget()
	o.Unlatch(&p)
	if o.Truncate(); !p.IsIdle() || o.log.Used() >= kept {
		t.Errorf("%d bytes are in use once it is forgotten, %d before", o.log.Used(), kept)
	}
}
