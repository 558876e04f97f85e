package dolphin

import (
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
)

// How the records of a locked leaf change.
//
// A cell gets another value or reference where that has room, and where one WRITE of it takes
// effect as a whole whoever dies (Pool.WholeAlways). Else the key gets another record. So a cell of
// a record that is alive is without its sum only while a WRITE of it is under way: a reader READs
// the leaf again, and whoever holds the lock word finds cells at rest. For the same reason a record
// whose WRITE can be cut short has its cell before its state word.
//
// A reader gets words of one READ in any order. It answers with a cell of the last record of its
// key that it sees, if that is alive. Let v be what the cell says: the sum shows that the cell had
// v at some moment of the READ.
//
//   - The record was alive then, and no later one counted: v was the key's value.
//   - It was not alive yet. The cell of such a record was not changed before: v was the value when
//     the record became alive, which the READ has seen.
//   - It was not alive any more, or a later one counted. The cell has not changed since it ceased
//     to count, and v was the value until then. That was within the READ: else it would have seen
//     the state word dead, or the later record. A later record whose cell was seen in part is seen,
//     so the leaf is READ again, and the record before it is no answer.
//
// The block of a reference is not used again before the operation ends that READ the reference. It
// is marked dead behind the WRITE that takes its reference out of the cell.

// put gives key a value in the locked leaf, and releases the lock. f is what the leaf says of key.
// done is false if there was no room: other leaves have taken the place of this one, and the lock
// is released.
func (s *Session) put(key, value []byte, tag uint64, f *found) (done bool, err error) {
	l := &s.leaf
	n, long := len(value), s.lay.InBlock(len(value))
	if long {
		n = item.ReferenceBytes
	}
	takes := f.is && s.canOverwrite(f, n)
	switch needs := s.lay.recordSize(len(key), n); {
	case takes:
	case s.inPlace != nil && (l.forward() == shut && !s.shuts || !l.hasRoom(f.end, needs)):
		return true, s.Unlock(s.inPlace)
	case !l.hasRoom(f.end, needs):
		return s.replace(key, needs, &changeOf{tag: tag, value: value, found: *f})
	}
	if f.is {
		s.takeOut(f)
	}
	if long {
		e, err := s.Blocks.PutEntry(s.entry, key, value, l.at)
		s.t.NoteMemory(err)
		if err != nil {
			s.Blocks.Forget()
			return true, s.Unlock(err)
		}
		value = s.lay.ValueOf(e)
	}
	if takes {
		s.putInPlace(f, value, long)
		return true, s.publish()
	}
	_, end := l.put(f.end, key, tag, value, long)
	s.writeRecords(f.end, end)
	if f.is {
		s.setState(f, moved)
	}
	return true, s.publish()
}

// canOverwrite reports whether n bytes of a value, or of a reference, may be WRITTEN over the value
// of f, which is alive in the locked leaf.
func (s *Session) canOverwrite(f *found, n int) bool {
	if s.lay.words {
		return f.w.room() == n
	}
	n += cellHead
	return n <= f.w.room()*wordBytes && n <= s.t.Pool.WholeAlways(s.leaf.at)
}

// putInPlace queues the WRITE of another value of f.
func (s *Session) putInPlace(f *found, value []byte, long bool) {
	if s.lay.words {
		s.leaf.putWord(f.n, value)
		s.writeAt(s.leaf.valueWord(f.n), wordBytes)
		return
	}
	s.leaf.putCell(f.cursor, f.w, value, long)
	s.writeAt(s.leaf.cellAt(f.cursor, f.w), cellHead+len(value))
}

// writeRecords queues the WRITEs of the records from first to end, which are new in the locked
// leaf, and of their values. A cell is there before its state word if a WRITE of both can be cut
// short.
func (s *Session) writeRecords(first, end cursor) {
	l := &s.leaf
	switch {
	case first == end:
	case s.lay.words:
		at := l.valueWord(end.n - 1)
		s.writeAt(at, l.valueWord(first.n)+wordBytes-at)
		s.writeAt(first.at, end.at-first.at)
	case end.at-first.at <= s.t.Pool.WholeAlways(l.at):
		s.writeAt(first.at, end.at-first.at)
	default:
		for c := first; c != end; {
			next := l.next(c, stateWord(l.word(c.at)))
			s.writeAt(c.at+wordBytes, next.at-c.at-wordBytes)
			s.writeAt(c.at, wordBytes)
			c = next
		}
	}
}

// remove takes the key of f out of the locked leaf, and releases the lock.
func (s *Session) remove(f *found) error {
	s.takeOut(f)
	s.setState(f, dead)
	return s.publish()
}

// takeOut notes that the value of f, which is alive in the locked leaf, goes: its block, if it has
// one, is given back when the change is made.
func (s *Session) takeOut(f *found) {
	if v, long, _ := s.leaf.value(f.cursor, f.w); long {
		r := blocks.Decode(v)
		s.Blocks.Replace(r.PutEntry(&s.lay.Codec, s.entry, s.leaf.key(f.cursor, f.w)))
	}
}

// setState queues the WRITE of another state of f.
func (s *Session) setState(f *found, state int) {
	s.leaf.setWord(f.at, uint64(f.w.withState(state)))
	s.writeAt(f.at, wordBytes)
}

// writeAt queues the WRITE of n bytes of the locked leaf.
func (s *Session) writeAt(at, n int) {
	s.PS.Write(pool.Shared, s.leaf.at+pool.Addr(at), s.leaf.b[at:at+n])
}

// publish posts what is queued with the release of the lock word.
func (s *Session) publish() error {
	s.openAgain()
	if err := s.Blocks.Publish(s.leaf.at); err != nil {
		s.Blocks.Discard()
		return err
	}
	return nil
}
