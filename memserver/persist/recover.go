package persist

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// ErrMayLack is returned when the machine stopped, or its disk failed, and changes of its last
// moments may not have been on disk, although they were acknowledged: a Store was not to sync them
// (Soon, Off).
var ErrMayLack = errors.New("the machine stopped or its disk failed, and changes that were acknowledged in its last moments may not be on disk")

// lackError is why a directory is not opened for what it may lack; nil if it is. h is the head of
// its last log, lacking says that its disk failed, and clean that the log has an orderly end.
func (s *Store) lackError(h *head, lacking, clean bool) error {
	known := h.boot == s.options.Boot && h.boot != [16]byte{}
	if lacks := lacking || Sync(h.number) != Always && !clean && !known; !lacks || s.options.AcceptLoss {
		return nil
	}
	return fmt.Errorf("%w (persistence was %v): an index on this memory server alone is as it was a moment before, and one on several may not fit together. "+
		"Stop all its compute servers, then start this server once with --persist-accept-loss; or restore a backup", ErrMayLack, Sync(h.number))
}

// MayLack returns ErrMayLack if Recover will, as far as both ends of the last log say, which are
// all that is read. Any other error says that Recover will not succeed.
func (s *Store) MayLack() error {
	names, err := s.fs.List()
	if err != nil {
		return fmt.Errorf("persistent memory: %w", err)
	}
	last, found := uint64(0), false
	for _, name := range names {
		if at, ok := numberOf(name, logName); ok {
			last, found = max(last, at), true
		}
	}
	if !found {
		return fmt.Errorf("persistent memory: there is no log: %s", noUse)
	}
	f, h, err := s.openPart(numbered(logName, last), magicLog)
	if err != nil {
		return fmt.Errorf("persistent memory: %w", err)
	}
	clean, err := s.isClean(f)
	if err = errors.Join(err, f.Close()); err == nil {
		err = s.lackError(&h, slices.Contains(names, lacksName), clean)
	}
	return err
}

// isClean reports whether a log has an orderly end.
func (s *Store) isClean(f File) (bool, error) {
	size, err := f.Size()
	if err != nil || size < headBytes+partHead {
		return false, err
	}
	b := make([]byte, partHead)
	if n, err := f.ReadAt(b, size-partHead); n < len(b) {
		return false, err
	}
	p, ok := decodePart(b, &s.set)
	return ok && p.kind == kindFrame && p.bytes == 0, nil
}

// recovery is the reading of a directory.
type recovery struct {
	*Store
	replica *verbs.Replica
	ending  ending
	end     uint64 // of what is applied
	stream  []byte // behind that
	claims  uint64 // the last frame says that all before was on disk
	tail    []frame
	clean   bool
	lacking bool // the disk failed
}

// frame is a frame of the last log that may not be on disk.
type frame struct {
	end    uint64
	offset int64
}

// Recover makes the replica what the directory has: its memory, which is all zero, and its ledger;
// without a ledger nothing was ever stored. After an error the replica is not to be used.
func (s *Store) Recover(r *verbs.Replica) error {
	v := &recovery{Store: s, replica: r}
	if err := v.run(); err != nil {
		return fmt.Errorf("recover persistent memory: %w", err)
	}
	s.end = v.end
	return nil
}

func (v *recovery) run() error {
	names, err := v.fs.List()
	if err != nil {
		return err
	}
	var logs, checkpoints []uint64
	for _, name := range names {
		if at, ok := numberOf(name, logName); ok {
			logs = append(logs, at)
		}
		if n, ok := numberOf(name, checkpointName); ok {
			checkpoints = append(checkpoints, n)
		}
	}
	v.lacking = slices.Contains(names, lacksName)
	slices.Sort(logs)
	if len(checkpoints) == 0 {
		return fmt.Errorf("there is no checkpoint: %s", noUse)
	}
	if err := v.checkpoint(slices.Max(checkpoints)); err != nil {
		return err
	}
	first := slices.Index(logs, v.end)
	if first < 0 {
		return fmt.Errorf("file %q is missing: %s", numbered(logName, v.end), noUse)
	}
	logs = logs[first:]
	for i, at := range logs {
		next := uint64(0)
		if i+1 < len(logs) {
			next = logs[i+1]
		}
		if err := v.log(at, next); err != nil {
			return err
		}
	}
	if v.end < v.ending.needs {
		return fmt.Errorf("the log ends at %d, and the checkpoint needs it up to %d: %s", v.end, v.ending.needs, noUse)
	}
	if !v.replica.Known {
		return fmt.Errorf("it is of a copy that did not get the whole memory: %s", noUse)
	}
	v.Store.clean(v.Store.start.Load())
	if v.lacking { // and somebody accepted it
		return v.fs.Remove(lacksName)
	}
	return nil
}

// checkpoint reads a checkpoint.
func (v *recovery) checkpoint(number uint64) error {
	name := numbered(checkpointName, number)
	f, h, err := v.openPart(name, magicCheckpoint)
	if err != nil {
		return err
	}
	if h.number != number {
		err = errors.New("it has another number")
	} else {
		err = v.records(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return damaged(name, err)
	}
	v.end, v.number = h.position, number
	v.start.Store(h.position)
	return nil
}

func (v *recovery) records(f File) error {
	in := &reader{file: f, at: headBytes}
	r := v.replica
	for pieces, ledger := uint64(0), uint64(0); ; {
		p, data, err := v.next(in)
		if err != nil {
			return err
		}
		switch {
		case p.kind == kindPiece && p.at+uint64(p.bytes) <= uint64(len(r.Memory)) && p.at <= uint64(len(r.Memory)):
			pieces++
			if err := r.Put(p.at, data); err != nil {
				return err
			}
		case p.kind == kindLedger && p.at == ledger:
			ledger += uint64(len(data))
			r.Ledger = append(r.Ledger, data...)
		case (p.kind == kindEnd || p.kind == kindPart) && p.bytes == endingBytes:
			v.ending = decodeEnding(p.kind, data)
			r.Known = !v.ending.part
			if v.ending.pieces != pieces || v.ending.ledger != ledger {
				return fmt.Errorf("it has %d pieces and %d bytes of the ledger of %d and %d", pieces, ledger, v.ending.pieces, v.ending.ledger)
			}
			return nil
		default:
			return fmt.Errorf("it has a record that does not belong there, before byte %d", in.at)
		}
	}
}

var errDamaged = errors.New("a checksum is wrong, or it ends too early")

// next reads a record or a frame; errDamaged: there is none, and the reader stays.
func (v *recovery) next(in *reader) (part, []byte, error) {
	b, err := in.peek(partHead)
	if err != nil {
		return part{}, nil, err
	}
	if len(b) < partHead {
		return part{}, nil, errDamaged
	}
	p, ok := decodePart(b, &v.set)
	if !ok {
		return part{}, nil, errDamaged
	}
	if b, err = in.peek(partHead + p.bytes); err != nil {
		return part{}, nil, err
	}
	if len(b) < partHead+p.bytes || verbs.Sum(b[partHead:][:p.bytes]) != p.sum {
		return part{}, nil, errDamaged
	}
	in.at += int64(partHead + p.bytes)
	return p, b[partHead:][:p.bytes], nil
}

// log reads the log that begins at a position, up to where the next one begins; 0 = it is the last.
func (v *recovery) log(at, next uint64) error {
	name := numbered(logName, at)
	f, h, err := v.openPart(name, magicLog)
	if err != nil {
		return err
	}
	if h.position != at || v.end != at || len(v.stream) > 0 {
		err = fmt.Errorf("it begins at %d, and what comes before ends at %d", h.position, v.end+uint64(len(v.stream)))
	} else {
		err = v.frames(f, at, next)
	}
	if err != nil {
		err = damaged(name, err)
	} else if next == 0 {
		err = v.rewrite(f, &h)
	}
	return errors.Join(err, f.Close())
}

// frames applies the frames of a log.
func (v *recovery) frames(f File, at, next uint64) error {
	in := &reader{file: f, at: headBytes}
	for next == 0 || at < next {
		offset := in.at
		p, data, err := v.next(in)
		if err == nil && (p.kind != kindFrame || p.at != at || p.bytes%8 != 0 || v.clean || p.known > at) {
			in.at, err = offset, errDamaged
		}
		if errors.Is(err, errDamaged) {
			if next != 0 {
				return fmt.Errorf("it ends at %d, and the next one begins at %d: %w", at, next, err)
			}
			return v.findTorn(f, offset, at)
		}
		if err != nil {
			return err
		}
		v.claims = p.known
		v.clean = p.bytes == 0
		if next != 0 {
			data = data[:min(uint64(len(data)), next-at)]
		}
		at += uint64(len(data))
		if next == 0 {
			v.tail = append(v.tail, frame{at, offset})
			for len(v.tail) > 0 && v.tail[0].end <= v.claims {
				v.tail = v.tail[1:]
			}
		}
		if err := v.apply(data); err != nil {
			return err
		}
		v.clean = v.clean && next == 0
	}
	return nil
}

// findTorn looks for a frame that says that what lies behind a position was on disk.
func (v *recovery) findTorn(f File, offset int64, at uint64) error {
	in := &reader{file: f, at: offset}
	for ; ; in.at += 8 {
		b, err := in.peek(partHead)
		if err != nil {
			return err
		}
		if len(b) < partHead {
			return nil
		}
		if p, ok := decodePart(b, &v.set); ok && p.kind == kindFrame && p.known > at {
			return fmt.Errorf("it can be read up to position %d only, byte %d, and had more on disk, up to %d at least: the disk has lost that", at, offset, p.known)
		}
	}
}

// apply applies the items of a part of the stream.
func (v *recovery) apply(data []byte) error {
	v.stream = append(v.stream, data...)
	done := 0
	for {
		i, n, err := verbs.NextItem(v.stream[done:], uint64(len(v.replica.Memory)))
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		done += n
		v.end += uint64(n)
		switch i.Kind {
		case verbs.ItemData, verbs.ItemZeros:
			err = v.replica.Apply(&i)
		case verbs.ItemLedger, verbs.ItemLedgerPart, verbs.ItemLedgerWhole:
			if v.end > v.ending.of {
				err = v.replica.Apply(&i)
			}
		}
		if err != nil {
			return err
		}
	}
	v.stream = v.stream[:copy(v.stream, v.stream[done:])]
	return nil
}

// rewrite writes what may not be on disk of the last log once more, in place, and checks whether
// there should be more of it.
func (v *recovery) rewrite(f File, h *head) error {
	v.stream = v.stream[:0] // an item that is not whole
	if err := v.lackError(h, v.lacking, v.clean); err != nil {
		return err
	}
	if len(v.tail) == 0 {
		return nil
	}
	from, last := v.tail[0].offset, v.tail[len(v.tail)-1]
	in := &reader{file: f, at: last.offset}
	p, _, err := v.next(in)
	if err != nil {
		return err
	}
	for end := last.offset + int64(partHead+p.bytes); from < end; {
		b := make([]byte, min(end-from, maxFrame))
		if n, err := f.ReadAt(b, from); n < len(b) {
			return err
		}
		if _, err := f.WriteAt(b, from); err != nil {
			return err
		}
		from += int64(len(b))
	}
	return f.Sync()
}

// reader reads a file from front to back.
type reader struct {
	file File
	at   int64 // moved by who reads
	buf  []byte
	from int64 // of buf
}

const readBytes = 2 << 20

// peek returns n bytes at the reader's place, or as many as there are.
func (r *reader) peek(n int) ([]byte, error) {
	if skip := r.at - r.from; skip < 0 || skip+int64(n) > int64(len(r.buf)) {
		if cap(r.buf) == 0 {
			size, err := r.file.Size()
			if err != nil {
				return nil, err
			}
			r.buf = make([]byte, 0, min(readBytes, size))
		}
		got, err := r.file.ReadAt(r.buf[:cap(r.buf)], r.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		r.buf, r.from = r.buf[:got], r.at
	}
	rest := r.buf[r.at-r.from:]
	return rest[:min(n, len(rest))], nil
}
