package replay

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
)

// A replay in a full pool. A change may need a new leaf, or a place for the image of a leaf that is
// compacted; so may the division of a leaf at an end of the range. (Values in blocks need neither:
// their blocks existed before their records.) A change that finds no memory is deferred, and all
// others are made: there is one change for each key, so their order is free. Then leaves that
// deletions have emptied are merged, and deferred changes are tried again while some succeed or
// memory is on its way back.
//
// Merges need places for images, so these are reserved first, on all servers, and those that are
// not needed any more become leaves at the end. A client that never had a leaf on a server gets
// such places in a full pool only from the chunks of the dead client, which it adopts: that one had
// some, and never used most of them.
//
// If changes are left, Take fails with ErrPoolFull. Nothing is lost: the logs are unchanged, and
// the next Take starts again from the beginning, and finds the finished changes done.
//
// Leaves may be merged meanwhile, because they are entirely the range's, which no client serves; no
// other session of this client may claim them, because the range is not taken yet; and this session
// does one thing at a time. A merge holds their locks, as always, and one that a death interrupts
// is repaired before the next client replays.
//
// A leaf at an end of the range that could not be divided is open: it is changed under its lock, by
// the tree's own operations. No client owns the keys on the other side: it would have divided the
// leaf there. A client may take them meanwhile and divide it. Then the leaf ends where this range
// does, but the division may still be under way, and what it writes, or what is repaired if its
// client dies, would undo a change that was made without the lock. So the leaf stays open until a
// division by this client has found, under the locks of the leaves on both sides, that nothing is
// to be done.

// How often deferred changes are tried in one Take, and the pauses for memory that is on its way.
const (
	mostPasses = 16
	roomPause  = 50 * time.Millisecond
)

// passes writes all changes, and divides the leaves at the ends of the range.
func (p *replayer) passes(all []change) error {
	left, tidied, spared := all, false, false
	for range mostPasses {
		before, reclaimed := len(left)+len(p.ends), p.Pool.Reclaimed()
		err := p.divide()
		if err == nil {
			left, err = p.all(left)
		}
		if err != nil {
			return err
		}
		switch now := len(left) + len(p.ends); {
		case now == 0:
			return nil
		case now < before:
			continue
		case !tidied:
			tidied = true
			if err := p.mergeEmptied(all); err != nil {
				return err
			}
		}
		if p.Pool.Reclaiming(reclaimed) {
			p.Env.Sleep(roomPause)
			continue
		}
		if spared || !p.Pool.SpareRewrites(p.Lay.NodeBytes) {
			break
		}
		spared = true // the places were for merges
	}
	return fmt.Errorf("%d of %d changes that dead clients left, and %d ends of the range, find no memory; nothing is lost, but these keys wait until there is some: raise the quota of the index, or delete others: %w",
		len(left), len(all), len(p.ends), p.full)
}

// stock reserves places for images before memory is first used: merges will need them if nothing
// else is left.
func (p *replayer) stock() {
	if !p.stocked {
		p.Pool.StockRewrites(p.Lay.NodeBytes)
	}
	p.stocked = true
}

// divide divides the leaves at the ends of the range, and keeps the ends for which there is no
// memory.
//
// Two clients that take the keys on both sides of an end divide the leaf there at the same time.
// One of them does it. The other one finds the right leaf, which is complete before anything leads
// to it (btree.Session.SplitLeaf), and holds no lock. It may find it while the first one is still
// rewriting the left leaf: by the left leaf's sibling pointer, or because another client followed
// that pointer and inserted the separator. If the left leaf is the second client's, it would change
// it without its lock, and the rest of the rewrite, or its repair if the first client dies, would
// undo that. So each client that has divided at an end, or found that done, acquires the lock of
// the leaf below it once: nobody rewrites that leaf then, an unfinished change is repaired, and no
// new one begins, because nothing is to be divided there.
func (p *replayer) divide() error {
	var left [][]byte
	for _, key := range p.ends {
		if err := p.mendEnd(key); err != nil {
			return err
		}
		if p.replays {
			if divided, err := p.s.IsDivided(key); err == nil && !divided {
				p.stock()
			}
		}
		err := p.splitAt(key)
		if err == nil {
			err = p.s.AwaitBelow(key)
		}
		switch {
		case errors.Is(err, index.ErrPoolFull):
			left, p.full = append(left, key), err
		case err != nil:
			return err
		}
	}
	p.ends = left
	return nil
}

// splitAt divides the leaf that holds key at it, as an operation of its own.
func (p *replayer) splitAt(key []byte) error {
	p.s.Begin()
	defer p.s.End()
	return p.s.Divide(key)
}

// isOpen reports whether an end of the range lies in the leaf, or at one of its fences, that is not
// yet divided as far as this client has seen under the lock.
func (p *replayer) isOpen(l *slotted.Leaf) bool {
	for _, key := range p.ends {
		if bytes.Compare(l.Low, key) <= 0 && (l.Rightmost || bytes.Compare(key, l.High) <= 0) {
			return true
		}
	}
	return false
}

// mergeEmptied merges nearly empty leaves, from which changes have deleted keys, with their
// neighbours.
func (p *replayer) mergeEmptied(all []change) error {
	p.s.Mergeable = p.taken.MayMerge
	defer func() { p.s.Mergeable = nil }()
	for i := 0; i < len(all); {
		key := all[i].Record.Key
		if i++; all[i-1].Op != record.Delete {
			continue
		}
		if err := p.s.MergeAt(key); err != nil {
			return err
		}
		p.s.Begin()
		path, err := p.s.Descend(key)
		p.s.End()
		if err != nil {
			return err
		}
		_, low, ok := path.Next(1)
		for ok && i < len(all) && bytes.Compare(all[i].Record.Key, low) < 0 {
			i++
		}
	}
	return nil
}
