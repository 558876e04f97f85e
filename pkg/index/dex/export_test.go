package dex

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/wal"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// LogOnly logs changes of keys that this client has taken, and makes them nowhere else; a nil value
// deletes. When it returns, the log is durable: so it is what a client leaves that dies before it
// has written leaves back, or in the middle of the structure changes that need room for them.
// Values are short.
func LogOnly(i index.Index, keys, values [][]byte) error {
	x := i.(*dex)
	log, r := x.log.Appender(), x.ranges.Load()
	position := uint64(0)
	for n, key := range keys {
		op := byte(record.Put)
		if values[n] == nil {
			op = record.Delete
		}
		record := record.Append(nil, op, r.Span(r.At(key)).Epoch, key, values[n])
		var err error
		if n == 0 { // so that the log is not truncated beyond it: no frame has these changes
			p := new(wal.Pending)
			err = x.wal.Begin(log, p, record)
			position = p.LSN()
		} else {
			position, err = log.Append(record)
		}
		if err != nil {
			return err
		}
	}
	return log.Wait(position, index.DefaultLimit)
}

// Records is how many records this client's log has had.
func Records(i index.Index) uint64 { return i.(*dex).log.Counts().Records }

// Forget writes the leaf at a back and drops its frame.
func Forget(i index.Index, a pool.Addr) error {
	x := i.(*dex)
	s, err := x.newSession()
	if err != nil {
		return err
	}
	s.b.Begin()
	if f := x.cache.Find(a); f != nil {
		err = s.forget(f, ranges.Of(ranges.Span{Start: []byte{}}))
	}
	s.b.End()
	return errors.Join(err, s.Close())
}

// Framed reports whether the leaf at a has a frame.
func Framed(i index.Index, a pool.Addr) bool { return i.(*dex).cache.Find(a) != nil }

// CollectAt lets i give back what it finds where the log of other is, as if that had been listed
// among the nodes of i.
func CollectAt(i, other index.Index) error {
	given, _, err := redo.CollectFrom(i.(*dex).pool, logRings(i.(*dex).pool), []pool.Addr{other.(*dex).log.Ref().Addr})
	if err == nil && given > 0 {
		err = errors.New("the log of a client that lives was given back")
	}
	return err
}

// DivideShards says for caches that are made from now on from how many frames on a shard is divided
// in two, and how many frames share a time of departure. It returns what they were.
func DivideShards(frames, share int) (int, int) {
	f, s := shardFrames, departedShare
	shardFrames, departedShare = frames, share
	return f, s
}

// LogUse is how many bytes of its log a client uses, and how many there are.
func LogUse(i index.Index) (used, all uint64) {
	x := i.(*dex)
	return x.log.Used(), uint64(x.log.Ref().Bytes)
}

// WrittenForLog is how many leaves a client has written back to make room in its log, and the round
// trips for that.
func WrittenForLog(i index.Index) (leaves int, trips uint64) {
	w := &i.(*dex).cleaner
	c := w.many.ps.Counters()
	return w.many.written, c.RoundTrips
}

// Beside counts the records that a client appended before it READ their leaf: those whose change
// was made, those whose change was refused, and those that were cancelled, refused or not.
func Beside(i index.Index) (made, refused, cancelled int) {
	c := i.(*dex).wal.Stats()
	return int(c.Made), int(c.Refused), int(c.Cancelled)
}

// HasRecordBeside reports whether a session has a record that was appended before its change.
func HasRecordBeside(s index.Session) bool { return s.(*counted).pending.LSN() != 0 }

// AlwaysLooks has all batches of sessions that met leaves without room look for some. The result
// undoes that.
func AlwaysLooks() (undo func()) {
	was := seldom
	seldom = false
	return func() { seldom = was }
}

// Grown counts leaves that were divided beforehand, those that became three or more at once, and
// new ones that stayed empty and were merged.
func Grown(i index.Index) (divided, many, tidied int) {
	g := &i.(*dex).presplits
	return int(g.divided.Load()), int(g.many.Load()), int(g.tidied.Load())
}

// Batches is how many batches of the log a client has posted.
func Batches(i index.Index) int { return int(i.(*dex).log.Counts().Batches) }

// LogConditions logs puts of keys that this client has taken as they are logged before their leaf
// is READ: each has an effect only if the key is not there, or only if it is. Nothing else happens.
// When it returns, the log is durable.
func LogConditions(i index.Index, keys, values [][]byte, absent []bool) error {
	x := i.(*dex)
	log, r := x.log.Appender(), x.ranges.Load()
	position := uint64(0)
	for n, key := range keys {
		op := byte(record.PutIfPresent)
		if absent[n] {
			op = record.PutIfAbsent
		}
		var err error
		if position, err = log.Append(record.Append(nil, op, r.Span(r.At(key)).Epoch, key, values[n])); err != nil {
			return err
		}
	}
	return log.Wait(position, index.DefaultLimit)
}

// InLog reports whether a lies in the ring of this client's log.
func InLog(i index.Index, a pool.Addr) bool {
	r := i.(*dex).log.Ref()
	return a > r.Addr+64 && a < r.Addr+pool.Addr(redo.NodeBytes(int(r.Bytes)))
}

// MostlyEntries makes half of the caches that are made from now on entries, lets them have few
// frames, and lets the share wander. The result undoes that.
func MostlyEntries() (undo func()) {
	was := initial
	initial.EntryShare, initial.LeastFrames, initial.FewFrames, initial.Wanders = 2, 3, 0, true
	return func() { initial = was }
}

// Resized is how often the number of buckets of entries changed.
func Resized(i index.Index) int { return i.(*dex).rows.Resized() }

// Unmixed counts mixed slots that replays of a client found: in leaves of its range, and in those
// that it mended under their locks.
func Unmixed(i index.Index) (within, locked int) {
	u := &i.(*dex).torn
	return int(u.within.Load()), int(u.locked.Load())
}

// WriteBack writes all leaves of a client back.
func WriteBack(i index.Index) error { return i.(*dex).flushAll(false) }

// Alive is an error once a client was given up.
func Alive(i index.Index) error { return i.(*dex).pool.Alive() }

// LayoutOf is what the bytes of an index depend on.
func LayoutOf(i index.Index) *fence.Layout { return i.(*dex).lay }

// LogLater logs a record of a kind that a later version may have. When it returns, the log is
// durable, and it is never truncated.
func LogLater(i index.Index) error {
	x := i.(*dex)
	p, log := new(wal.Pending), x.log.Appender()
	if err := x.wal.Begin(log, p, record.Append(nil, record.Group+1, 1, []byte("later"), nil)); err != nil {
		return err
	}
	return log.Wait(p.LSN(), index.DefaultLimit)
}

// foundFrame is the frame of the leaf to which inner nodes lead with key; nil if it has none.
func (s *session) foundFrame(key []byte) (f *frame.Frame, leaf pool.Addr, err error) {
	s.together()
	s.locate([][]byte{key})
	f, leaf, _, err = s.frameOf(0, key)
	return f, leaf, err
}
