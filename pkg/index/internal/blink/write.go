package blink

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// mode is what a write may find.
type mode uint8

const (
	insert mode = iota
	update
	upsert
)

// Insert implements index.Session.
func (s *session) Insert(key, value []byte) error { return s.write(key, value, insert, "insert") }

// Update implements index.Session.
func (s *session) Update(key, value []byte) error { return s.write(key, value, update, "update") }

// Upsert implements index.Session.
func (s *session) Upsert(key, value []byte) error { return s.write(key, value, upsert, "upsert") }

// write is two round trips when the inner nodes are in the cache, nobody else holds the lock and the leaf has room: lock
// with READ, then entry and slot word with the release. A value too long for its entry is written to a block in the second one, and the block that it replaces
// is marked there; a third one is posted where one of the blocks is on another server than the leaf.
func (s *session) write(key, value []byte, m mode, what string) error {
	s.Begin()
	defer s.End()
	return s.put(key, value, m, what)
}

// put is write as a part of an operation.
func (s *session) put(key, value []byte, m mode, what string) error {
	if err := s.lay.CheckPair(key, value); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for {
		err := s.writeOnce(key, value, m, what)
		if !errors.Is(err, index.ErrPoolFull) || !s.mayWait(value) {
			return err
		}
	}
}

// mayWait says, where there is no memory, whether value needs a block and the wait for one is worth it, and waits a little.
func (s *session) mayWait(value []byte) bool {
	return len(value) > s.lay.Inline && s.AwaitMemory()
}

// writeOnce is write, but does not wait for memory.
func (s *session) writeOnce(key, value []byte, m mode, what string) error {
	fp := s.lay.Fingerprint(key)
	var l leaf
	if err := s.lockLeaf(&l, key); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	i, old, o := l.find(key, fp)
	switch {
	case o == torn:
		return s.Unlock(fmt.Errorf("%s: leaf %v does not verify under its lock: %w", what, l.addr, index.ErrFormat))
	case o == present && m == insert:
		return s.Unlock(index.ErrExists)
	case o == absent && m == update:
		return s.Unlock(index.ErrNotFound)
	case o == absent:
		i = l.vacant()
	default:
		s.Blocks.Replace(old)
	}
	e := s.made
	var err error
	if e == nil {
		e, err = s.Blocks.PutEntry(s.scratch, key, value, l.addr)
	}
	if err != nil {
		return s.Unlock(fmt.Errorf("%s: %w", what, err))
	}
	if off := l.place(&s.heap, len(e)); i >= 0 && off > 0 && !s.wholeLeaf(&l) {
		if err = s.writeEntry(&l, i, fp, off, e); err == nil && s.unlinked != pool.Nil {
			err = s.link()
		}
	} else {
		err = s.makeRoom(&l, e, o == present)
	}
	if err != nil {
		s.Blocks.Discard()
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// lockLeaf finds the leaf for key and takes its lock. When it returns an error no lock is held.
func (s *session) lockLeaf(l *leaf, key []byte) error {
	p, err := s.descend(key, holding, 0)
	if err != nil {
		return err
	}
	s.hit(&p)
	for hops := 0; ; {
		if err := s.lock(p.addr); err != nil {
			return err
		}
		if err := s.leafAt(l, p.addr); err != nil {
			if err := s.Unlock(nil); err != nil {
				return err
			}
			if grew, e := s.outgrown(p.addr, s.node); e != nil || !grew && err != errDead {
				return errors.Join(e, err)
			}
			if err := s.lost(&p, key); err != nil {
				return err
			}
			hops = 0
			continue
		}
		misled := l.below(key)
		if !misled && !l.above(key) {
			return nil
		}
		// s.node stays as it was read while the lock is given up.
		if err := s.Unlock(nil); err != nil {
			return err
		}
		if misled {
			if err := s.Misled(&p, key, &hops); err != nil {
				return err
			}
			continue
		}
		if err := s.follow(&p, l, key, &hops); err != nil {
			return err
		}
	}
}

// writeEntry puts entry e into free space of the locked leaf and publishes it through slot i. The requests, in one list:
//
//  1. WRITE of the entry, into space that no slot word points to: nobody can see it yet. Who still reads an entry that was there
//     before finds that it does not verify, and reads the leaf again.
//  2. WRITE of the slot word, one aligned word: the change takes effect at once. By G1 whoever sees it sees the entry.
//  3. release of the lock: by G1 whoever gets the lock sees both.
//
// A client that dies between any two of them leaves the old value or the new one.
func (s *session) writeEntry(l *leaf, i int, fp byte, off int, e []byte) error {
	l.put(i, fp, off, e)
	s.PS.Write(l.addr+pool.Addr(off), l.b[off:off+len(e)])
	at := l.slotAt(i)
	s.PS.Write(l.addr+pool.Addr(at), l.b[at:at+slotBytes])
	return s.publish()
}

// Delete implements index.Session. The slot and the entry's space can be used again at once.
func (s *session) Delete(key []byte) error {
	s.Begin()
	defer s.End()
	if err := s.lay.CheckKey(key); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	var l leaf
	err := s.lockLeaf(&l, key)
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	i, old, o := l.find(key, s.lay.Fingerprint(key))
	switch o {
	case torn:
		return s.Unlock(fmt.Errorf("delete: leaf %v does not verify under its lock: %w", l.addr, index.ErrFormat))
	case absent:
		return s.Unlock(index.ErrNotFound)
	}
	s.Blocks.Replace(old)
	l.remove(i)
	d := l.load()
	if s.wholeLeaf(&l) {
		err = s.rewriteWithout(&l)
	} else {
		err = s.clearSlot(&l, i)
	}
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if d.used() < s.lay.nodeBytes/underfull {
		if err := s.tidy(key, l.addr, d); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	return nil
}

// clearSlot writes slot i of the locked leaf, which is empty now: one list of the WRITE of its word, which takes effect at once, and the release.
func (s *session) clearSlot(l *leaf, i int) error {
	at := l.slotAt(i)
	s.PS.Write(l.addr+pool.Addr(at), l.b[at:at+slotBytes])
	return s.publish()
}

// makeRoom puts entry e into the locked leaf, which has no free slot or no free space for it: it compacts the leaf if that
// frees enough to pay, else it splits it. If there is no memory for a split, the leaf is packed as tightly as it must be.
func (s *session) makeRoom(l *leaf, e []byte, replaces bool) error {
	p := &s.pairs
	if !l.collect(p) {
		return s.Unlock(fmt.Errorf("leaf %v does not verify under its lock: %w", l.addr, index.ErrFormat))
	}
	if replaces {
		p.replace(e)
	} else {
		p.add(e)
	}
	p.sort()
	d, room := loadOf(p.list), s.lay.room(l.low, l.high)
	if d.packs(room, s.t.with.twoLevelVersions) {
		return s.rewrite(l, p)
	}
	err := s.splitLeaf(l, p, !replaces && p.list[len(p.list)-1].off == 0)
	if errors.Is(err, index.ErrPoolFull) && d.used() <= room {
		return s.rewrite(l, p)
	}
	if err != nil && s.PS.Holds() {
		return s.Unlock(err)
	}
	return err
}

// packs says whether a leaf with room bytes is compacted to hold d, where an entry more has not fitted: if a sixteenth is free afterwards and there is a spare; without a
// spare, if leaves are rewritten for each change anyway. A leaf of one entry cannot be divided: it holds any one.
func (d *load) packs(room int, spared bool) bool {
	return d.used()+d.spare() <= room-room/16 || !spared && d.used() <= room || d.count == 1
}

// rewrite replaces the locked leaf by a compacted image of p under the next version, in place. Its slots have other contents, so a
// reader that sees words of both versions finds that some do not verify, and reads again. A client that dies in the midst of it leaves
// a repair record (pool.Session.Rewrite). ErrPoolFull: there is no memory for the image.
func (s *session) rewrite(l *leaf, p *pairs) error {
	if err := s.PS.ReserveRewrite(l.addr, s.lay.nodeBytes); err != nil {
		return s.Unlock(op.Failure(err, false))
	}
	h := l.header
	h.version++
	n := buildLeaf(s.left, s.lay, l.addr, &h, p, 0, len(p.list))
	if !s.t.with.twoLevelVersions {
		n = s.lay.nodeBytes
	}
	s.PS.Rewrite(l.addr, s.left[:n])
	if err := s.publish(); err != nil || s.unlinked == pool.Nil {
		return err
	}
	return s.link()
}
