package slottedtree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// makeRoom puts entry e into the locked leaf, which has no free slot or no free space for it: it
// compacts the leaf if that frees enough to pay, else it splits it. If there is no memory for a
// split, the leaf is packed as tightly as it must be.
func (s *Session) makeRoom(l *slotted.Leaf, e []byte, replaces bool) error {
	p := &s.pairs
	if !l.Collect(p) {
		return s.Unlock(fmt.Errorf("leaf %v does not verify under its lock: %w", l.Addr, index.ErrFormat))
	}
	if replaces {
		p.Replace(e)
	} else {
		p.Add(e)
	}
	p.Sort()
	d, room := slotted.LoadOf(p.List), s.Lay.Room(l.Low, l.High)
	if d.Packs(room, !s.t.wholeLeaves) {
		return s.rewrite(l, p)
	}
	err := s.splitLeaf(l, p, !replaces && p.List[len(p.List)-1].Off == 0)
	if errors.Is(err, index.ErrPoolFull) && d.Used() <= room {
		return s.rewrite(l, p)
	}
	if err != nil && s.PS.Holds() {
		return s.Unlock(err)
	}
	return err
}

// rewrite replaces the locked leaf by a compacted image of p under the next version, in place. Its
// slots have other contents, so a reader that sees words of both versions finds that some do not
// verify, and reads again. A client that dies during it leaves a repair record
// (pool.Session.Rewrite). ErrPoolFull: there is no memory for the image.
func (s *Session) rewrite(l *slotted.Leaf, p *slotted.Pairs) error {
	if err := s.PS.ReserveRewrite(l.Addr, s.Lay.NodeBytes); err != nil {
		return s.Unlock(op.Failure(err, false))
	}
	h := l.Header
	h.Version++
	n := slotted.Build(s.Image, s.Lay, l.Addr, &h, p, 0, len(p.List))
	if s.t.wholeLeaves {
		n = s.Lay.NodeBytes
	}
	s.PS.Rewrite(l.Addr, s.Image[:n])
	if err := s.Publish(); err != nil {
		return err
	}
	return s.ConnectMet()
}

// splitLeaf divides the locked leaf l, whose content shall be p (sorted), and gives the lock up.
// ErrPoolFull: there is no memory for a sibling, nothing was posted and the lock is still held.
func (s *Session) splitLeaf(l *slotted.Leaf, p *slotted.Pairs, newLast bool) error {
	at := slotted.SplitAt(&l.Header, p, newLast)
	return s.divide(l, p, at, s.Lay.Separator(p.Key(at-1), p.Key(at)), newLast)
}

// divide is splitLeaf with the entries from at on to the right of the separator.
func (s *Session) divide(l *slotted.Leaf, p *slotted.Pairs, at int, separator []byte, newLast bool) error {
	return s.SplitLeaf(&l.Header, separator, newLast, &halves{s: s, l: *l, p: p, at: at})
}

// wholeLeaf reports whether a change of the locked leaf shall write all of it back: without
// two-level versions, as FG does. In a full pool there may be no place for the image of a rewrite.
// Then the entry alone is written, so that deletes, and updates in place, go on.
func (s *Session) wholeLeaf(l *slotted.Leaf) bool {
	return s.t.wholeLeaves && !errors.Is(s.PS.ReserveRewrite(l.Addr, s.Lay.NodeBytes), pool.ErrPoolFull)
}

// rewriteWithout replaces the locked leaf by what is left of it, and gives the lock up.
func (s *Session) rewriteWithout(l *slotted.Leaf) error {
	p := &s.pairs
	if !l.Collect(p) {
		return s.Unlock(fmt.Errorf("leaf %v does not verify under its lock: %w", l.Addr, index.ErrFormat))
	}
	p.Sort()
	return s.rewrite(l, p)
}

// Divide makes key the low fence of a leaf: the one that holds it is divided there, whatever is in
// it. What is kept of that one must be written back before, and is old afterwards. It is a part of
// an operation.
func (s *Session) Divide(key []byte) error {
	for {
		if done, err := s.DivideOnce(key); done || err != nil {
			return err
		}
	}
}

// DivideOnce changes one leaf for Divide: the one that holds key now. done is false if the fence
// itself took too much room: the leaf was divided elsewhere, and the one of the two that holds key,
// which may be the new one, is to be divided next.
func (s *Session) DivideOnce(key []byte) (done bool, err error) {
	if err := s.Lay.CheckKey(key); err != nil {
		return false, fmt.Errorf("split at a key: %w", err)
	}
	if bytes.Equal(key, s.Lay.Bottom) {
		return true, nil
	}
	var l slotted.Leaf
	s.needsLock = true
	if err := s.lockLeaf(&l, key); err != nil {
		return false, fmt.Errorf("split at a key: %w", err)
	}
	if bytes.Equal(l.Low, key) {
		return true, s.Unlock(nil)
	}
	p := &s.pairs
	if !l.Collect(p) {
		return false, s.Unlock(fmt.Errorf("leaf %v does not verify under its lock: %w", l.Addr, index.ErrFormat))
	}
	p.Sort()
	at := 0
	for at < len(p.List) && item.Below(p.Key(at), key) {
		at++
	}
	left, right := slotted.LoadOf(p.List[:at]), slotted.LoadOf(p.List[at:])
	done = left.Used() <= s.Lay.Room(l.Low, key) && right.Used() <= s.Lay.Room(key, l.High)
	if done {
		err = s.divide(&l, p, at, key, false)
	} else {
		err = s.splitLeaf(&l, p, false)
	}
	if err != nil && s.PS.Holds() {
		err = s.Unlock(err)
	}
	return done, err
}
