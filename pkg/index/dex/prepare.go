package dex

import (
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// A change waits for a memory server if its leaf has no frame, or if the frame has no room for it
// before it is written back. Changes that come together would wait one after the other. Prepare
// does for all of them what each would have to do first, side by side:
//
//	1  notes each frame without room
//	2  waits until the log is durable up to the last record of these frames
//	3  locks them again, by an attempt: it waits for no frame. Frames that have records by now
//	   that are not durable are left out, as those that somebody else has written back
//	4  posts their WRITEs (frame.Queue), and the READs of leaves without a frame, together
//	5  marks the frames as clean, and unlocks them
//	6  makes each leaf that was READ the image of a frame, as the fetch of a change does
//
// Between 3 and 5 a frame is what it is during any flush: others see it locked, for one round trip.
// All its records are durable, as a flush requires. The lists of several leaves are independent of
// each other, and each leaf has the order of a flush. A leaf that was READ is used under the
// conditions of fetch.go, with the eviction clock from before its READ.
//
// To look for room in a frame takes its lock and some 0.3 us. On shared memory a write-back takes
// no longer. So a session measures how long a round trip takes, and looks for room if that pays.
// Where values keep their length there is always room: sessions that look in vain do so now and
// then.
//
// Everything that Prepare does could have happened without it, at that moment: a write-back and a
// fetch. So the changes, which look at everything again, need to know nothing of it, and if a frame
// is gone by then, or full again, they do what they always do.

// readiness is what a session prepares together.
type readiness struct {
	full   [mostTogether]fullFrame // that are to be written back
	n      int
	locked [mostTogether]*frame.Frame // of them
	flush  int
	keys   [mostTogether][]byte // of the leaves that are READ
	leaf   [mostTogether]pool.Addr
	since  [mostTogether]uint64
	read   int

	prepared prepared
	growth   growth
	located  located

	calls uint32        // of Prepare
	trip  time.Duration // that a round trip takes, about; 0 = not known
	vain  uint32        // calls in a row that looked for room, and found no frame without
	lack  bool          // this one has found one
	room  bool          // to look for room pays
}

// roomPays is how long a round trip takes at least if it pays to look for room.
const roomPays = 10 * time.Microsecond

// tripAgain is how many calls later a round trip is measured again that was short.
const tripAgain = 256

// vainLooks is how many calls in a row look for room in vain before only one of so many looks.
const vainLooks = 16

// looks reports whether a call looks for room.
func (w *readiness) looks() bool {
	pays := w.trip == 0 || w.trip >= roomPays || w.calls%tripAgain == 0
	return invariants.Enabled || pays && (w.vain < vainLooks || w.calls%vainLooks == 0)
}

// looked notes what a call found that looked.
func (w *readiness) looked() {
	switch {
	case w.lack:
		w.vain = 0
	case w.room && w.vain < vainLooks:
		w.vain++
	}
}

// measured notes how long a round trip took.
func (w *readiness) measured(trip time.Duration) {
	if w.trip == 0 {
		w.trip = trip
	}
	w.trip += (trip - w.trip) / 8
}

// fullFrame is a frame that had no room.
type fullFrame struct {
	f    *frame.Frame
	leaf pool.Addr
}

// Prepare implements index.Session.
func (s *session) Prepare(keys, values [][]byte) error {
	r := s.together()
	r.n, r.began, r.open = 0, false, false
	w := &r.ready
	w.calls++
	w.prepared.begin()
	w.lack, w.room = false, w.looks()
	defer w.looked()
	defer s.endRound()
	if err := s.tidyEmpty(); err != nil {
		return err
	}
	for first := 0; first < len(keys); first += mostPrepared {
		n := min(len(keys)-first, mostPrepared)
		if err := s.prepareMany(keys[first:first+n], values[first:first+n]); err != nil {
			return fmt.Errorf("prepare for changes: %w", err)
		}
	}
	return nil
}

// prepareMany prepares for mostPrepared changes at most: it makes room for them in leaves with
// frames (grow.go), then looks at each, and if that got some of their leaves frames it makes room
// in those.
func (s *session) prepareMany(keys, values [][]byte) error {
	s.locate(keys)
	err := s.grow(keys, values)
	s.endRound() // so that epochs wait for one round only
	read, together := 0, len(s.batch.buffers)
	for first := 0; first < len(keys) && err == nil; first += together {
		n := min(len(keys)-first, together)
		err = s.prepareSome(first, keys[first:first+n], values[first:first+n])
		read += s.batch.ready.read
		s.endRound()
	}
	if err == nil && read > 0 {
		err = s.grow(keys, values)
		s.endRound()
	}
	return err
}

// prepareSome prepares for as many changes as there are buffers, of those from first on.
func (s *session) prepareSome(first int, keys, values [][]byte) error {
	w := &s.batch.ready
	w.n, w.flush, w.read = 0, 0, 0
	for i, key := range keys {
		if s.x.lay.CheckPair(key, values[i]) != nil || s.x.ranges.Load().At(key) < 0 {
			continue
		}
		f, a, since, err := s.frameOf(first+i, key)
		switch {
		case err != nil:
			return err
		case f == nil:
			w.fetch(a, since, key)
		default:
			s.wantRoom(f, a, key, values[i])
			w.prepared.add(key, f)
		}
	}
	if err := s.postReady(); err != nil {
		return err
	}
	for i := range w.read {
		if err := s.keepReady(i); err != nil {
			return err
		}
	}
	return nil
}

// fetch has the leaf at a READ for key, unless it is READ already.
func (w *readiness) fetch(a pool.Addr, since uint64, key []byte) {
	for i := range w.read {
		if w.leaf[i] == a {
			return
		}
	}
	w.keys[w.read], w.leaf[w.read], w.since[w.read] = key, a, since
	w.read++
}

// wantRoom has f, the frame of the leaf at a, written back if it has no room for a change of key
// and that would help. Without a value the change is a delete, which needs none.
func (s *session) wantRoom(f *frame.Frame, a pool.Addr, key, value []byte) {
	w := &s.batch.ready
	if !w.room || value == nil || f.RecLSN() == 0 {
		return
	}
	for i := range w.n {
		if w.full[i].f == f {
			return
		}
	}
	if !f.TryLock() {
		return
	}
	if f.Addr() == a && f.RecLSN() != 0 && !s.fits(f, key, value) {
		w.full[w.n] = fullFrame{f, a}
		w.n++
		w.lack = true
	}
	f.Unlock()
}

// fits reports whether a change of key finds room in f, whose lock the caller holds, or whether
// the leaf is not that of key, and the change goes elsewhere.
func (s *session) fits(f *frame.Frame, key, value []byte) bool {
	var v frame.View
	if st, _ := s.holds(f, f.Addr(), key, &v); st != frame.Done {
		return true
	}
	if s.x.lay.InBlock(len(value)) {
		s.entry = s.x.lay.PutReference(s.entry[:cap(s.entry)], key, s.ref[:])
	} else {
		s.entry = s.x.lay.PutEntry(s.entry[:cap(s.entry)], key, value)
	}
	i, word := f.Find(&v, key, s.x.lay.Fingerprint(key), s.x.lay.Uint64)
	_, at := f.FindRoom(&v, i, word, len(s.entry))
	return at > 0
}

// lockFull does steps 2 and 3.
func (s *session) lockFull() error {
	w := &s.batch.ready
	upTo := uint64(0)
	for _, c := range w.full[:w.n] {
		upTo = max(upTo, c.f.PageLSN())
	}
	if err := s.log.WaitIn(s.b.PS, upTo); err != nil {
		return op.Failure(err, false)
	}
	op.Pause(s.x.env)
	durable := s.x.log.Durable()
	for _, c := range w.full[:w.n] {
		if !c.f.TryLock() {
			continue
		}
		if c.f.Addr() == c.leaf && c.f.RecLSN() != 0 && c.f.PageLSN() <= durable {
			w.locked[w.flush] = c.f
			w.flush++
		} else {
			c.f.Unlock()
		}
	}
	return nil
}

// unlock releases the frames that are locked.
func (w *readiness) unlock() {
	for _, f := range w.locked[:w.flush] {
		f.Unlock()
	}
	w.flush = 0
}

// postReady does steps 2 to 5. The first buffers are those of the leaves that are READ.
func (s *session) postReady() error {
	w := &s.batch.ready
	if w.n+w.read == 0 {
		return nil
	}
	if dead := s.b.PS.Err(); dead != nil {
		return op.Failure(dead, false)
	}
	s.beginRound()
	if err := s.lockFull(); err != nil {
		return err
	}
	defer w.unlock()
	began := s.x.env.Now()
	if w.flush > 0 {
		if err := patiently(s.b.PS, s.postLeaves); err != nil {
			return s.x.condemn(err)
		}
	} else if err := s.postLeaves(); err != nil {
		return op.Failure(err, false)
	}
	w.measured(s.x.env.Now() - began)
	for _, f := range w.locked[:w.flush] {
		f.Clean()
	}
	return nil
}

// postLeaves posts the WRITEs of the frames that are locked, and the READs.
func (s *session) postLeaves() error {
	w, r, ps, queued := &s.batch.ready, s.batch, s.b.PS, 0
	for i, f := range w.locked[:w.flush] {
		if err := f.Queue(ps, r.buffers[w.read+i], &queued); err != nil {
			return err
		}
	}
	for i := range w.read {
		if queued == verbs.MaxList {
			if err := ps.Post(); err != nil {
				return err
			}
			queued = 0
		}
		ps.Read(w.leaf[i], r.buffers[i])
		s.x.fetched.Add(1)
		queued++
	}
	return ps.Post()
}

// keepReady makes leaf i of those that were READ the image of a frame, unless it has one by now.
func (s *session) keepReady(i int) error {
	w := &s.batch.ready
	key := w.keys[i]
	p, err := s.b.Descend(key)
	if err != nil {
		return err
	}
	if p.Addr() != w.leaf[i] || s.x.cache.Locate(&p) != nil {
		return nil
	}
	copy(s.b.Staging(), s.batch.buffers[i])
	s.b.Remember(w.leaf[i], w.since[i])
	s.prefetched = true
	defer func() { s.prefetched = false }()
	var l slotted.Leaf
	hops, had := 0, s.x.ranges.Load()
	if _, _, err = s.fetch(&p, &l, key, &hops, true); s.x.beyond(err, had, key) {
		return nil // it is another client's by now, or was a moment ago
	}
	return err
}

// beyond reports whether err, of a fetch that began with the ranges had, says that the leaf of key
// goes beyond them, and that was because a range left or came meanwhile.
func (x *dex) beyond(err error, had *ranges.Table, key []byte) bool {
	return errors.Is(err, index.ErrFormat) && (x.ranges.Load() != had || had.At(key) < 0)
}
