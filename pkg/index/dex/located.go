package dex

import (
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Everything that Prepare does for a key begins at the frame of its leaf. The slots are followed
// once for all keys of a batch, and the processor waits for the memory of all frames at once.
//
// What was noted may be old when it is used: other leaves of the batch were divided and READ since,
// and no epoch waits for a note. So its address may be that of another leaf by now, with a frame.
// Whoever uses the note locks the frame, and asks it for its address and for its fences. Where they
// do not enclose the key nothing is done for it, and its change descends.

// located is where the slots led with each key of a batch.
type located struct {
	leaves [mostPrepared]pool.Addr
	hints  [mostPrepared]uint32 // 0 = not known, or not any more
}

// locate follows the slots with keys, mostPrepared at most.
func (s *session) locate(keys [][]byte) {
	l := &s.batch.ready.located
	for i, key := range keys {
		l.hints[i] = 0
		if s.x.lay.CheckKey(key) == nil {
			if l.leaves[i], l.hints[i] = s.b.DescendCached(key); l.hints[i] != 0 {
				s.x.cache.Prefetch(l.hints[i])
			}
		}
	}
}

// moved notes that the leaf of some keys may have been divided since they were located.
func (l *located) moved(keys []int) {
	for _, i := range keys {
		l.hints[i] = 0
	}
}

// frameOf is frameAt for key i of the batch. It follows the slots again if that is of use.
func (s *session) frameOf(i int, key []byte) (f *frame.Frame, leaf pool.Addr, since uint64, err error) {
	l := &s.batch.ready.located
	if l.hints[i] == 0 {
		l.leaves[i], l.hints[i] = s.b.DescendCached(key)
	}
	return s.frameAt(key, l.leaves[i], l.hints[i])
}

// frameAt returns the leaf to which inner nodes lead with key, and its frame. a and hint are what
// DescendCached returned. Each may be old by now: who locks the frame looks again. Without a frame
// it returns nil, and what the eviction clock showed before it looked.
func (s *session) frameAt(key []byte, a pool.Addr, hint uint32) (f *frame.Frame, leaf pool.Addr, since uint64, err error) {
	if hint != 0 {
		if f := s.x.cache.Frame(hint); f.Addr() == a {
			return f, a, 0, nil
		}
	}
	s.beginRound()
	p, err := s.b.Descend(key)
	if err != nil {
		return nil, pool.Nil, 0, err
	}
	since = s.x.cache.Clock.Now()
	op.Pause(s.x.env)
	return s.x.cache.Locate(&p), p.Addr(), since, nil
}
