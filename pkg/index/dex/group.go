package dex

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A group changes several keys of this client in one step:
//
//	1  reads each key, as a modification that keeps the pair does
//	2  calls change, which says what becomes of all of them
//	3  writes the blocks of long values, which no other client knows
//	4  locks the frames of all leaves; fetches those that are missing before
//	5  with all locks: compares what each leaf has with what 1 read; tries the changes in a copy
//	   of each frame that has several, so that all are known to have room
//	6  with the same locks: appends one record, which has all changes
//	7  with the same locks: makes the changes, and notes the record's position in each frame
//	8  unlocks the frames
//
// If a lock is not to be had at 4, all are released, and 4 begins again. So a group waits for
// nothing from 4 to 8, and no two wait for each other. If 5 finds another pair than 1 did, the
// group begins again at 1. If a leaf has no room it is written back, or divided, and 4 begins
// again. The lock of that leaf is the only one then, and is held while the log becomes durable, as
// by every change of a full leaf (write.go): the log waits for no frame.
//
// # Why nothing comes in between
//
// At 5 all keys have what 1 read, and until 8 nobody else can change them: a change needs the
// frame's lock, or that the leaf has no frame. So what change said of 1 is right at 5, whatever
// happened in between. Values are compared as the leaf has them; an equal reference is an equal
// value (modify.go). Who reads a key from a frame that changes at 7 finds the lock, and begins
// again behind 8. So no two lookups, one after the other, see a later change of the group and then
// miss an earlier one.
//
// # Why a crash leaves all or nothing
//
// A record is never cut: it lies in one batch of the log, which verifies as a whole or not at all
// (package redo). A replay makes all members of the record, each for who takes its range, from the
// same log. No leaf is written back with a part of the group: 7 notes the record's position in each
// frame under its lock, and a write-back waits until the log is durable up to there (flush). The
// log keeps the record until all frames of the group are written back: each of them that was clean
// stands in the dirty pages with this record, and each other one with an earlier one.
//
// Ranges of the group may leave this client one by one. Give writes leaves back, so it waits for
// the record, too: a range is not given with the group's change while another one loses it.
//
// # Other records of a key
//
// The members are plain records, and come into the log under the frame's lock. So for a record that
// is appended before its change (beside.go) a group is like any other change with a frame.
//
// Long values: the record has the references, and the blocks are complete before it. Blocks that
// the group replaced are garbage when it is durable.

// member is a key of the group under way.
type member struct {
	*index.Member
	fp    byte
	epoch uint64
	was   byte   // what the leaf had, as in modification
	has   []byte // the value or the reference
	ref   [item.ReferenceBytes]byte
	entry []byte
	f     *frame.Frame
	leaf  pool.Addr
	left  bool // it is removed, and its leaf may be underfull: count and bytes
	count int
	bytes int
}

// group is the group under way in a session.
type group struct {
	members []member
	leaves  []*frame.Frame // of the members, each once, while they are locked
	changed []*frame.Frame // of these
	record  []byte
	data    []byte             // what members had, and get
	blocks  []blocks.Reference // written, and not in the log
	scratch frame.Frame        // for trying edits
	started bool
	tight   *member // whose leaf has no room for it
	moved   bool    // a pair is not what was read
}

// Group implements index.Grouper.
func (s *session) Group(members []index.Member, change func() error) error {
	if s.group == nil {
		s.group = &group{}
	}
	g := s.group
	g.members = g.members[:0]
	defer g.forget()
	for i := range members {
		key := members[i].Key
		if err := s.served(key); err != nil {
			return fmt.Errorf("group: %w", err)
		}
		g.members = append(g.members, member{Member: &members[i], fp: s.x.lay.Fingerprint(key)})
	}
	if isTwice(members) {
		return fmt.Errorf("group: a key is there twice among %d: name each once", len(members))
	}
	if frames, _ := s.x.cache.Live(); len(members) > frames/groupShare {
		return fmt.Errorf("group of %d keys, at most %d with this cache: %w", len(members), frames/groupShare, index.ErrGroupTooLarge)
	}
	if len(members) > 1 && !s.keepsAll(members) { // READ what is missing side by side
		keys, none := make([][]byte, len(members)), make([][]byte, len(members))
		for i := range members {
			keys[i] = members[i].Key
		}
		if err := s.Prepare(keys, none); err != nil {
			return err
		}
	}
	s.b.Begin()
	defer s.b.End()
	err := s.groupIn(g, change)
	for err != nil {
		g.freeBlocks(s)
		if errors.Is(err, index.ErrUnknown) || !s.again(err, upsert) {
			return fmt.Errorf("group: %w", err)
		}
		err = s.groupIn(g, change)
	}
	return nil
}

// fewMembers is up to how many members are compared with each other.
const fewMembers = 8

// isTwice reports whether two members have the same key.
func isTwice(members []index.Member) bool {
	if len(members) > fewMembers {
		names := make(map[string]struct{}, len(members))
		for i := range members {
			names[string(members[i].Key)] = struct{}{}
		}
		return len(names) < len(members)
	}
	for i := range members {
		for j := range i {
			if bytes.Equal(members[i].Key, members[j].Key) {
				return true
			}
		}
	}
	return false
}

// keepsAll reports whether the cache has the leaves of all members, as far as is seen without
// asking anybody.
func (s *session) keepsAll(members []index.Member) bool {
	for i := range members {
		a, hint := s.b.DescendCached(members[i].Key)
		if hint == 0 || s.x.cache.Hinted(hint).Addr() != a {
			return false
		}
	}
	return true
}

// groupShare is which part of the cache's frames a group may lock: others must find frames, and
// evict leaves for them.
const groupShare = 4

// groupIn does the group as described above, in an operation.
func (s *session) groupIn(g *group, change func() error) error {
	for {
		g.data = g.data[:0]
		for i := range g.members {
			if err := s.readMember(g, &g.members[i]); err != nil {
				return err
			}
		}
		if err := change(); err != nil {
			return err
		}
		if err := s.prepareGroup(g); err != nil {
			return err
		}
		done, err := s.commitGroup(g)
		if done || err != nil {
			return err
		}
		g.freeBlocks(s) // a pair has changed
		if err := s.b.Retry(); err != nil {
			return err
		}
	}
}

// readMember is step 1 for one key. It notes the frame, which is not locked any more.
func (s *session) readMember(g *group, m *member) error {
	r := s.x.ranges.Load()
	in := r.At(m.Key)
	if in < 0 {
		return index.ErrNotOwner
	}
	lsn := uint64(0)
	if err := s.inFrame(m.Key, func(f *frame.Frame, p *btree.Path) (st frame.State, err error) {
		m.f, m.leaf = f, p.Addr()
		if !f.TryLock() {
			return frame.Busy, nil
		}
		defer f.Unlock()
		var v frame.View
		if st, err := s.holds(f, m.leaf, m.Key, &v); st != frame.Done || err != nil {
			return st, err
		}
		i, word := f.Find(&v, m.Key, m.fp, s.x.lay.Uint64)
		lsn, m.Found = f.PageLSN(), i >= 0
		return frame.Done, s.readOld(f, i, word, m.Key, r.Span(in).Epoch)
	}); err != nil {
		return err
	}
	if err := s.seen(lsn); err != nil {
		return op.Failure(err, false)
	}
	m.Old = nil
	if m.Found {
		m.Old = g.keep(s.mod.old)
	}
	m.was, m.has = s.mod.was, g.keep(s.mod.has)
	m.Value, m.Action = nil, index.Keep
	return nil
}

// prepareGroup checks what change said, makes entries and the record, and writes blocks: step 3.
func (s *session) prepareGroup(g *group) error {
	lay, size := s.x.lay, record.FixedBytes
	for i := range g.members {
		m := &g.members[i]
		switch m.Action {
		case index.Keep:
			continue
		case index.Remove:
			if !m.Found {
				m.Action = index.Keep
				continue
			}
			size += record.MemberBytes(len(m.Key), 0)
		case index.Put:
			if err := lay.CheckPair(m.Key, m.Value); err != nil {
				return err
			}
			n := len(m.Value)
			if lay.InBlock(n) {
				n = item.ReferenceBytes
			}
			size += record.MemberBytes(len(m.Key), n)
		default:
			return fmt.Errorf("%d is no action", m.Action)
		}
	}
	if most := s.x.wal.MostGroup(); size > most {
		return fmt.Errorf("the changes take %d bytes of the log, at most %d in one step, and nothing was done; divide them: %w", size, most, index.ErrGroupTooLarge)
	}
	r := s.x.ranges.Load()
	g.record = record.Append(g.record[:0], record.Group, 0, nil, nil)
	for i := range g.members {
		m := &g.members[i]
		in := r.At(m.Key)
		if in < 0 {
			return index.ErrNotOwner
		}
		m.epoch = r.Span(in).Epoch
		switch {
		case m.Action == index.Keep:
		case m.Action == index.Remove:
			g.record = record.AppendMember(g.record, record.Delete, m.epoch, m.Key, nil)
		case !lay.InBlock(len(m.Value)):
			m.entry = g.keep(lay.PutEntry(s.entry[:cap(s.entry)], m.Key, m.Value))
			g.record = record.AppendMember(g.record, record.Put, m.epoch, m.Key, m.Value)
		default:
			if err := s.b.Blocks.Write(m.ref[:], m.Value, pool.Nil); err != nil {
				return err
			}
			g.blocks = append(g.blocks, blocks.Decode(m.ref[:]))
			m.entry = g.keep(lay.PutReference(s.entry[:cap(s.entry)], m.Key, m.ref[:]))
			g.record = record.AppendMember(g.record, record.Refer, m.epoch, m.Key, m.ref[:])
		}
	}
	return nil
}

// keep returns a copy of b that is there until the pairs are read again.
func (g *group) keep(b []byte) []byte {
	from := len(g.data)
	g.data = append(g.data, b...)
	return g.data[from:len(g.data):len(g.data)]
}

// mostKept is how many bytes of memory a group leaves to the next one.
const mostKept = 64 << 10

// forget drops what the members had.
func (g *group) forget() {
	if clear(g.members); cap(g.data) > mostKept {
		g.data = nil
	}
}

// freeBlocks gives back the blocks of a group that was not made.
func (g *group) freeBlocks(s *session) {
	for _, b := range g.blocks {
		s.b.Blocks.Free(b)
	}
	g.blocks = g.blocks[:0]
}

// finishGroup does what follows a group that was made.
func (s *session) finishGroup(g *group, lsn uint64, changed bool) error {
	if err := s.seen(lsn); err != nil {
		return op.Failure(err, changed)
	}
	if !changed {
		return nil
	}
	err := s.tidyGroup(g)
	if err == nil {
		err = s.afterwards()
	}
	if err != nil && !errors.Is(err, index.ErrUnknown) {
		err = fmt.Errorf("the changes are made: %w: %w", index.ErrUnknown, err)
	}
	return err
}

// tidyGroup merges leaves that are nearly empty since the group removed pairs.
func (s *session) tidyGroup(g *group) error {
	for i := range g.members {
		m := &g.members[i]
		if !m.left {
			continue
		}
		if err := patiently(s.b.PS, func() error { return s.b.Tidy(m.Key, m.leaf, slottedtree.Load(m.count, m.bytes)) }); err != nil {
			return err
		}
	}
	return nil
}
