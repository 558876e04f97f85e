package pool

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// RewriteAll changes several nodes, each under its own lock, so that a client which dies in the midst of it leaves all of them
// changed or none: what merging two nodes and their parent needs. One of the locks is the main one. The requests, each line posted and
// awaited before the next:
//
//  1. at each other node: WRITE of its image to a place that nobody knows; WRITE of a record of kind link, which names the main node;
//  2. at the main node: WRITE of its image; WRITE of the list of all nodes and images, to a place that nobody knows; WRITE of a
//     record of kind bundle, which names the list;
//  3. node by node, in the order given: WRITE of the node;
//  4. at the main node: WRITE of zero over the record; the release of its lock;
//  5. at each other node: the same.
//
// A client that is cut off before 2 is complete has changed no node. After that, whoever takes the main lock, which says Repair, does 3
// again, in the same order: nobody changed these nodes in between, since the other locks are not free before 4 is complete.
//
// Whoever takes one of the other locks and finds Repair there, with a record of kind link, does not know how far the change went. It puts
// Repair back, takes the main lock, which brings the change to its end if need be, gives that up, and comes again. Having had the main lock, which the
// dead client had, it knows that the record there is no more than what others left: the dead client's requests take effect there no more,
// or that lock would not have been given. This also holds while the client is fenced on one server and not yet on the other. Nobody
// holds a lock and waits for one.
//
// Readers take no locks. In the order of 3, each of them may see the first nodes changed and the others not; that this is right is up to
// the design.
//
// The list, little-endian: for each node, in the order of 3,
//
//	offset  size  field
//	0       8     address of the node
//	8       8     address of the image
//	16      4     length of the image
//	20      4     CRC-32C of the image

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

// RewriteAll makes changes, in that order, and gives up their locks; changes[main] is the one whose lock is the main one. size is what nodes
// have. If the locks are still held when it returns an error, there was no room for the images (ErrPoolFull, or why none could be asked for), and nothing was
// changed. Else the error kills the client, and whether the change is made is unknown.
func RewriteAll(size, main int, changes ...Change) error {
	if len(changes) > maxChanges {
		panic("pool: too many nodes for RewriteAll")
	}
	m := changes[main].Session
	home := m.lock.server
	list, err := reserveAll(size, m, changes)
	if err != nil {
		return err
	}
	if err := rewriteAll(main, list, changes); err != nil {
		for _, c := range changes {
			s := c.Session
			s.clear()
			if s.lock.held {
				s.lock = lock{}
				s.image = Nil // its place may still be needed for repair
				_ = s.died(err)
			}
		}
		return err
	}
	m.pool.giveImage(home, list, size)
	return nil
}

// reserveAll finds a place for each image and one for the list, without waiting: nobody who holds some of them waits for more.
func reserveAll(size int, main *Session, changes []Change) (list Addr, err error) {
	for _, c := range changes {
		s := c.Session
		if err == nil && s.image == Nil {
			s.image, _, err = s.pool.takeImage(s.lock.server, size)
			s.imageBytes = size
		}
	}
	if err == nil {
		list, _, err = main.pool.takeImage(main.lock.server, size)
	}
	if err != nil {
		for _, c := range changes {
			c.Session.doneRewriting(c.Session.lock.server)
		}
	}
	return list, err
}

func rewriteAll(main int, place Addr, changes []Change) error {
	m := &changes[main]
	list := m.Session.list[:0]
	for i, c := range changes {
		s := c.Session
		r := recordFor(recordLink, s.image, c.Node, c.Image)
		list = binary.LittleEndian.AppendUint64(list, uint64(c.Node))
		list = binary.LittleEndian.AppendUint64(list, uint64(s.image))
		list = binary.LittleEndian.AppendUint32(list, uint32(r.length))
		list = binary.LittleEndian.AppendUint32(list, r.sum)
		s.Write(s.image, c.Image)
		if i == main {
			continue
		}
		r.node = m.Node
		r.encode(s.record)
		s.Write(s.pool.recordOf(&s.lock), s.record)
		if err := s.Post(); err != nil {
			return err
		}
	}
	s := m.Session
	r := recordFor(recordBundle, place, m.Node, list)
	r.encode(s.record)
	s.Write(place, list)
	s.Write(s.pool.recordOf(&s.lock), s.record)
	if err := s.Post(); err != nil {
		return err
	}
	for _, c := range changes {
		c.Session.Write(c.Node, c.Image)
		if err := c.Session.Post(); err != nil {
			return err
		}
	}
	if err := m.release(); err != nil {
		return err
	}
	for i := range changes {
		if i == main {
			continue
		}
		if err := changes[i].release(); err != nil {
			return err
		}
	}
	return nil
}

// release clears the record and gives the lock up.
func (c *Change) release() error {
	s := c.Session
	s.Write(s.pool.recordOf(&s.lock), s.zero)
	return s.PostUnlock()
}

// redoBundle makes the changes of a bundle whose record is r.
func (s *Session) redoBundle(r *record, room []byte) (done bool, err error) {
	if r.length == 0 || r.length%changeBytes != 0 || r.length > maxChanges*changeBytes {
		return false, fmt.Errorf("its list has %d bytes: %w", r.length, ErrFormat)
	}
	list := s.list[:r.length]
	s.Read(r.image, list)
	if err := s.Post(); err != nil {
		return false, err
	}
	if crc32.Checksum(list, castagnoli) != r.sum {
		return false, nil // see verifyImage
	}
	changes := make([]record, r.length/changeBytes)
	for i := range changes {
		b := list[i*changeBytes:]
		c := &changes[i]
		c.node, c.image = Addr(binary.LittleEndian.Uint64(b)), Addr(binary.LittleEndian.Uint64(b[8:]))
		c.length, c.sum = int(binary.LittleEndian.Uint32(b[16:])), binary.LittleEndian.Uint32(b[20:])
		matches, err := s.verifyImage(c, room)
		if err != nil {
			return false, err
		}
		if !matches {
			return false, fmt.Errorf("image %v of node %v does not match its list: %w", c.image, c.node, ErrFormat)
		}
	}
	for i := range changes {
		if err := s.copyImage(&changes[i], room); err != nil {
			return false, err
		}
	}
	return true, nil
}

// link is a record of kind link as found under a lock.
type link struct {
	server      int
	index       uint32
	image, main Addr
	sum         uint32
}

func linkOf(l *lock, r *record) link { return link{l.server, l.index, r.image, r.node, r.sum} }

// repairMain repairs the main lock of a bundle of which l, which this session has just got from a fenced client, is another one. l goes back
// to Repair meanwhile, and the link that is under it is noted as resolved.
func (s *Session) repairMain(l *lock, main Addr, node []byte) error {
	var r record
	r.decode(s.record)
	s.queueTo(l.server, s.turn(l, Repair))
	err := s.Post()
	s.leaveLocal(l)
	if err != nil {
		return s.died(err)
	}
	if err := s.Lock(main, node); err != nil {
		return fmt.Errorf("repair node %v first: %w", main, err)
	}
	if err := s.PostUnlock(); err != nil {
		return err
	}
	s.resolved = linkOf(l, &r)
	return nil
}
