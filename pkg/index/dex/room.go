package dex

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
)

// A replay in a full pool. A change may need a leaf that is made for it, or a place for the image
// of one that is compacted; so may the division of a leaf at an end of the range. (Values in blocks
// need none: their blocks were there before their records.) What finds no memory is put off, and
// all the rest is done: of each key there is one change, so their order is free. Then leaves that
// deletions have emptied are merged, and what was put off is tried again, as long as some of it
// gets done or memory is on its way back.
//
// Merges need places for images, so these are taken first, on all servers, and what is not needed
// of them any more becomes leaves in the end. A client that never had a leaf on a server gets such
// places in a full pool only from the chunks of the dead one, which it adopts: it had some, and
// never used most of them.
//
// What is left then makes Take fail with ErrPoolFull. Nothing is lost: the logs are as they were,
// and the next Take does it again from the beginning, where what is done already is found to be so.
//
// Why leaves may be merged meanwhile: they are the range's as a whole, which no client
// serves; no other session of this client may claim them, as the range is not among those that were
// taken; and this session does one thing after the other. A merge holds their locks, as ever, and
// one that a death cuts short is repaired before the next client replays.
//
// A leaf at an end of the range that could not be divided is open: it is changed under its lock
// alone, by the tree's own operations. No client owns the keys on the other side: it would have
// divided the leaf there. One may take them meanwhile, and divide it: then the leaf ends where this
// range does, but the division may be under way still, and what it writes, or what is repaired if
// its client dies, would undo a change that was made without the lock. So it stays open until a
// division by this client has found, under the locks of the leaves on both sides, that nothing is
// to be done.

// How often what was put off is tried in one Take, and how long it waits in between for memory that
// is on its way.
const (
	mostPasses = 16
	roomPause  = 50 * time.Millisecond
)

// play writes all changes, and divides the leaves at the ends of the range.
func (p *replayer) play(all []change) error {
	left, tidied, spared := all, false, false
	for range mostPasses {
		before, reclaimed := len(left)+len(p.ends), p.x.pool.Reclaimed()
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
		if p.x.pool.Reclaiming(reclaimed) {
			p.x.env.Sleep(roomPause)
			continue
		}
		if spared || !p.x.pool.SpareRewrites(p.x.lay.NodeBytes) {
			break
		}
		spared = true // they were for merges
	}
	return fmt.Errorf("%d of %d changes that dead clients left, and %d ends of the range, find no memory; nothing is lost, but these keys wait until there is some: raise the quota of the index, or delete others: %w",
		len(left), len(all), len(p.ends), p.full)
}

// stock takes places for images before something takes memory for the first time: merges will need
// them if that is all that there is.
func (p *replayer) stock() {
	if !p.stocked {
		p.x.pool.StockRewrites(p.x.lay.NodeBytes)
	}
	p.stocked = true
}

// divide divides the leaves at the ends of the range, and keeps the ends where there is no memory
// for it.
//
// Two clients that take the keys on both sides of an end divide the leaf there at the same time.
// One of them does it; the other one finds the right leaf, which is complete before anything leads
// to it (btree.Session.SplitLeaf), and has no lock. It may find it while the first one is still
// rewriting the left leaf: by the sibling pointer of that, or because somebody has met that pointer
// and told the parent. If the left leaf is the second one's it would change it without its lock,
// and the rest of the rewrite, or its repair if the first one dies, would undo that. So whoever has
// divided at an end, or found that done, takes the lock of the leaf below it once: nobody rewrites
// that leaf then, what was left half done is repaired, and nobody begins anew, as nothing is to be
// divided there.
func (p *replayer) divide() error {
	var left [][]byte
	for _, key := range p.ends {
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

// isOpen reports whether an end of the range where nothing is divided yet, as far as this client
// has seen under the lock, lies in a leaf or at one of its fences.
func (p *replayer) isOpen(l *slotted.Leaf) bool {
	for _, key := range p.ends {
		if bytes.Compare(l.Low, key) <= 0 && (l.Rightmost || bytes.Compare(key, l.High) <= 0) {
			return true
		}
	}
	return false
}

// mergeEmptied merges the leaves from which changes have deleted keys with their neighbours, where
// they are nearly empty.
func (p *replayer) mergeEmptied(all []change) error {
	p.x.replaying.Store(p) // Take is called by one goroutine
	defer p.x.replaying.Store(nil)
	for i := 0; i < len(all); {
		key := all[i].record.key
		if i++; all[i-1].op != recordDelete {
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
		for ok && i < len(all) && bytes.Compare(all[i].record.key, low) < 0 {
			i++
		}
	}
	return nil
}
