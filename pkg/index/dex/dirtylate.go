package dex

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// Frames that got the values of unwritten entries (entrychange.go) have records that may be older
// than those of the frames in the queue. They stand in a heap by their first one. As in the queue,
// an element that does not match its frame any more counts for nothing.

// hold puts f, whose lock the caller holds, among the dirty frames: it lacks nothing from position
// on. Under mu.
func (d *dirty) hold(f *frame, position uint64) {
	if first := f.first.Load(); first != 0 && first <= position {
		return
	}
	f.first.Store(position)
	d.trimLate()
	if len(d.late) > 2*len(d.x.cache.frames) {
		d.sweepLate()
	}
	d.pushLate(entry{f, position})
}

// absorb has f, whose lock the caller holds, answer for the record at position in the place of the
// entry.
func (d *dirty) absorb(f *frame, position uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hold(f, position)
	d.parts[d.part(position)]--
	d.unwritten.Add(-1)
	d.changes.absorbed++
}

func (d *dirty) pushLate(e entry) {
	h := append(d.late, e)
	for i := len(h) - 1; i > 0 && h[i].first < h[(i-1)/2].first; i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
	d.late = h
}

func (d *dirty) popLate() entry {
	h := d.late
	top, n := h[0], len(h)-1
	h[0] = h[n]
	h[n] = entry{}
	d.late = h[:n]
	d.sink(0)
	return top
}

func (d *dirty) sink(i int) {
	for h := d.late; ; {
		k := 2*i + 1
		if k+1 < len(h) && h[k+1].first < h[k].first {
			k++
		}
		if k >= len(h) || h[i].first <= h[k].first {
			return
		}
		h[i], h[k] = h[k], h[i]
		i = k
	}
}

// trimLate drops outdated elements at the top.
func (d *dirty) trimLate() {
	for len(d.late) > 0 && d.late[0].f.first.Load() != d.late[0].first {
		d.popLate()
	}
}

// sweepLate drops all outdated elements.
func (d *dirty) sweepLate() {
	n := 0
	for _, e := range d.late {
		if e.f.first.Load() == e.first {
			d.late[n] = e
			n++
		}
	}
	clear(d.late[n:])
	d.late = d.late[:n]
	for i := n/2 - 1; i >= 0; i-- {
		d.sink(i)
	}
}

// someLate appends the frames to fs whose first record is older than oldest, the oldest first, as
// many as fs has room for.
func (d *dirty) someLate(fs []*frame, oldest uint64) []*frame {
	from := len(fs)
	for len(d.late) > 0 && d.late[0].first < oldest && len(fs) < cap(fs) {
		if e := d.popLate(); e.f.first.Load() == e.first {
			fs = append(fs, e.f)
		}
	}
	for _, f := range fs[from:] {
		// it may be clean by now, and the element is outdated then
		if first := f.first.Load(); first != 0 {
			d.pushLate(entry{f, first})
		}
	}
	return fs
}

// entryPositions counts the positions of unwritten entries by the part of the ring that they lie
// in. Guarded by dirty.mu but for unwritten.
type entryPositions struct {
	parts     [2 * ringParts]int
	partBytes uint64
	unwritten atomic.Int64 // entries

	mostUnwritten int64

	// the last record that took the place of an earlier one of its entry; and how far the log may
	// be truncated once it is durable up to guard
	superseding  uint64
	bound, guard uint64

	changes entryCounts
}

// entryCounts counts for tests: changes of entries, those of them that took the place of an earlier
// one, and values that frames got.
type entryCounts struct{ changed, superseded, absorbed int }

// ringParts is how many parts a ring has. The positions of unwritten entries span one ring at most.
const ringParts = 64

func (d *entryPositions) start(ring uint64) {
	d.partBytes = max(1, (ring+ringParts-1)/ringParts)
	d.mostUnwritten = int64(max(1, ring/mostUnwritten))
}

func (d *entryPositions) part(position uint64) int {
	return int(position / d.partBytes % (2 * ringParts))
}

// appendEntry appends the record of a change of an entry, whose last record before is at position
// before; 0 = the leaf has its value. The caller has the lock of the entry's bucket, so it waits
// for nothing: redo.ErrBusy, or redo.ErrFull, if it would have to.
func (d *dirty) appendEntry(a *redo.Appender, record []byte, before uint64) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	position, err := a.TryAppend(record, 0)
	if err != nil {
		return 0, err
	}
	d.parts[d.part(position)]++
	d.changes.changed++
	if before == 0 {
		d.unwritten.Add(1)
	} else {
		d.parts[d.part(before)]--
		d.superseding = position
		d.changes.superseded++
	}
	return position, nil
}

// lastSuperseding is the position of the last record that took the place of an earlier one, which
// stays until this one is durable.
func (d *dirty) lastSuperseding() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.superseding
}

// release returns how far the log may be truncated, if that is upTo at most by the dirty frames.
// The last record of an entry may not be durable yet. If it was lost, the one before it would
// have to be there. So what was found is used when all records of that moment are durable. 0 =
// not at all.
func (d *dirty) release(upTo, durable uint64) uint64 {
	if d.unwritten.Load() > 0 {
		// all that has a position is not older than the oldest part of the ring in use
		from := d.x.log.Tail() / d.partBytes
		for i := range uint64(2 * ringParts) {
			if d.parts[(from+i)%(2*ringParts)] > 0 {
				upTo = min(upTo, max(1, (from+i)*d.partBytes)-1)
				break
			}
		}
	}
	if d.superseding <= durable {
		d.bound, d.guard = 0, 0
		return upTo
	}
	released := uint64(0)
	if d.guard != 0 && d.guard <= durable {
		released, d.guard = d.bound, 0
	}
	if d.guard == 0 {
		d.bound, d.guard = upTo, d.superseding
	}
	return released
}
