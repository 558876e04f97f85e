package pool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A WRITE that changes a node in place can be cut short: its client dies, or the memory server's
// process does. Rewrite makes such a change whole. Every lock has a repair record on its memory
// server, in the data region; who holds the lock owns the record. The requests of a Rewrite, all in
// one list to one server, so in order of effect (G1):
//
//  1. WRITE of the new image of the node to a place that nobody knows;
//  2. WRITE of the lock's repair record: where the image is, and for which node;
//  3. WRITE of the node itself, in any order of its words;
//  4. WRITE of zero over the first word of the record;
//  5. the release of the lock.
//
// Whoever gets the lock from a release finds the record cleared. A client that is cut off anywhere
// keeps the lock until it is fenced, and fencing turns it to Repair. Whoever acquires it then looks
// at the record first. If it does not name an image, or does not verify with it, the node was not
// yet touched (before 2 is complete) or is complete (after 4 has begun: one word). If it does, the
// node may be half written, and the image, which was complete before the record was, is written
// over it: the operation takes effect now, at the latest. Nobody else changed the node in between,
// since the lock was never free; so writing the image over a node that is already complete changes
// nothing. The image's place is used again only after the list has ended without an error, so after
// 4. A client that dies while it repairs leaves the lock to the next one, who does all of it again.
//
// The image may lie on another server, where that of the node has no room for it: a server that
// joined when the others were full makes room for what lies on these. Then 1 is a list of its own,
// and is confirmed before the rest is posted (postOthers). So the image is complete before the
// record names it, as above. It stays so for as long as the record may be found, since its place
// has one user: the client that wrote it, which writes nothing else there before it knows 4 to have
// taken effect, and nothing at all after an error. That holds also for a client that is fenced at
// the node's server and not yet at the image's. Whoever adopts the chunk takes the image for a node
// in use. Every client reaches the server, since no client has memory of one that others do not
// reach (join.go).
//
// Where one WRITE as long as the image takes effect whole or not at all, whoever dies
// (Pool.WholeAlways), 3 is all that there is to do: a client that is cut off leaves the node as it
// was, or as it shall be. What readers see meanwhile is the same.
//
// The record, 32 bytes, little-endian:
//
//	offset  size  field
//	0       8     address of the image; 0 = there is nothing to repair
//	8       8     address of the node
//	16      3     length of the image
//	19      1     kind: 0 Rewrite; 1 and 2 RewriteAll (bundle.go)
//	20      4     CRC-32C of the image
//	24      4     CRC-32C of bytes 0 to 24
//	28      4     zero
const repairBytes = 32

// Kinds of repair records.
const (
	recordRewrite = iota
	recordBundle
	recordMember
)

// record is a decoded repair record.
type record struct {
	kind        byte
	image, node Addr
	length      int
	sum         uint32
}

// recordFor is the record of a change of node to image, which is at place.
func recordFor(kind byte, place, node Addr, image []byte) record {
	return record{kind, place, node, len(image), crc32.Checksum(image, castagnoli)}
}

func (r *record) encode(b []byte) {
	binary.LittleEndian.PutUint64(b[0:], uint64(r.image))
	binary.LittleEndian.PutUint64(b[8:], uint64(r.node))
	binary.LittleEndian.PutUint32(b[16:], uint32(r.length)|uint32(r.kind)<<24)
	binary.LittleEndian.PutUint32(b[20:], r.sum)
	binary.LittleEndian.PutUint32(b[24:], crc32.Checksum(b[:24], castagnoli))
}

// decode reports whether b verifies.
func (r *record) decode(b []byte) bool {
	r.image, r.node = Addr(binary.LittleEndian.Uint64(b)), Addr(binary.LittleEndian.Uint64(b[8:]))
	r.length, r.kind = int(binary.LittleEndian.Uint32(b[16:])&(1<<24-1)), b[19]
	r.sum = binary.LittleEndian.Uint32(b[20:])
	return binary.LittleEndian.Uint32(b[24:]) == crc32.Checksum(b[:24], castagnoli)
}

// recordOf is where the repair record of a lock lies.
func (p *Pool) recordOf(l *tableLock) Addr {
	s := p.servers()[l.server]
	return NewAddr(s.id, s.grant.Repair+uint64(l.index)*repairBytes)
}

// images are the places for images on one server, of one size. They stay what they are: in a full
// pool a rewrite must not lack one because a split was faster.
type images struct {
	size int
	free []Addr
	made int
}

// ReserveRewrite makes sure that a Rewrite of the node at a, whose lock the session holds, has a
// place for its image, of at most size bytes, if it needs one, and under a lock word an intent
// slot. ErrPoolFull: there is no memory for it; ErrNoIntent: there is no slot. What is queued is
// posted where the session has to claim a slot; else it stays.
func (s *Session) ReserveRewrite(a Addr, size int) error {
	server, err := s.lockedServer(a)
	if err != nil || s.image != Nil || s.pool.WholeAlways(a) >= size {
		return err
	}
	if l := &s.lockWord; l.held && l.slot == nil {
		if err := s.useSlot(l); err != nil {
			return err
		}
	}
	for try := 0; ; try++ {
		borrow := s.pool.borrowImage
		if s.lockWord.held { // whose slots name places of their own server
			borrow = s.pool.borrowImageOn
		}
		image, busy, err := borrow(s, server, size)
		if err == nil {
			s.image, s.imageBytes = image, size
			return nil
		}
		if !busy {
			return err
		}
		if late := s.Overdue(); late != nil {
			return fmt.Errorf("wait for room to rewrite a node: %w", late)
		}
		s.backOff(try) // another session will be through soon
	}
}

// lockedServer is the dense number of the server of the node at a, whose lock the session holds.
func (s *Session) lockedServer(a Addr) (int, error) {
	if s.lockWord.held && a.Server() == s.lockWord.word.At.Server() {
		return s.lockWord.server, nil
	}
	l, err := s.pool.lockOf(a)
	if err == nil && (!s.lock.held || s.lock.own || l.server != s.lock.server || l.index != s.lock.index) {
		panic(fmt.Sprintf("pool: rewrite of node %v without its lock", a))
	}
	return l.server, err
}

// borrowImage finds a place for an image of a node of server, for the operation of s, which may be
// nil: see fetch. It is on another server where that one has none. busy: there are places, but all
// are in use.
func (p *Pool) borrowImage(s *Session, server, size int) (image Addr, busy bool, err error) {
	image, busy, err = p.borrowImageOn(s, server, size)
	for i, other := range p.servers() {
		if busy || !errors.Is(err, ErrPoolFull) {
			break
		}
		if i == server || !other.counts.Load() || !p.alloc.mayPlace(i, size) {
			continue
		}
		var failed error
		if image, busy, failed = p.borrowImageOn(s, i, size); failed == nil || !errors.Is(failed, ErrPoolFull) {
			err = failed
		}
	}
	return image, busy, err
}

// mayPlace reports whether it is worth asking server i for a place: there are some, or it has not
// said lately that it is full.
func (a *allocator) mayPlace(i, size int) bool {
	now := a.pool.env.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	size = roundNode(size)
	return a.imagesOf(i, size).made > 0 || now >= a.class(size).full[i]
}

// borrowImageOn is borrowImage of a place on that server.
func (p *Pool) borrowImageOn(s *Session, server, size int) (image Addr, busy bool, err error) {
	a := p.alloc
	size = roundNode(size)
	a.mu.Lock()
	i, c := a.imagesOf(server, size), a.class(size)
	c.rewritten = true
	image, ok := i.pop()
	if !ok && (c.freedNodes[server] > 0 || c.hasRoom(server)) {
		image, err = a.makeImage(c, i, server)
		ok = true
	}
	a.mu.Unlock()
	if !ok {
		image, err = a.fetch(s, server, func() (Addr, error) { return a.makeImage(c, i, server) }, i.push)
	}
	if err != nil {
		a.mu.Lock()
		busy = i.made > 0
		a.mu.Unlock()
		return Nil, busy && errors.Is(err, ErrPoolFull), fmt.Errorf("allocate %d bytes to rewrite a node: %w", size, err)
	}
	return image, false, nil
}

// makeImage pops a place that is free by now, or makes another one, with calls if need be. a.mu is
// held.
func (a *allocator) makeImage(c *class, i *images, server int) (image Addr, err error) {
	image, ok := i.pop()
	if ok {
		return image, nil
	}
	if image, err = a.popFromSlab(c, server, false); err != nil {
		if errors.Is(err, ErrPoolFull) {
			c.full[server] = a.pool.env.Now() + fullFor
		}
		return Nil, err
	}
	a.setIdle(c, image)
	i.made++
	return image, nil
}

func (i *images) push(image Addr) { i.free = append(i.free, image) }

func (i *images) pop() (image Addr, ok bool) {
	n := len(i.free)
	if n == 0 {
		return Nil, false
	}
	image = i.free[n-1]
	i.free = i.free[:n-1]
	return image, true
}

// returnImage gives back what borrowImage found.
func (p *Pool) returnImage(image Addr, size int) {
	a := p.alloc
	server, _ := p.serverOf(image)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.imagesOf(server, roundNode(size)).push(image)
}

func (a *allocator) imagesOf(server, size int) *images {
	for len(a.images) <= server {
		a.images = append(a.images, nil)
	}
	for _, i := range a.images[server] {
		if i.size == size {
			return i
		}
	}
	i := &images{size: size}
	a.images[server] = append(a.images[server], i)
	return i
}

// Rewrite queues the change of the node at a, whose lock the session holds, to image, whole: see
// above; under a lock word, which image must not cover, see word.go. ReserveRewrite comes before
// it, PostUnlock or PostRelease after it; at most one node is rewritten under a lock. The first
// HeadBytes of the image are not all zero. The image belongs to the fabric until then.
func (s *Session) Rewrite(a Addr, image []byte) {
	if s.pool.WholeAlways(a) >= len(image) {
		s.rewriteWhole(a, image)
		return
	}
	if s.image == Nil || len(image) > s.imageBytes {
		panic(fmt.Sprintf("pool: rewrite of node %v with %d bytes, %d were reserved", a, len(image), s.imageBytes))
	}
	if s.lockWord.held {
		s.rewriteWord(a, image)
		return
	}
	r := recordFor(recordRewrite, s.image, a, image)
	r.encode(s.record)
	record := s.pool.recordOf(&s.lock)
	s.write(s.image, image)
	s.write(record, s.record)
	s.write(a, image)
	s.write(record, s.zero)
}

// rewriteWhole is Rewrite by one WRITE, which is never cut short.
func (s *Session) rewriteWhole(a Addr, image []byte) {
	if s.lockWord.held {
		s.checkRewrite(a, image)
	} else if _, err := s.lockedServer(a); err != nil {
		s.reject(err)
		return
	}
	s.write(a, image)
}

// doneRewriting gives the image's place back, once nothing refers to it.
func (s *Session) doneRewriting() {
	if s.image != Nil {
		s.pool.returnImage(s.image, s.imageBytes)
		s.image = Nil
	}
}

// repair brings to an end what the fenced holder of lock l, which this session acquired from it,
// may have left half done. node is room for a part of an image. If another lock has to be repaired
// first, main is a node under that one, and nothing was done. heldError: it cannot be done yet, and
// nothing was done.
func (s *Session) repair(l *tableLock, node []byte) (main Addr, err error) {
	at := s.pool.recordOf(l)
	s.Read(at, s.record)
	if err := s.Post(); err != nil {
		return Nil, err
	}
	var r record
	whole := r.decode(s.record)
	if r.image == Nil {
		return Nil, nil
	}
	if whole {
		if r.kind == recordMember && s.resolved != memberOf(l, &r) {
			return r.node, nil
		}
		done, err := s.redoRecord(l, &r, node)
		if err != nil {
			return Nil, fmt.Errorf("repair record %v: %w", at, err)
		}
		if done {
			s.pool.repaired.Add(1)
		}
	}
	// Else the record itself was cut short, and the node was not touched.
	s.write(at, s.zero)
	return Nil, s.Post()
}

// redoRecord makes the change that a record says. done is false if there is none to make.
func (s *Session) redoRecord(l *tableLock, r *record, room []byte) (done bool, err error) {
	if r.kind == recordMember {
		return false, nil // resolved
	}
	if of, err := s.pool.lockOf(r.node); err != nil || of.server != l.server || of.index != l.index {
		return false, fmt.Errorf("it names node %v, which is not under this lock: %w", r.node, ErrFormat)
	}
	if r.kind == recordBundle {
		return s.redoBundle(l, r, room)
	}
	done, err = s.verifyImage(r, room)
	if done && err == nil {
		err = s.copyImage(r, room)
	}
	return done, err
}

// verifyImage reads the image of a record, in parts of the size of room. It does not match if the
// record turns out to have been cut short after all: an earlier record of the same node and image
// place comes to life again with its first word, while the others of the new one are still missing.
// The image is the new one by then, so its checksum is not the old one's. Users choose much of an
// image, but nobody chooses two with one CRC: each has sums under the index's secret (package sum).
func (s *Session) verifyImage(r *record, room []byte) (matches bool, err error) {
	var have uint32
	err = s.eachPart(r, room, func(_ int, part []byte) error {
		have = crc32.Update(have, castagnoli, part)
		return nil
	})
	return have == r.sum, err
}

// copyImage writes an image over its node, in parts of the size of room. Nobody else writes either
// of them.
func (s *Session) copyImage(r *record, room []byte) error {
	return s.eachPart(r, room, func(at int, part []byte) error {
		s.write(r.node+Addr(at), part)
		return s.Post()
	})
}

func (s *Session) eachPart(r *record, room []byte, do func(at int, part []byte) error) error {
	for at := 0; at < r.length; at += len(room) {
		part := room[:min(len(room), r.length-at)]
		s.Read(r.image+Addr(at), part)
		if err := s.Post(); err != nil {
			return err
		}
		if err := do(at, part); err != nil {
			return err
		}
	}
	return nil
}

// Repaired is how many half-made changes of fenced clients this client has brought to their end.
func (p *Pool) Repaired() uint64 { return p.repaired.Load() }

// markDead says that the session can do no more. With a lock in its hand, or in a node that it
// entered, it takes its client with it: the lock is this client's until that is fenced.
func (s *Session) markDead(err error) error {
	s.pool.Condemn(fmt.Errorf("a session died with a lock: %w", err))
	return err
}
