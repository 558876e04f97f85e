package memserver

import (
	"bytes"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// A copy that joins begins with an empty memory, and gets the server's piece by piece, as changes.
//
//	piece   holes of the file and zeroes are left out: the copy has zeroes, and all changes since
//	        the walk began are in the stream, whatever is looked at when
//	        else: Begin, Record of the piece as it is by now, which is read once more, Done. So it
//	        has a place in the order: what changes it earlier is in it, and what changes it later
//	        comes behind it
//	ledger  parts of it as it was stored at one moment; then, while nothing is stored, what has
//	        changed since. From there on the copy has the ledger, and takes each change of it
//
// What is not recorded is left out: the header page, presence words, the lock region.
//
// The walk waits for nothing but room in the window and for the copy, so clients wait for one piece
// at most. It is never further ahead of the copy than walkAhead.

const (
	walkAhead  = 2 << 20 // bytes of the stream
	ledgerPart = 256 << 10

	ledgerTries = 8

	walkLook = 100 * time.Millisecond // at whether the copy is one still
)

// walk sends the memory and the ledger to a copy, and returns the position behind them.
func (v *volume) walk(f *verbs.Feed, w *verbs.Waiter) (last verbs.Position, err error) {
	s := v.server
	e, j, r := s.config.env, s.region.Journal, s.region
	v.feed.Store(f)
	began := e.Now()
	sent, b := uint64(0), make([]byte, region.PieceBytes)
	r.SpansFrom(0, func(at, n uint64) bool {
		v.scanned.Store(at + n)
		if r.ReadPiece(at, b[:n]) {
			return true
		}
		if err = j.Begin(w, verbs.ItemBytes(int(n))); err != nil {
			return false
		}
		r.Read(at, b[:n])
		last = j.Record(at, b[:n])
		j.Done()
		v.copied.Add(n)
		if err = waitForCopy(f, w, last); err != nil {
			return false
		}
		sent += n
		err = waitForPace(e, f, w, began, sent, v.pace.Load())
		return err == nil
	})
	if err != nil {
		return 0, err
	}
	return v.sendLedger(f, w)
}

// waitForCopy waits until the copy lacks no more than walkAhead of what lies up to a position.
func waitForCopy(f *verbs.Feed, w *verbs.Waiter, p verbs.Position) error {
	if p <= walkAhead {
		return f.Err()
	}
	return f.Wait(w, p-walkAhead)
}

// waitForPace waits until bytes may have been sent since a time, at so many bytes a second; 0 = at
// once.
func waitForPace(e env.Env, f *verbs.Feed, w *verbs.Waiter, since time.Duration, bytes, pace uint64) error {
	if pace == 0 {
		return f.Err()
	}
	due := since + time.Duration(float64(bytes)/float64(pace)*float64(time.Second))
	for e.Now() < due {
		if err := w.Pass(min(due-e.Now(), walkLook)); err != nil {
			return err
		}
		if err := f.Err(); err != nil {
			return err
		}
	}
	return f.Err()
}

// sendLedger sends the ledger.
func (v *volume) sendLedger(f *verbs.Feed, w *verbs.Waiter) (last verbs.Position, err error) {
	s := v.server
	j, accounts := s.region.Journal, s.control.Accounts
	for range ledgerTries {
		var snapshot []byte
		accounts.Read(func(*ledger.Ledger) { snapshot = bytes.Clone(s.mirrored.last) })
		for at := 0; at < len(snapshot); at += ledgerPart {
			part := snapshot[at:min(at+ledgerPart, len(snapshot))]
			if err := j.Begin(w, verbs.ItemBytes(len(part))); err != nil {
				return 0, err
			}
			last = j.LedgerPart(at, part)
			j.Done()
			if err := waitForCopy(f, w, last); err != nil {
				return 0, err
			}
		}
		done := false
		accounts.Read(func(*ledger.Ledger) {
			head, tail := common(snapshot, s.mirrored.last)
			data, fit := verbs.AppendEdits(nil, snapshot[head:len(snapshot)-tail], s.mirrored.last[head:len(s.mirrored.last)-tail], verbs.MaxItem)
			if !fit {
				return // it is sent anew
			}
			if err = j.BeginNow(verbs.ItemBytes(len(data))); err != nil {
				return
			}
			last, done = j.LedgerWhole(head, tail, data), true
			j.Done()
		})
		if done || err != nil {
			return last, err
		}
	}
	return 0, fmt.Errorf("send the ledger to a copy: more than %d bytes of it changed meanwhile, %d times", verbs.MaxItem, ledgerTries)
}
