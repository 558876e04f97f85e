package dex

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
)

// unwrittenKeys returns the keys in some ranges whose entries are unwritten, with positions up to
// upTo, in order.
func (e *rowCache) unwrittenKeys(x *dex, in *ranges, upTo uint64) (keys [][]byte, err error) {
	e.hold()
	defer e.release()
	for i := range e.buckets() {
		b := e.at(i)
		if atomic.LoadUint64(&b[0]) == 0 {
			continue
		}
		if err := x.lockBucket(b); err != nil {
			return nil, err
		}
		for at := bucketBegin; at < len(b) && b[at] != 0; at += extent(b[at]) {
			if head := b[at]; head&unwritten != 0 && b[at+extent(head)-1] <= upTo {
				if key := keyAt(b, at, nil); in.at(key) >= 0 {
					keys = append(keys, key)
				}
			}
		}
		unlock(b)
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys, nil
}

// applyEntries gives the leaves of some ranges frames whose keys have unwritten entries with
// positions up to upTo, which makes these the frames'. Other sessions may make new ones meanwhile.
func (s *session) applyEntries(in *ranges, upTo uint64) error {
	if s.x.dirty.unwritten.Load() == 0 {
		return nil
	}
	keys, err := s.x.cache.rows.unwrittenKeys(s.x, in, upTo)
	if err != nil {
		return err
	}
	none := make([][]byte, mostTogether)
	r := s.together()
	for len(keys) > 0 {
		n := min(len(keys), len(r.buffers))
		s.b.Resume() // epochs need not wait for all of it
		r.n, r.began, r.open = 0, true, true
		w := &r.ready
		w.room = false
		err := s.prepareSome(keys[:n], none)
		r.open = false
		for i := 0; i < n && err == nil; i++ {
			err = s.applyEntry(keys[i])
		}
		if err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// applyEntry gives the leaf of key a frame, if its entry is unwritten still.
func (s *session) applyEntry(key []byte) error {
	x := s.x
	p, err := s.b.Descend(key)
	if err != nil {
		return err
	}
	for hops := 0; x.cache.rows.isUnwritten(key); {
		f := x.cache.locate(&p)
		if f == nil {
			var l slotted.Leaf
			had := x.ranges.Load()
			if _, _, err := s.fetch(&p, &l, key, &hops, true); x.beyond(err, had, key) {
				// if the range left, Give has applied its entries
				if err := s.b.Retry(); err != nil {
					return err
				}
			} else if err != nil {
				return err
			}
			continue
		}
		var st state
		if s.filling.newer, _, st = s.searchFrame(f, p.Addr(), key, s.filling.newer[:0], x.lay.Fingerprint(key)); st == gone {
			if p, err = s.b.Descend(key); err != nil {
				return err
			}
			continue
		}
		if err := s.resolve(st, &p, key, &hops); err != nil {
			return err
		}
	}
	return nil
}

// beyond reports whether err, of a fetch that began with the ranges had, says that the leaf of key
// goes beyond them, and that was because a range left or came meanwhile.
func (x *dex) beyond(err error, had *ranges, key []byte) bool {
	return errors.Is(err, index.ErrFormat) && (x.ranges.Load() != had || had.at(key) < 0)
}

// isUnwritten reports whether there may be an unwritten entry of key.
func (e *rowCache) isUnwritten(key []byte) bool {
	p := e.place(key)
	if e.lacks(p) {
		return false
	}
	b := e.at(p.bucket)
	version := atomic.LoadUint64(&b[0])
	_, _, head := seek(b, p.head, key)
	return version&1 != 0 || head&unwritten != 0 || !e.unchanged(p, version)
}
