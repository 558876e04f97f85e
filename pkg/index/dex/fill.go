package dex

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/seqlock"
)

// fill makes the frame f, whose lock the caller holds, the leaf b, and takes out the entries of the
// leaf's keys: from the unlock on sessions change them in the frame. After an error the client is
// given up.
func (s *session) fill(f *frame.Frame, b []byte) error {
	f.Fill(b)
	f.SetInPlace(s.x.with.caching)
	e := &s.x.cache.rows
	if e.empty() || !e.some.Load() {
		return nil
	}
	var v frame.View
	f.Open(&v)
	for i := range v.Count {
		w := f.Slot(&v, i)
		if w&0xfff == 0 || f.Refers(w, s.x.lay) {
			continue
		}
		key, lacks := s.lacksEntry(f, w)
		if lacks { // and none is put in as long as the leaf has a frame
			continue
		}
		had, err := s.x.takeOutEntry(key)
		if err != nil {
			return s.x.giveUp(err)
		}
		if had {
			f.SetChanged(i) // it is put in again when the leaf leaves its frame
		}
	}
	return nil
}

// lacksEntry reports whether the hints say that the key in the slot with word w has no entry.
// Otherwise it returns the key, which stays until the next call.
func (s *session) lacksEntry(f *frame.Frame, w uint64) (key []byte, lacks bool) {
	e := &s.x.cache.rows
	if !s.x.lay.Uint64 {
		s.filling = f.Entry(w, s.filling[:0])
		key = s.x.lay.KeyOf(s.filling)
		return key, e.lacks(e.place(key))
	}
	number := f.Number(w)
	if e.lacks(e.placeOf(e.hash.ofNumber(number), 8)) {
		return nil, true
	}
	s.filling = binary.LittleEndian.AppendUint64(s.filling[:0], number)
	return s.filling, false
}

// takeOutEntry invalidates the entry of key. It reports whether there was one, valid or not.
func (x *dex) takeOutEntry(key []byte) (had bool, err error) {
	p, b, err := x.lockPlace(key)
	if err != nil {
		return false, err
	}
	defer unlock(b)
	_, at, head := seek(b, p.head, key)
	if head == 0 {
		return false, nil
	}
	seqlock.Store(&b[at], head|stale)
	return true, nil
}

// lockPlace locks the bucket of key, which may be another one each time that it tries: removed ones
// stay locked. Whoever has it holds it for a few instructions, and waits for nothing.
func (x *dex) lockPlace(key []byte) (p spot, b []uint64, err error) {
	for try := 0; ; try++ {
		var ok bool
		if p, b, ok = x.cache.rows.acquire(key); ok {
			return p, b, nil
		}
		switch {
		case try < bucketTries:
			x.env.Yield()
		case try < bucketTries+int(bucketLimit/bucketPause):
			x.env.Sleep(bucketPause)
		default:
			return p, nil, fmt.Errorf("the bucket of an entry is locked for %v", bucketLimit)
		}
	}
}

// tryBucket locks b, unless somebody has it for more than a few instructions.
func (x *dex) tryBucket(b []uint64) bool {
	for range bucketTries {
		if lock(b) {
			return true
		}
		x.env.Yield()
	}
	return false
}

const (
	bucketTries = 100
	bucketPause = time.Millisecond
	bucketLimit = 10 * time.Second
)

// checkNoEntry panics if an entry of key is valid, whose leaf has a frame that the caller has
// locked.
func (x *dex) checkNoEntry(key []byte) {
	st := frame.Busy
	for st == frame.Busy {
		if _, st = x.cache.rows.look(x, key, nil); st == frame.Busy {
			x.env.Yield()
		}
	}
	invariants.Check(st == frame.NotFound, "an entry of key %x is valid, and its leaf has a frame", key)
}
