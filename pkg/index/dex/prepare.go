package dex

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A change waits for a memory server if its leaf has no frame. Changes that come together would
// wait one after the other. Prepare does for all of them what each would have to do first, side by
// side:
//
//	1  divides leaves with frames that lack room for the keys to come (grow.go)
//	2  posts the READs of leaves without a frame, together
//	3  makes each leaf that was READ the image of a frame, as the fetch of a change does
//
// A leaf that was READ is used under the conditions of fetch.go, with the eviction clock from
// before its READ. Everything that Prepare does could have happened without it, at that moment. So
// the changes, which look at everything again, need to know nothing of it, and if a frame is gone
// by then they do what they always do.

// readiness is what a session prepares together.
type readiness struct {
	keys  [mostTogether][]byte // of the leaves that are READ
	leaf  [mostTogether]pool.Addr
	since [mostTogether]uint64
	read  int

	prepared prepared
	growth   growth
	located  located
}

// Prepare implements index.Session.
func (s *session) Prepare(keys, values [][]byte) error {
	r := s.together()
	r.n, r.began, r.open = 0, false, false
	r.ready.prepared.begin()
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
	w.read = 0
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

// postReady does step 2.
func (s *session) postReady() error {
	w, r, ps := &s.batch.ready, s.batch, s.b.PS
	if w.read == 0 {
		return nil
	}
	if dead := ps.Err(); dead != nil {
		return op.Failure(dead, false)
	}
	s.beginRound()
	for i := range w.read {
		ps.Read(w.leaf[i], r.buffers[i])
	}
	s.x.fetched.Add(uint64(w.read))
	if err := ps.Post(); err != nil {
		return op.Failure(err, false)
	}
	return nil
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
