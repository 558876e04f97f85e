package pool

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// The repair of what lock words guard; word.go has the protocol.

// WordMemory is the data region as its memory server changes it: by the same atomics as its clients
// (G2).
type WordMemory interface {
	lock.Memory
	// Chunks are where the chunks of the index begin, and the size of each.
	Chunks() (at []uint64, bytes uint64)
}

// IntentBytes is the size of an intent slot.
const IntentBytes = lock.SlotBytes

// SweepWords turns lock words that clients held to Repair, and returns how many: what fencing does
// once nothing of these clients takes effect any more. They lie in the strips of the index's
// chunks, or its intent slots, from offset first on, name them. It may be cut short and done again.
func SweepWords(m WordMemory, first uint64, slots int, ids []uint16) (turned int, err error) {
	return lock.Sweep(m, first, slots, ids, func(see func(*lock.Strip) error) error { return eachStrip(m, see) })
}

// eachStrip calls see for the strips that the tables of the chunks of an index say.
func eachStrip(m WordMemory, see func(*lock.Strip) error) error {
	chunks, size := m.Chunks()
	if len(chunks) == 0 {
		return nil
	}
	g := geometryOf(size)
	words, table := make([]uint64, g.slabs), make([]byte, g.tables)
	for _, first := range chunks {
		if err := m.LoadWords(first, words); err != nil {
			return err
		}
		for i, w := range words {
			binary.NativeEndian.PutUint64(table[8*i:], w)
		}
		slabs, _ := Slabs(table, Addr(first), size)
		for i := range slabs {
			k := &slabs[i]
			if k.Strip == Nil {
				continue
			}
			there := func() (bool, error) {
				var now [1]uint64
				err := m.LoadWords(first+8*uint64(k.at), now[:])
				return now[0] == words[k.at], err
			}
			if err := see(&lock.Strip{At: uint64(k.Strip), Words: k.Nodes, There: there}); err != nil {
				return err
			}
		}
	}
	return nil
}

// SlotOwners are the ids of the clients that have intent slots, as those of SweepWords. A client
// whose change is owed has its slot until somebody has repaired it.
func SlotOwners(m WordMemory, first uint64, slots int) (ids []uint16, err error) {
	return lock.Owners(m, first, slots)
}

// repairAcquiredWord is lines 3 to 7 of the protocol, for a word that was acquired from Repair. If
// what is owed is damaged, or the design's hook waited in vain, the word says Repair again. After
// another error the word is this client's.
func (s *Session) repairAcquiredWord(l *wordLock, spans []Span) error {
	err := s.repairWord(l)
	if (errors.Is(err, errDamaged) || errors.Is(err, ErrTimeout)) && s.broken == nil {
		s.queueTo(l.server, s.turnLane(l, Repair, 0, 0))
		if e := s.postHeld(l); e != nil {
			return e
		}
		return err
	}
	if err == nil && len(spans) > 0 {
		for _, span := range spans {
			s.Read(span.At, span.Local)
		}
		err = s.Post()
	}
	if err != nil && s.broken == nil {
		s.broken = err
	}
	return err
}

func (s *Session) repairWord(l *wordLock) error {
	owed, err := s.redoOwed(l)
	if err != nil {
		return fmt.Errorf("repair what lock word %v guards: %w", l.word.At, err)
	}
	if f := s.pool.rebuild.Load(); f != nil {
		l.held = true
		s.lockWord = *l
		mask, own, err := (*f)(s, l.word, l.own, s.part)
		s.lockWord = wordLock{}
		if err != nil {
			return fmt.Errorf("rebuild lock word %v: %w", l.word.At, err)
		}
		mask &= ownMask
		s.queueTo(l.server, s.turnLane(l, s.pool.client, mask, own))
		if err := s.postHeld(l); err != nil {
			return err
		}
		l.own = l.own&^mask | own&mask
	}
	for _, o := range owed {
		s.queueTo(l.server, verbs.Request{Op: verbs.CompareSwap, Remote: o.at, Local: s.old, Compare: o.owner})
		if err := s.Post(); err != nil {
			return err
		}
	}
	return nil
}

// owedSlot is a slot whose change is made.
type owedSlot struct{ at, owner uint64 }

// redoOwed makes the changes that slots owe the word.
func (s *Session) redoOwed(l *wordLock) (owed []owedSlot, err error) {
	at := l.word.At.Offset()
	err = s.eachSlot(l.server, 0, func(offset uint64, b []byte) (bool, error) {
		var slot lock.Slot
		slot.Decode(b)
		if !slot.Owed || !slot.Names || slot.Name.Word != at {
			return true, nil
		}
		owed = append(owed, owedSlot{offset, binary.NativeEndian.Uint64(b)})
		if !slot.Under {
			return true, nil
		}
		if err := s.redoChange(&slot.Change, l); err != nil {
			return false, fmt.Errorf("intent slot at %#x of memory server %d: %w", offset, s.pool.servers()[l.server].id, err)
		}
		return true, nil
	})
	return owed, err
}

// errDamaged is returned when a change that is owed cannot be made, and nothing of it was.
var errDamaged = fmt.Errorf("what a dead client owes is damaged: %w", ErrFormat)

// dataBytes is the size of a server's data region.
func (s *server) dataBytes() uint64 {
	for _, r := range s.conn.Regions() {
		if r.ID == verbs.RegionData {
			return min(r.Size, 1<<offsetBits)
		}
	}
	return 0
}

// redoChange makes a change under a word, in parts of the size of s.part. An image that was cut
// short has no change that verifies: so one that does not match is damage.
func (s *Session) redoChange(c *lock.Change, l *wordLock) error {
	srv, length, word := s.pool.servers()[l.server], uint64(c.Length), l.word.At.Offset()
	size := srv.dataBytes()
	if length > s.pool.ChunkBytes() || length > size || c.Image > size-length || c.Target > size-length ||
		c.Target < word+8 && word < c.Target+length {
		return fmt.Errorf("a change of %d bytes from %#x to %#x: %w", c.Length, c.Image, c.Target, errDamaged)
	}
	server := srv.id
	r := record{image: NewAddr(server, c.Image), node: NewAddr(server, c.Target), length: c.Length, sum: c.Sum}
	matches, err := s.verifyImage(&r, s.part)
	if err != nil {
		return err
	}
	if !matches {
		return fmt.Errorf("its image does not match: %w", errDamaged)
	}
	if err := s.copyImage(&r, s.part); err != nil {
		return err
	}
	s.pool.repaired.Add(1)
	return nil
}

// RepairWords brings to an end, on all servers, what clients left half done under lock words that
// are fenced by now: RepairAll for lock words. Each READ of slots, and each word, is an operation
// of the session.
func (s *Session) RepairWords() error {
	for i, srv := range s.pool.members() {
		if err := s.repairOwed(i, true); err != nil {
			return fmt.Errorf("repair all lock words of memory server %d: %w", srv.id, err)
		}
	}
	s.End()
	return nil
}

// repairOwed makes the changes of all slots of a server that owe one; without wait not those that
// somebody is about to make.
func (s *Session) repairOwed(server int, wait bool) error {
	var owing []uint64
	s.Begin()
	err := s.eachSlot(server, 0, func(offset uint64, b []byte) (bool, error) {
		var slot lock.Slot
		if slot.Decode(b); slot.Owed && slot.Names {
			owing = append(owing, offset)
		}
		return true, nil
	})
	var damage error
	for _, offset := range owing {
		if err != nil {
			break
		}
		if err = s.repairSlot(server, offset, wait); errors.Is(err, errDamaged) && s.broken == nil {
			damage, err = errors.Join(damage, err), nil
		}
	}
	return errors.Join(err, damage)
}

// repairSlot makes the change of a slot, if it owes one, as an operation. The slot is read within
// it: the address of the word comes from there, and an operation that began before holds it no
// more. A word is not free while a slot owes it a change.
func (s *Session) repairSlot(server int, offset uint64, wait bool) error {
	srv := s.pool.servers()[server]
	s.Begin()
	b := s.area[:lock.SlotBytes]
	s.Read(NewAddr(srv.id, offset), b)
	if err := s.Post(); err != nil {
		return err
	}
	var slot lock.Slot
	if slot.Decode(b); !slot.Owed || !slot.Names {
		return nil
	}
	n, size := &slot.Name, srv.dataBytes()
	if n.Word%8 != 0 || n.Word >= size || n.Node >= size {
		return fmt.Errorf("lock word %#x of node %#x: %w", n.Word, n.Node, errDamaged)
	}
	w := Word{At: NewAddr(srv.id, n.Word), Node: NewAddr(srv.id, n.Node)}
	s.Read(w.At, s.word)
	if err := s.Post(); err != nil {
		return err
	}
	if holder := lock.Holder(binary.NativeEndian.Uint64(s.word)); holder == 0 || !wait && holder != Repair {
		return nil
	}
	_, err := s.Acquire(w)
	if err == nil {
		err = s.PostRelease(0, 0)
	}
	return err
}

// Rebuild makes the own bits of a lock word from what the word guards, where its holder died: those
// in mask become bits'. The session holds the lock, which Rebuild must not release, and w.Node is
// whole. It makes no Rewrite: a change of its own could be owed beside the one that it repairs. own
// is what the bits were. room is a buffer of the session, of RebuildRoom bytes. With ErrTimeout the
// word says Repair again, for the next one. Safe for concurrent use.
type Rebuild func(s *Session, w Word, own uint64, room []byte) (mask, bits uint64, err error)

// RebuildRoom is the size of the buffer that Rebuild gets.
const RebuildRoom = partBytes

// SetRebuild says how own bits of lock words are made from the data. Before that they stay as they
// were.
func (p *Pool) SetRebuild(f Rebuild) { p.rebuild.Store(&f) }
