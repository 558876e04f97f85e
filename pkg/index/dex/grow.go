package dex

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A leaf without room for a new key, or for a longer value, is divided, or only compacted, by the
// session that needs the room: for the pair of its change (restructure), or for those of a batch,
// or of a group, that lie in one leaf (Prepare, makeGroupRoom). It becomes as many leaves as its
// pairs and the others need, at once (slotted.Plan, btree.Session.DivideLeaf). The changes then
// find room, and are made as any other:
//
//	this session                                  others
//	1  locks the frame of the leaf; counts        changes of this client wait, or go elsewhere
//	2  waits until the frame's records are
//	   durable
//	3  locks the leaf in the memory server, and
//	   checks that it has the version of the
//	   frame; reads the eviction clock
//	4  WRITEs the new leaves; rewrites the leaf   readers of this and other clients, who share
//	   from the frame's image and its plan; one   nothing but the memory: before that they find
//	   list, one moment                           the leaf as it was written back the last time,
//	                                              and behind it all pairs of the frame, in the
//	                                              leaf and its siblings
//	5  makes what it wrote the frame's image,     changes of this client find the leaf, or a
//	   and unlocks it                             sibling by its pointer, as behind any split
//	6  reserves frames for the new leaves, whose  such a leaf can have been READ, changed, even
//	   images it has; fills those that are not    merged, by another session of this client since
//	   in a frame, and were not evicted since 3;  4. It had a frame for that, which is found here,
//	   keeps them locked                          or whose eviction is
//	7  puts the separators into the parents       nobody claims a leaf whose frame is locked, so
//	                                              such a leaf lives
//	8  unlocks
//
// # Why that is safe
//
// Steps 2 to 5 are a write-back and a division in one. All records of the frame are durable before
// 4, so whoever reads a new leaf reads nothing that a crash undoes, and the frame stands in the
// dirty pages until 5, when 4 is confirmed: the log has the records as long as the memory servers
// may lack their changes. The division adds no change, so it needs no record. A client that dies in
// 4 leaves the leaf as it was written back the last time, or all of the division (btree), and in
// both cases a replay of the log makes each key what its last record says. After an error in 4 the
// client is given up, as after one of a flush.
//
// While the frame is locked nobody else changes the leaf: this client's sessions need the lock, the
// other clients do not own all its keys (index.Partitioned). So the image of the frame is that of
// the memory server with the changes that are not written back, and versions prove that no one has
// restructured it.
//
// Step 5 changes a frame under its lock, as a change of a pair does, but its fences, too. Whoever
// used it compares versions; who READ the leaf before it had this frame finds the frame.
//
// Step 6 is a fetch whose READ was the WRITE of this session (fetch.go, steps 1 and 3 to 5): the
// image of a leaf that had no frame since it was written is its present state. The leaf lies in
// this client's ranges if it does under the new frame's lock. Give waits for frames that are locked
// (forget) and removes the range before it looks for them.
//
// Step 7: a leaf that was merged must not be connected. This client's merges claim a leaf, that is,
// its frame's lock, and record its eviction; the other clients do not merge it, because they do not
// own it, and Give cannot be over while the frame is locked. So a new leaf that is not evicted from
// 3 to 6, and locked from then on, is not merged before 8. What has no frame of ours is READ under
// its parent's lock, as behind any split.
//
// Who waits for whom: the frames that this session holds from 6 to 8 are locked by attempts, and so
// is a victim whose frame is needed. It waits for the log, and for locks of the memory servers,
// whose holders wait for no frame (Claim attempts).
//
// # Leaves that stay empty
//
// Nobody promised that the changes will be made: their condition may be false, and the session may
// fail. A leaf without pairs is an ordinary one, and is merged when a neighbour is nearly empty.
// But nobody deletes from it, and so nobody looks. So a session remembers the leaves that it has
// made without a pair, and looks when it prepares the next time: those that are empty still are
// merged.
//
// To look costs a lock of the frame. So sessions look while one of them has met a leaf without room
// not long ago.

// growth is the part of a batch that makes room beforehand.
type growth struct {
	todo   []int                      // keys to look for
	later  []int                      // those of them that it is not done with
	frames [mostPrepared]*frame.Frame // of these
	leaves [mostPrepared]pool.Addr
	group  [mostPrepared]int // keys of one leaf
	busy   *frame.Frame      // one that somebody has locked
	coming []slotted.Coming
	held   []*frame.Frame
	empty  []emptyLeaf
}

// emptyLeaf is a leaf that was made without a pair, for keys from low on.
type emptyLeaf struct {
	low  []byte
	leaf pool.Addr
}

// grow makes room for keys and values of a batch, mostPrepared at most, in the leaves with frames.
// Frames that are locked, by a session that makes room for its own keys perhaps, are waited for:
// the changes would have to, and divide their leaves again then, one by one.
func (s *session) grow(keys, values [][]byte) error {
	if !s.x.presplits.looks(s.x.env) {
		return nil
	}
	g := &s.batch.ready.growth
	g.todo = g.todo[:0]
	for i, key := range keys {
		if values[i] != nil && s.x.lay.CheckPair(key, values[i]) == nil && s.x.ranges.Load().At(key) >= 0 {
			g.todo = append(g.todo, i)
		}
	}
	for tries := 0; tries < growTries; tries++ {
		g.busy = nil
		if err := s.growSome(keys, values); err != nil || len(g.todo) == 0 {
			return err
		}
		s.beginRound()
		for ; g.busy != nil && g.busy.IsLocked() && tries < growTries; tries++ {
			if err := s.b.Retry(); err != nil {
				return op.Failure(err, false)
			}
		}
	}
	return nil
}

// growTries is how often a batch looks for frames that others have locked.
const growTries = 100

// growSome makes room for the keys in todo. What it is not done with stays there.
func (s *session) growSome(keys, values [][]byte) error {
	g := &s.batch.ready.growth
	var f *frame.Frame
	var a pool.Addr
	for k, i := range g.todo {
		// The key may have left the noted leaf: then its change makes room for it.
		if l := &s.batch.ready.located; f == nil || l.hints[i] == 0 || l.leaves[i] != a {
			var err error
			if f, a, _, err = s.frameOf(i, keys[i]); err != nil {
				return err
			}
		}
		g.frames[k], g.leaves[k] = f, a
	}
	g.later = g.later[:0]
	for k := range g.todo {
		f, a := g.frames[k], g.leaves[k]
		if f == nil {
			continue
		}
		n := 0
		for j := k; j < len(g.todo); j++ {
			if g.frames[j] == f {
				g.group[n], g.frames[j] = g.todo[j], nil
				n++
			}
		}
		over, err := s.growFrame(f, a, keys, values, g.group[:n])
		if err != nil {
			return err
		}
		if !over {
			g.later = append(g.later, g.group[:n]...)
			s.batch.ready.located.moved(g.group[:n])
		}
	}
	g.todo, g.later = g.later, g.todo
	return nil
}

// growFrame divides the leaf at a, which f may hold, if it lacks room for those of the keys that
// are in the group. over: there is nothing more to do for these. Else somebody has the lock of the
// frame, or there are more keys than one division can make room for.
func (s *session) growFrame(f *frame.Frame, a pool.Addr, keys, values [][]byte, group []int) (over bool, err error) {
	if !f.TryLock() {
		s.batch.ready.growth.busy = f
		return false, nil
	}
	if f.Addr() != a || !s.lacksRoom(f, keys, values, group) {
		f.Unlock()
		return true, nil
	}
	s.x.presplits.met()
	s.beginRound()
	s.batch.ready.located.moved(group)
	err = s.growLeaf(f, a)
	if errors.Is(err, index.ErrPoolFull) {
		return true, nil // the changes look for room by themselves
	}
	return s.b.LeftOut() == 0, err
}

// growLeaf is steps 2 to 8 for the leaf at a in f, whose lock the caller holds, and what is coming:
// one pair at least, between the leaf's fences. It releases the lock. ErrPoolFull: nothing was
// changed. LeftOut says for how many pairs there is no room still.
func (s *session) growLeaf(f *frame.Frame, a pool.Addr) error {
	parts, since, err := s.divideKept(f, a)
	if err == nil && parts > 1 {
		err = s.adoptParts(parts, since)
	}
	return err
}

// lacksRoom reports whether f, whose lock the caller holds, has no room for the keys of the group
// that are not in it, even when it is written back; coming is these then, sorted.
func (s *session) lacksRoom(f *frame.Frame, keys, values [][]byte, group []int) bool {
	g, lay := &s.batch.ready.growth, s.x.lay
	var v frame.View
	if !f.Open(&v) {
		return false
	}
	count, used := f.Content(&v)
	room := f.Room(&v)
	g.coming = g.coming[:0]
	for _, i := range group {
		key, n := keys[i], item.ReferenceBytes
		if f.Above(&v, key, lay.Uint64) || f.Below(&v, key, lay.Uint64) {
			continue
		}
		if !lay.InBlock(len(values[i])) {
			n = len(values[i])
		}
		g.coming = append(g.coming, slotted.Coming{Key: key, Bytes: lay.EntryBytes(len(key), n)})
		count++
		used += (lay.EntryBytes(len(key), n) + 7) &^ 7
	}
	if count <= v.Count && used <= room {
		return false // whether they are there or not
	}
	n := 0
	for _, c := range g.coming {
		if i, _ := f.Find(&v, c.Key, lay.Fingerprint(c.Key), lay.Uint64); i >= 0 {
			count--
			used -= (c.Bytes + 7) &^ 7
			continue
		}
		k := n
		for ; k > 0 && item.Below(c.Key, g.coming[k-1].Key); k-- {
			g.coming[k] = g.coming[k-1]
		}
		g.coming[k] = c
		n++
	}
	g.coming = g.coming[:n]
	return count > v.Count || used > room
}

// divideKept is steps 2 to 5. It returns how many leaves there are then, and what the eviction
// clock showed before.
func (s *session) divideKept(f *frame.Frame, a pool.Addr) (parts int, since uint64, err error) {
	g := &s.batch.ready.growth
	if err := s.log.WaitIn(s.b.PS, f.PageLSN()); err != nil {
		f.Unlock()
		return 0, 0, op.Failure(err, false)
	}
	image := s.b.Staging()
	f.CopyTo(image)
	since = s.x.cache.Clock.Now()
	err = patiently(s.b.PS, func() (err error) {
		parts, err = s.b.Grow(a, image, g.coming)
		return err
	})
	switch {
	case errors.Is(err, index.ErrUnknown): // the log has what f has, for who replays it
		f.Unlock()
		return 0, 0, s.x.condemn(err)
	case err != nil:
		f.Unlock()
		return 0, 0, err
	}
	err = s.fill(f, s.b.Ring[0])
	f.Unlock()
	if err != nil {
		return parts, since, err
	}
	if parts > 1 {
		s.x.presplits.divided.Add(1)
	}
	if parts > 2 {
		s.x.presplits.many.Add(1)
	}
	for i := 1; i < parts; i++ {
		if low, empty := s.b.EmptyPart(i); empty && len(g.empty) < mostPrepared {
			g.empty = append(g.empty, emptyLeaf{bytes.Clone(low), s.b.Part(i)})
		}
	}
	return parts, since, nil
}

// adoptParts is steps 6 to 8 for the new leaves.
func (s *session) adoptParts(parts int, since uint64) error {
	g := &s.batch.ready.growth
	defer func() {
		for _, f := range g.held {
			f.Unlock()
		}
		g.held = g.held[:0]
	}()
	var err error
	for i := 1; i < parts && err == nil; i++ {
		var f *frame.Frame
		if f, err = s.frameFor(s.b.Part(i), since, s.b.Ring[i]); f != nil {
			g.held = append(g.held, f)
			s.b.HoldPart(i)
		}
	}
	// however that ended: whoever looks for their keys would READ the parent each time
	return errors.Join(err, patiently(s.b.PS, s.b.ConnectParts))
}

// tidyEmpty merges leaves that this session made without a pair, and that are empty still.
func (s *session) tidyEmpty() error {
	defer s.endRound()
	g := &s.batch.ready.growth
	for len(g.empty) > 0 {
		e := &g.empty[len(g.empty)-1]
		g.empty = g.empty[:len(g.empty)-1]
		if !s.isEmpty(e.leaf) {
			continue
		}
		s.beginRound() // the limit is of all that is prepared
		if err := patiently(s.b.PS, func() error { return s.b.TidyAt(e.low) }); err != nil {
			return fmt.Errorf("merge a leaf that stayed empty: %w", err)
		}
		if late := s.b.PS.Overdue(); late != nil {
			return fmt.Errorf("merge a leaf that stayed empty: %w", op.Failure(late, false))
		}
		s.x.presplits.tidied.Add(1)
		s.endRound() // so that epochs wait for one merge only
	}
	return nil
}

// isEmpty reports whether the leaf at a has a frame, and no pair.
func (s *session) isEmpty(a pool.Addr) bool {
	f := s.x.cache.Find(a)
	if f == nil || !f.TryLock() {
		return false
	}
	defer f.Unlock()
	var v frame.View
	if f.Addr() != a || !f.Open(&v) {
		return false
	}
	count, _ := f.Content(&v)
	return count == 0
}
