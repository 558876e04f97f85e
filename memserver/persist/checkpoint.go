package persist

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Source is what a checkpoint is made of.
type Source interface {
	// Last is a position where an item ends: all changes before it are recorded, and the last of
	// them may not be made yet.
	Last() verbs.Position
	// Flush returns when the log has what lies up to a position.
	Flush(verbs.Position) error
	// Pieces calls f with pieces of the recorded memory, of at most 64 KiB, until f returns false.
	// Those that it leaves out were zero at some time since it was called.
	Pieces(f func(at, n uint64) bool)
	// Copy copies memory while nothing changes it, and returns the position at which that was: all
	// changes before it are in the memory.
	Copy(at uint64, b []byte) (verbs.Position, error)
	// Ledger appends the ledger, and returns a position: it has all changes before, and none after.
	// known is false for a copy that has a part of it (verbs.Replica).
	Ledger(b []byte) (all []byte, at verbs.Position, known bool)
}

const (
	checkpointLook = 20 * time.Millisecond
	checkpointWait = time.Second // after one that failed
	syncEvery      = 8 << 20
)

// RunCheckpoints makes checkpoints whenever the log has become long, until Stop.
func (s *Store) RunCheckpoints(from Source) {
	for !s.stopped.Load() && s.Err() == nil {
		s.env.Sleep(checkpointLook)
		if s.at.Load()-s.start.Load() < s.options.CheckpointBytes {
			continue
		}
		if err := s.Checkpoint(from); err != nil && !s.stopped.Load() && s.Err() == nil {
			s.report(fmt.Errorf("make a checkpoint of persistent memory, which is tried again: %w", err))
			s.env.Sleep(checkpointWait)
		}
	}
}

// Checkpoint makes a checkpoint. After an error the one before counts.
func (s *Store) Checkpoint(from Source) error {
	x, err := s.turnAt(from)
	if err != nil {
		return err
	}
	name := numbered(checkpointName, s.number+1)
	f, err := s.fs.Create(name + newSuffix)
	if err != nil {
		return err
	}
	w := &checkpoint{store: s, file: f}
	if err = w.write(from, x); err == nil {
		err = s.name(f, name)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = s.fs.Remove(name + newSuffix) // the next start removes it
		return err
	}
	s.number++
	s.start.Store(x)
	s.clean(x)
	return nil
}

// clean removes what lies before a checkpoint that begins at x. What cannot be removed now is
// removed behind the next checkpoint.
func (s *Store) clean(x uint64) {
	names, err := s.fs.List()
	for _, name := range names {
		at, log := numberOf(name, logName)
		n, checkpoint := numberOf(name, checkpointName)
		if log && at < x || checkpoint && n < s.number {
			err = errors.Join(err, s.fs.Remove(name))
		}
	}
	if err != nil {
		s.report(fmt.Errorf("remove files of persistent memory that are not needed any more, which the next checkpoint does: %w", err))
	}
}

// turnAt lets the log go on in another file, and returns from where on.
func (s *Store) turnAt(from Source) (uint64, error) {
	s.mu.Lock()
	x := s.base + uint64(from.Last())
	s.turn = turn{wanted: true, at: x}
	switch {
	case s.log.Load() == nil:
		s.turn = turn{err: s.Err()}
	case s.log.Load().start == x:
		s.turn = turn{}
	case s.at.Load() == x:
		s.turnLocked()
	}
	s.mu.Unlock()
	s.needed.Store(x)
	err := from.Flush(verbs.Position(x - s.base))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.turn.wanted {
		err = errors.New("the log did not come so far")
	}
	s.turn.wanted = false
	return x, errors.Join(err, s.turn.err)
}

// checkpoint is one that is written.
type checkpoint struct {
	store  *Store
	file   File
	buf    []byte
	offset int64
	synced int64
	ending ending
}

// ending is the data of the last record of a checkpoint.
type ending struct {
	pieces, ledger uint64 // how many there are, and bytes
	of             uint64 // the position of the ledger
	needs          uint64 // the log is needed up to here
	part           bool   // the ledger is not whole
}

const endingBytes = 32

func (e *ending) append(b []byte, set *[16]byte) []byte {
	data := make([]byte, 0, endingBytes)
	for _, n := range []uint64{e.pieces, e.ledger, e.of, e.needs} {
		data = binary.LittleEndian.AppendUint64(data, n)
	}
	kind := kindEnd
	if e.part {
		kind = kindPart
	}
	return appendPart(b, kind, 0, data, set)
}

func decodeEnding(kind uint32, b []byte) (e ending) {
	u := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	return ending{u(0), u(8), u(16), u(24), kind == kindPart}
}

// appendPart appends a record of a checkpoint.
func appendPart(b []byte, kind uint32, at uint64, data []byte, set *[16]byte) []byte {
	from := len(b)
	b = append(b, make([]byte, partHead)...)
	p := part{kind: kind, bytes: len(data), at: at, sum: verbs.Sum(data)}
	p.put(b[from:], set)
	return append(b, data...)
}

func (w *checkpoint) write(from Source, x uint64) (err error) {
	s := w.store
	h := head{set: s.set, position: x, number: s.number + 1, boot: s.options.Boot, volume: s.volume}
	w.buf = h.append(make([]byte, 0, maxFrame+2*(pieceBytes+partHead)), magicCheckpoint)
	w.ending.needs = x
	// An item is recorded before its change is made. Behind this Copy all changes before x are in
	// the memory, so a piece that Pieces leaves out lacks none of them: log.x does not have them.
	if _, err := from.Copy(0, nil); err != nil {
		return err
	}
	piece := make([]byte, pieceBytes)
	from.Pieces(func(at, n uint64) bool {
		if s.stopped.Load() {
			err = verbs.ErrClosed
			return false
		}
		var p verbs.Position
		if p, err = from.Copy(at, piece[:n]); err != nil {
			return false
		}
		w.ending.needs = max(w.ending.needs, s.base+uint64(p))
		w.ending.pieces++
		w.buf = appendPart(w.buf, kindPiece, at, piece[:n], &s.set)
		err = w.flush(maxFrame)
		return err == nil
	})
	if err != nil {
		return err
	}
	ledger, p, known := from.Ledger(nil)
	w.ending.part = !known
	w.ending.of = s.base + uint64(p)
	w.ending.needs = max(w.ending.needs, w.ending.of)
	w.ending.ledger = uint64(len(ledger))
	for at := 0; at < len(ledger); at += pieceBytes {
		w.buf = appendPart(w.buf, kindLedger, uint64(at), ledger[at:min(at+pieceBytes, len(ledger))], &s.set)
		if err := w.flush(maxFrame); err != nil {
			return err
		}
	}
	w.buf = w.ending.append(w.buf, &s.set)
	if err := w.flush(0); err != nil {
		return err
	}
	s.needed.Store(w.ending.needs)
	if err := from.Flush(verbs.Position(w.ending.needs - s.base)); err != nil {
		return err
	}
	if s.synced.Load() < w.ending.needs {
		return s.Flush()
	}
	return nil
}

// flush writes what there is, if that is more than so many bytes. It syncs now and then, so that
// the log's syncs do not stand behind a whole checkpoint.
func (w *checkpoint) flush(most int) error {
	if len(w.buf) <= most {
		return nil
	}
	if _, err := w.file.WriteAt(w.buf, w.offset); err != nil {
		return err
	}
	w.offset += int64(len(w.buf))
	w.buf = w.buf[:0]
	if w.offset-w.synced < syncEvery {
		return nil
	}
	w.synced = w.offset
	return w.file.Sync()
}
