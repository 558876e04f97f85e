package pool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The repair of a bundle (RewriteAll). A client is fenced on each memory server for itself, so at
// any moment a repairer may be fenced on some servers and not on the others, and what it posted to
// the others still takes effect there. So a request of a repairer changes a node only while that
// node's own lock says the repairer: then it lands before the fence on that server, and nobody has
// the lock before that fence. The requests, each line posted and awaited before the next:
//
//  1. at the main node: the lock, from Repair to the repairer's; READ of the record, of kind
//     bundle, and of its list;
//  2. at each other node: the lock, from Repair to the repairer's, and behind it a READ of its
//     record, which must be the member record that belongs to the list;
//  3. READ of all images;
//  4. node by node, in the order of the list: WRITE of the node, or the swap of the root word;
//  5. at the main node: WRITE of zero over the record;
//  6. at each other node: WRITE of zero over the record; the release of its lock. The main lock
//     stays the repairer's, which asked for it.
//
// Who may see what after each of them, while the repairer is fenced on any of the servers:
//
//   - After 1 the main lock keeps other repairers away, until the repairer is fenced at the main
//     node. Then the next one does all of it again.
//   - The request of 2 may take effect at any time until the repairer is fenced there: also when
//     another repairer is through, and even when the lock says Repair for another reason. It
//     changes nothing but the lock, and only from Repair. If the record is the member record of
//     this bundle, nobody has changed the node since the bundle's client: whoever acquires the lock
//     and finds the member record changes nothing before the bundle is over, and then clears it
//     before anything else. So the node is as the bundle's client left it, or as another repairer
//     of the same bundle did, and the images are what they were: WRITEs of 4 are right or change
//     nothing. If the record is another one, the lock goes back to Repair.
//   - WRITEs of 4 land under a lock that says the repairer, as none is given up before 6. If the
//     repairer is fenced there, nothing of 4 takes effect after the lock says Repair. Until then
//     nobody else may change the node, the next repairer included: it waits.
//   - After 5 the bundle is over: no repairer does 4 again. A repairer that is fenced at the main
//     node fails at 5, so it does not come to 6, and its other locks go back to Repair, one server
//     after another. Then the next repairer, or whoever acquires such a lock and finds the member
//     record, goes on.
//   - After 6 the node belongs to anybody. The repairer posts nothing to it any more.
//
// Nobody waits with a lock. Where a lock of 2 does not say Repair, the client that it names is not
// fenced there yet, or looks at the member record just now: the repairer puts all locks back to
// Repair, waits with none of them, and begins again. Two repairers of one bundle meet at the main
// lock only. Those of different bundles have no lock in common: a lock stays with the bundle of the
// client that died with it until its repair. Other sessions of the repairer's client may stand in
// the local queue of such a lock; it is acquired only if nobody has the local one.
//
// Whoever acquires one of the other locks from Repair and finds a member record there does not know
// how far the change went. It puts Repair back, acquires the main lock, which brings the bundle to
// its end if need be, gives that up, and comes again (repairMain). Having had the main lock, which
// the dead client had, it knows that the record is no more than what others left: whoever may still
// do 4 has the lock under which the record was found.

// heldError is returned where a repairer needs another lock, which is not to be had yet. Nothing
// was changed.
type heldError struct {
	node   Addr
	holder uint16 // 0 = another session of this client
}

func (e *heldError) Error() string {
	if e.holder == 0 {
		return fmt.Sprintf("the repair of what a dead client left half done needs the lock of node %v, which another session of this client is after", e.node)
	}
	return fmt.Sprintf("the repair of what a dead client left half done needs the lock of node %v, which client %d has, that is not fenced there", e.node, e.holder)
}

// heldIn is the heldError in err, if there is one.
func heldIn(err error) *heldError {
	var held *heldError
	if errors.As(err, &held) {
		return held
	}
	return nil
}

// redoBundle makes the changes of the bundle whose record r was found under main, a lock of this
// session.
func (s *Session) redoBundle(main *tableLock, r *record, room []byte) (done bool, err error) {
	changes, err := s.readList(r)
	if err != nil || changes == nil {
		return false, err
	}
	others, err := s.acquireOthers(main, r.node, changes)
	defer func() {
		for i := range others {
			s.leaveLocal(&others[i])
		}
	}()
	if err != nil {
		return false, err
	}
	for i := range changes {
		c := &changes[i]
		if c.length == 0 {
			continue
		}
		matches, err := s.verifyImage(c, room)
		if err != nil {
			return false, err
		}
		if !matches {
			return false, fmt.Errorf("image %v of node %v does not match its list: %w", c.image, c.node, ErrFormat)
		}
	}
	for i := range changes {
		if c := &changes[i]; c.length == 0 {
			err = s.redoSwap(c)
		} else {
			err = s.copyImage(c, room)
		}
		if err != nil {
			return false, err
		}
	}
	s.write(s.pool.recordOf(main), s.zero)
	if err := s.Post(); err != nil {
		return false, err
	}
	for i := range others {
		s.write(s.pool.recordOf(&others[i]), s.zero)
		if err := s.turnOther(&others[i], 0); err != nil {
			return false, err
		}
	}
	return true, nil
}

// readList reads the list of a bundle; nil if the record had been cut short after all: see
// verifyImage.
func (s *Session) readList(r *record) ([]record, error) {
	if r.length == 0 || r.length%changeBytes != 0 || r.length > maxChanges*changeBytes {
		return nil, fmt.Errorf("its list has %d bytes: %w", r.length, ErrFormat)
	}
	list := s.list[:r.length]
	s.Read(r.image, list)
	if err := s.Post(); err != nil {
		return nil, err
	}
	if crc32.Checksum(list, castagnoli) != r.sum {
		return nil, nil
	}
	changes := make([]record, r.length/changeBytes)
	for i := range changes {
		b := list[i*changeBytes:]
		changes[i] = record{kind: recordMember,
			node: Addr(binary.LittleEndian.Uint64(b)), image: Addr(binary.LittleEndian.Uint64(b[8:])),
			length: int(binary.LittleEndian.Uint32(b[16:])), sum: binary.LittleEndian.Uint32(b[20:])}
	}
	return changes, nil
}

// acquireOthers acquires the locks of all changes but that of the main one, each from Repair. Where
// that fails they go back to Repair: heldError. It returns those whose local locks the session has.
func (s *Session) acquireOthers(main *tableLock, mainNode Addr, changes []record) (others []tableLock, err error) {
	for _, c := range changes {
		l, err := s.pool.lockOf(c.node)
		if err != nil {
			return others, fmt.Errorf("its list names %v: %w: %w", c.node, err, ErrFormat)
		}
		if l.server == main.server && l.index == main.index {
			continue
		}
		member := c
		member.node = mainNode
		holder, err := s.acquireOther(&l, &member)
		if err != nil {
			return others, err
		}
		if holder == Repair {
			others = append(others, l)
			continue
		}
		for i := range others {
			if err := s.turnOther(&others[i], Repair); err != nil {
				return others, err
			}
		}
		return others, &heldError{c.node, holder}
	}
	return others, nil
}

// acquireOther acquires lock l from Repair if member is under it, and returns what the lock said:
// anything but Repair means that it was not acquired. Without an error and the lock, the session
// does not have the local lock.
func (s *Session) acquireOther(l *tableLock, member *record) (holder uint16, err error) {
	srv := s.pool.servers()[l.server]
	if !s.without.Flat && !srv.local.try(l.index) {
		return 0, nil
	}
	holder, err = s.fromRepair(l, srv.caps.MaskedAtomics)
	if err == nil && holder == Repair {
		var r record
		if r.decode(s.record) && r == *member {
			return Repair, nil
		}
		err = s.turnOther(l, Repair) // it is about another change
		holder = 0
	}
	s.leaveLocal(l)
	return holder, err
}

// fromRepair turns lock l from Repair to this client's, if it says so, with a READ of its record
// behind that. It returns what the lock said.
func (s *Session) fromRepair(l *tableLock, masked bool) (holder uint16, err error) {
	// not 0: without masked atomics that would acquire a lock that is free
	known := uint64(Repair) << l.shift
	for {
		s.queueTo(l.server, s.claimLock(l, known, Repair))
		s.Read(s.pool.recordOf(l), s.record)
		if err := s.Post(); err != nil {
			return 0, err
		}
		old := binary.NativeEndian.Uint64(s.old)
		holder = uint16(old >> l.shift)
		if holder != Repair || masked || old == known {
			return holder, nil
		}
		known = old // only the neighbours in the word changed
		if s.Overdue() != nil {
			return 0, nil
		}
	}
}

// turnOther posts what is queued and, behind it, turns lock l, which is this client's, to free or
// Repair.
func (s *Session) turnOther(l *tableLock, to uint64) error {
	s.queueTo(l.server, s.turnLock(l, to))
	if err := s.Post(); err != nil {
		return err
	}
	if holder := uint16(binary.NativeEndian.Uint64(s.old) >> l.shift); holder != s.pool.client {
		s.broken = fmt.Errorf("give back a lock that client %d holds: %w", holder, ErrFenced)
		return s.broken
	}
	return nil
}

// redoSwap makes the change of the root word that c says, unless it is made. Nobody else changes
// the word: this client has its lock.
func (s *Session) redoSwap(c *record) error {
	if c.node != s.pool.rootWord() {
		return fmt.Errorf("its list swaps the word at %v, which is not the root: %w", c.node, ErrFormat)
	}
	now, err := s.Root()
	if err != nil || now == c.image {
		return err
	}
	if sumOfWord(uint64(now)) != c.sum {
		return fmt.Errorf("its list changes another root than %v: %w", now, ErrFormat)
	}
	return s.changeRoot(uint64(now), uint64(c.image))
}

// foundMember is a record of kind member as found under a lock.
type foundMember struct {
	server      int
	index       uint32
	image, main Addr
	sum         uint32
}

func memberOf(l *tableLock, r *record) foundMember {
	return foundMember{l.server, l.index, r.image, r.node, r.sum}
}

// repairMain repairs the main lock of a bundle of which l, which this session has just got from a
// fenced client, is another one. l goes back to Repair meanwhile, and the record that is under it
// is noted as resolved.
func (s *Session) repairMain(l *tableLock, main Addr, node []byte) error {
	var r record
	r.decode(s.record)
	s.queueTo(l.server, s.turnLock(l, Repair))
	err := s.Post()
	s.leaveLocal(l)
	if err != nil {
		return s.markDead(err)
	}
	// The session offers a change of the node at l, which the holder of the main lock must not
	// find.
	offered := s.wait.Change()
	s.wait.Offer(nil)
	err = s.Lock(main, node)
	s.wait.Offer(offered)
	if err != nil {
		return fmt.Errorf("repair node %v first: %w", main, err)
	}
	if err := s.PostUnlock(); err != nil {
		return err
	}
	s.resolved = memberOf(l, &r)
	return nil
}
