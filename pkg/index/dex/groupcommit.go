package dex

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// groupTight bounds how often leaves get room for one group, for each member.
const groupTight = 8

// commitGroup is steps 4 to 8, and waits until the group is durable, unless the session defers.
// done is false if a pair is not what was read.
func (s *session) commitGroup(g *group) (done bool, err error) {
	for tight, again := 0, false; ; again = true { // first with the frames that were read
		for i := range g.members {
			if !again {
				break
			}
			if err := s.locateMember(&g.members[i]); err != nil {
				return false, err
			}
		}
		op.Pause(s.x.env)
		lsn, changed, st, err := s.makeGroup(g)
		switch {
		case err != nil:
			return false, err
		case g.moved:
			return false, nil
		case st == frame.Done:
			return true, s.finishGroup(g, lsn, changed)
		case st == logBusy:
			if err := s.awaitLogFor(len(g.record)); err != nil {
				return false, err
			}
			continue
		case st == logFull:
			s.x.cleaner.wake.Set()
		case g.tight != nil:
			if tight++; tight > groupTight*len(g.members) {
				return false, fmt.Errorf("key %x and what it gets do not fit into one leaf beside each other: %w", g.tight.Key, index.ErrGroupTooLarge)
			}
			if err := s.makeGroupRoom(g); err != nil {
				return false, err
			}
		}
		if err := s.b.Retry(); err != nil {
			return false, err
		}
	}
}

// locateMember finds the frame of the member's leaf. It is not locked, so all of it may change.
func (s *session) locateMember(m *member) error {
	return s.inFrame(m.Key, func(f *frame.Frame, p *btree.Path) (st frame.State, err error) {
		m.f, m.leaf = f, p.Addr()
		if !f.TryLock() {
			return frame.Busy, nil
		}
		defer f.Unlock()
		return s.holdsMember(m)
	})
}

// holdsMember is holds for the frame of m, whose lock the session has.
func (s *session) holdsMember(m *member) (frame.State, error) {
	var v frame.View
	return s.holds(m.f, m.leaf, m.Key, &v)
}

// makeGroup locks the frames of all members, and makes the changes. Unless st is Done, and without
// an error, nothing has happened: g.moved and g.tight say more. lsn is up to where the log has to
// be durable for what was read, and done.
func (s *session) makeGroup(g *group) (lsn uint64, changed bool, st frame.State, err error) {
	g.moved, g.tight = false, nil
	g.leaves, g.changed = g.leaves[:0], g.changed[:0]
	defer func() {
		for _, f := range g.leaves {
			f.Unlock()
		}
		g.leaves = g.leaves[:0]
	}()
	for i := range g.members {
		m := &g.members[i]
		if !slices.Contains(g.leaves, m.f) {
			if !m.f.TryLock() {
				return 0, false, frame.Busy, nil
			}
			g.leaves = append(g.leaves, m.f)
			op.Pause(s.x.env)
		}
		if st, err := s.holdsMember(m); st != frame.Done {
			return 0, false, st, err
		}
		if m.Action != index.Keep && !slices.Contains(g.changed, m.f) {
			g.changed = append(g.changed, m.f)
		}
	}
	for i := range g.members {
		m := &g.members[i]
		if !s.isAsRead(m) {
			g.moved = true
			return 0, false, frame.Busy, nil
		}
		lsn = max(lsn, m.f.PageLSN())
	}
	if late := s.b.PS.Late(); late != nil {
		return 0, false, frame.Busy, op.Failure(late, false)
	}
	if len(g.changed) == 0 {
		return lsn, false, frame.Done, nil
	}
	if g.tight = s.tryGroup(g); g.tight != nil || !s.dropValues(g) {
		return 0, false, frame.Busy, nil
	}
	switch lsn, err = s.x.wal.AppendGroup(s.log, g.changed, g.record); {
	case errors.Is(err, redo.ErrFull):
		return 0, false, logFull, nil
	case err == redo.ErrBusy:
		return 0, false, logBusy, nil
	case err != nil:
		return 0, false, frame.Busy, s.x.condemn(err)
	}
	g.blocks = g.blocks[:0] // the log has them
	s.applyGroup(g, lsn)
	return lsn, true, frame.Done, nil
}

// isAsRead reports whether the leaf has of the member's key what step 1 read. The operation has
// been under way since then, also over waits for room, so an equal reference is of the same block.
func (s *session) isAsRead(m *member) bool {
	var v frame.View
	m.f.Open(&v)
	i, word := m.f.Find(&v, m.Key, m.fp, s.x.lay.Uint64)
	s.mod.was, s.mod.has = m.was, append(s.mod.has[:0], m.has...)
	return s.asTold(m.f, i, word, m.Key)
}

// tryGroup makes the changes in copies of the frames. It returns a member for which there is no
// room; nil if there is room for all.
func (s *session) tryGroup(g *group) *member {
	if !g.started {
		words := s.x.lay.NodeBytes / 8
		g.scratch.Init(0, make([]uint64, words, words+frame.NoteWords(words)))
		g.started = true
	}
	for _, f := range g.changed {
		if m := g.onlyChange(f); m != nil {
			if m.Action == index.Put && !s.hasRoom(m) {
				return m
			}
			continue
		}
		g.scratch.CopyFrom(f)
		for i := range g.members {
			if m := &g.members[i]; m.f == f && m.Action != index.Keep && !s.applyMember(&g.scratch, m) {
				return m
			}
		}
	}
	return nil
}

// onlyChange is the only member that changes in f; nil if there are several.
func (g *group) onlyChange(f *frame.Frame) (only *member) {
	for i := range g.members {
		if m := &g.members[i]; m.f == f && m.Action != index.Keep {
			if only != nil {
				return nil
			}
			only = m
		}
	}
	return only
}

// hasRoom reports whether the frame of m has room for what m gets.
func (s *session) hasRoom(m *member) bool {
	var v frame.View
	m.f.Open(&v)
	i, word := m.f.Find(&v, m.Key, m.fp, s.x.lay.Uint64)
	_, at := m.f.FindRoom(&v, i, word, len(m.entry))
	return at > 0
}

// applyMember makes the change of m in f. It returns false if there is no room.
func (s *session) applyMember(f *frame.Frame, m *member) bool {
	lay := s.x.lay
	var v frame.View
	f.Open(&v)
	i, word := f.Find(&v, m.Key, m.fp, lay.Uint64)
	if m.Action == index.Remove {
		f.Remove(lay, &v, i)
		m.left = true
		m.count, m.bytes = f.Content(&v)
		return true
	}
	m.left = false
	slot, at := f.FindRoom(&v, i, word, len(m.entry))
	if at > 0 {
		f.Put(lay, &v, slot, at, m.fp, m.entry)
	}
	return at > 0
}

// dropValues takes replaced long values out of the cache. It returns false if that has to be tried
// again.
func (s *session) dropValues(g *group) bool {
	for i := range g.members {
		m := &g.members[i]
		if m.Action == index.Keep || m.was != record.Refer {
			continue
		}
		s.tag.Set(m.has, m.epoch)
		if _, ok := s.x.values.Drop(&s.tag); !ok {
			return false
		}
	}
	return true
}

// applyGroup makes the changes, as tryGroup has found that they can be made.
func (s *session) applyGroup(g *group, lsn uint64) {
	for i := range g.members {
		m := &g.members[i]
		if m.Action == index.Keep {
			continue
		}
		if invariants.Enabled {
			s.x.rows.CheckNone(m.Key)
		}
		if !s.applyMember(m.f, m) {
			panic(fmt.Sprintf("dex: a group has no room in leaf %v, where it had some in a copy", m.leaf))
		}
		m.f.SetPageLSN(lsn)
		m.f.Hit()
		if m.was == record.Refer {
			s.x.garbage.Add(blocks.Decode(m.has), lsn)
		}
		op.Pause(s.x.env)
	}
}

// makeGroupRoom makes room in the leaf of g.tight: it is written back, or, if it was, divided for
// what its members get.
func (s *session) makeGroupRoom(g *group) error {
	m := g.tight
	f := m.f
	if !f.TryLock() {
		return nil
	}
	if st, err := s.holdsMember(m); st != frame.Done {
		f.Unlock()
		return err
	}
	if f.RecLSN() != 0 {
		err := s.back(f)
		f.Unlock()
		return err
	}
	w := &s.together().ready.growth
	w.coming = w.coming[:0]
	for i := range g.members {
		if n := &g.members[i]; n.f == f && n.Action == index.Put && s.encloses(f, n.leaf, n.Key) {
			w.coming = append(w.coming, slotted.Coming{Key: n.Key, Bytes: len(n.entry)})
		}
	}
	slices.SortFunc(w.coming, func(a, b slotted.Coming) int { return bytes.Compare(a.Key, b.Key) })
	return s.growLeaf(f, m.leaf)
}
