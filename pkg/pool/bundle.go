package pool

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// RewriteAll changes several nodes, each under its own lock, so that a client which dies in the
// middle of it leaves all of them changed or none: what merging two nodes and their parent needs.
// One of the locks is the main one. The requests, each line posted and awaited before the next:
//
//  1. at each other node: WRITE of its image to a place that nobody knows; WRITE of a record of
//     kind member, which names the main node;
//  2. at the main node: WRITE of its image; WRITE of the list of all nodes and images, to a place
//     that nobody knows; WRITE of a record of kind bundle, which names the list;
//  3. node by node, in the order given: WRITE of the node;
//  4. at the main node: WRITE of zero over the record; the release of its lock;
//  5. at each other node: the same.
//
// One of the changes can be that of the root word (RewriteAndSwap). It has no image: the list has
// its new value, and step 3 is a compare-and-swap.
//
// An image, or the list, may lie on another server than the lock whose record names it, where that
// one has no room. It is then posted and awaited before the line that it is in (repair.go).
//
// A client that is cut off before 2 is complete has changed no node. After that, whoever acquires
// the main lock, which says Repair, does 3 again, in the same order. bundle_repair.go has the
// requests of that, and why no late one does harm.
//
// Readers acquire no locks. In the order of 3, each of them may see the first nodes changed and the
// others not; that this is right is up to the design.
//
// The list, little-endian: for each change, in the order of 3,
//
//	offset  size  field
//	0       8     address of the node, or of the root word
//	8       8     address of the image; of the root word its new value
//	16      4     length of the image; 0 = the change is that of the root word
//	20      4     CRC-32C of the image; of the root word that of its old value

// Change is one node's part in RewriteAll.
type Change struct {
	Session *Session // holds the node's lock, nothing else is queued in it; each change has its own
	Node    Addr
	Image   []byte // in a buffer of the session
}

const (
	changeBytes = 24
	maxChanges  = 4
)

// RootSwap is the change of the root word as a part of a bundle.
type RootSwap struct {
	// holds the lock of the root word, nothing else is queued in it; nil if the main lock is that
	// one, too
	Session  *Session
	From, To Addr
}

// record is the swap as a record of kind member, and as an entry of the list, has it.
func (r *RootSwap) record(p *Pool) record {
	return record{recordMember, r.To, p.rootWord(), 0, sumOfWord(uint64(r.From))}
}

func sumOfWord(w uint64) uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], w)
	return crc32.Checksum(b[:], castagnoli)
}

// RewriteAll makes changes, in that order, and gives up their locks; changes[main] is the one whose
// lock is the main one. size is what nodes have. If the locks are still held when it returns an
// error, there was no room for the images (ErrPoolFull, or why none could be asked for), and
// nothing was changed. Else the error kills the client, and whether the change is made is unknown.
func RewriteAll(size, main int, changes ...Change) error {
	return rewriteBundle(size, main, nil, changes)
}

// RewriteAndSwap is RewriteAll of one node behind a change of the root word, which says swap.From:
// so the session that has its lock has found it.
func RewriteAndSwap(size int, swap RootSwap, change Change) error {
	return rewriteBundle(size, 0, &swap, []Change{change})
}

func rewriteBundle(size, main int, swap *RootSwap, changes []Change) error {
	if len(changes) > maxChanges-1 {
		panic("pool: too many nodes for RewriteAll")
	}
	if swap != nil && swap.To == Nil {
		panic("pool: RewriteAndSwap to a root that is nowhere")
	}
	m := changes[main].Session
	list, err := reserveAll(size, m, changes)
	if err != nil {
		return err
	}
	if err := rewriteAll(main, list, swap, changes); err != nil {
		for _, c := range changes {
			c.Session.abandon(err)
		}
		if swap != nil && swap.Session != nil {
			swap.Session.abandon(err)
		}
		return err
	}
	m.pool.returnImage(list, size)
	return nil
}

// abandon gives the client up if the session still holds its lock. The place of its image may still
// be needed for repair.
func (s *Session) abandon(err error) {
	s.clear()
	if s.lock.held {
		s.lock = tableLock{}
		s.image = Nil
		_ = s.markDead(err)
	}
}

// reserveAll finds a place for each image and one for the list, as a part of the operation of main.
// It waits for memory servers, but not for places that others have: nobody who holds some of them
// waits for more.
func reserveAll(size int, main *Session, changes []Change) (list Addr, err error) {
	for _, c := range changes {
		s := c.Session
		if err == nil && s.image == Nil {
			s.image, _, err = s.pool.borrowImage(main, s.lock.server, size)
			s.imageBytes = size
		}
	}
	if err == nil {
		list, _, err = main.pool.borrowImage(main, main.lock.server, size)
	}
	if err != nil {
		for _, c := range changes {
			c.Session.doneRewriting()
		}
	}
	return list, err
}

func rewriteAll(main int, place Addr, swap *RootSwap, changes []Change) error {
	m := &changes[main]
	s := m.Session
	list := s.list[:0]
	if swap != nil {
		r := swap.record(s.pool)
		list = r.appendTo(list)
		if o := swap.Session; o != nil {
			r.node = m.Node
			if err := o.postRecord(&r); err != nil {
				return err
			}
		}
	}
	for i, c := range changes {
		r := recordFor(recordMember, c.Session.image, c.Node, c.Image)
		list = r.appendTo(list)
		if err := c.Session.writeImage(r.image, c.Image); err != nil {
			return err
		}
		if i == main {
			continue
		}
		r.node = m.Node
		if err := c.Session.postRecord(&r); err != nil {
			return err
		}
	}
	r := recordFor(recordBundle, place, m.Node, list)
	if err := s.writeImage(place, list); err != nil {
		return err
	}
	if err := s.postRecord(&r); err != nil {
		return err
	}
	if swap != nil {
		o := swap.Session
		if o == nil {
			o = s
		}
		if err := o.changeRoot(uint64(swap.From), uint64(swap.To)); err != nil {
			return err
		}
	}
	for _, c := range changes {
		c.Session.write(c.Node, c.Image)
		if err := c.Session.Post(); err != nil {
			return err
		}
	}
	if err := s.clearAndUnlock(); err != nil {
		return err
	}
	for i := range changes {
		if i == main {
			continue
		}
		if err := changes[i].Session.clearAndUnlock(); err != nil {
			return err
		}
	}
	if swap != nil && swap.Session != nil {
		return swap.Session.clearAndUnlock()
	}
	return nil
}

// appendTo appends the entry of a change to a list.
func (r *record) appendTo(list []byte) []byte {
	list = binary.LittleEndian.AppendUint64(list, uint64(r.node))
	list = binary.LittleEndian.AppendUint64(list, uint64(r.image))
	list = binary.LittleEndian.AppendUint32(list, uint32(r.length))
	return binary.LittleEndian.AppendUint32(list, r.sum)
}

// writeImage queues the WRITE of an image, or of a list, that a record is to name. To another
// server than the lock's it is posted, so that it is confirmed before the record.
func (s *Session) writeImage(place Addr, image []byte) error {
	s.write(place, image)
	if i, _ := s.pool.serverOf(place); i != s.lock.server {
		return s.postOthers(s.lock.server)
	}
	return nil
}

// postRecord posts what is queued and, behind it, the record of the lock that the session holds.
func (s *Session) postRecord(r *record) error {
	r.encode(s.record)
	s.write(s.pool.recordOf(&s.lock), s.record)
	return s.Post()
}

// clearAndUnlock clears the record of the lock that the session holds, and gives the lock up.
func (s *Session) clearAndUnlock() error {
	s.write(s.pool.recordOf(&s.lock), s.zero)
	return s.PostUnlock()
}

// changeRoot changes the root word, whose lock this client has.
func (s *Session) changeRoot(from, to uint64) error {
	found, err := s.SwapWord(s.pool.rootWord(), from, to)
	if err == nil && found != from {
		err = fmt.Errorf("the root is %v, not %v, under its lock: %w", Addr(found), Addr(from), ErrFormat)
	}
	return err
}
