package smart

import (
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// READs side by side, of scans, batches and checks.

const (
	// mostReads bounds the READs of one round: they fit the list of one server
	mostReads = verbs.MaxList
	// ringBytes is how much a round READs, but for one leaf or node that is larger
	ringBytes = 16 << 10
	// mostGap is how much a scan READs in vain at most to make one request of two: a NIC takes less
	// time for that than for a request
	mostGap = art.AddrUnit
)

// leastSpared is how much a READ of a part of a leaf must spare: the other part may have to be READ
// as well, which takes a round trip. In builds with invariants it is little, as values are there.
var leastSpared = art.AddrUnit

func init() {
	if invariants.Enabled {
		leastSpared = 24
	}
}

// ring is the READs of one round, and their buffers. What lies side by side in memory is READ by
// one request: a bulk load puts leaves there in the order of their keys.
type ring struct {
	sums *sum.Key // of the leaves
	room []byte
	used int
	n    int
	next int // where find looks first: what is READ is mostly used in that order
	read [mostReads]planned

	order [mostReads]uint8 // the READs by their addresses
}

// planned is one READ.
type planned struct {
	at     art.Slot // address, packed
	start  pool.Addr
	size   int
	buffer int  // where in room
	leaf   int  // bytes of the leaf of which this is the first part; 0 = it is no such READ
	other  bool // of that leaf cell 1 has taken the place of cell 0
}

// ringRoom is how much of its arena a session takes for its ring.
func (l *layout) ringRoom() int {
	return max(ringBytes, art.AllocatedFor(l.maxRead)+art.AllocatedFor(art.Direct.Bytes()))
}

// arenaBytes is what a session's arena has for the rounds of scans, batches and checks, and for
// loads.
func (l *layout) arenaBytes() int { return l.ringRoom() + art.AddrUnit }

// allotRing makes the ring.
func (s *Session) allotRing(ps *pool.Session) (err error) {
	s.ring.sums = s.lay.Sums
	s.ring.room, err = ps.Buffer(s.lay.ringRoom())
	return err
}

func (r *ring) reset() { r.used, r.n, r.next = 0, 0, 0 }

// bytes is what was READ by the i-th READ of the round.
func (r *ring) bytes(i int) []byte {
	p := &r.read[i]
	return r.room[p.buffer:][:p.size]
}

// find returns the number of the READ of what w leads to; -1 if there is none in this round.
func (r *ring) find(w art.Slot) int {
	w &= art.AddrMask
	for k := range r.n {
		i := r.next + k
		if i >= r.n {
			i -= r.n
		}
		if r.read[i].at == w {
			r.next = i + 1
			return i
		}
	}
	return -1
}

// fetch plans a READ of bytes, a multiple of 8, from where w leads, or from the offset behind it.
// It returns its number, -1 if the round is full.
func (s *Session) fetch(w art.Slot, offset, bytes int) int {
	r := &s.ring
	if r.n == mostReads || r.used+bytes > len(r.room) {
		return -1
	}
	i := r.n
	r.read[i] = planned{at: w & art.AddrMask, start: w.Addr() + pool.Addr(offset), size: bytes}
	r.n++
	r.used += bytes
	return i
}

// grow plans to READ more bytes with the i-th READ: those behind it, or before it. It reports false
// if the round is full.
func (r *ring) grow(i, bytes int, before bool) bool {
	if r.used+bytes > len(r.room) {
		return false
	}
	r.used += bytes
	r.read[i].size += bytes
	if before {
		r.read[i].start -= pool.Addr(bytes)
	}
	return true
}

// fetchLeaf plans a READ of the leaf where w leads, or of its first part: a leaf that was never
// changed in place has its value there.
func (s *Session) fetchLeaf(w art.Slot) int {
	whole := w.LeafBytes()
	part := s.lay.firstPart(whole)
	if whole-part < leastSpared {
		return s.fetch(w, 0, whole)
	}
	i := s.fetch(w, 0, part)
	if i >= 0 {
		s.ring.read[i].leaf = whole
	}
	return i
}

// firstPart is how much to READ of a leaf of so many bytes to have cell 0, whatever its key is.
func (l *layout) firstPart(bytes int) int {
	longest := shape{key: l.MaxKey}.cellAt(0)
	return min(bytes, ((bytes+longest)/2+7)&^7)
}

// fetchAll awaits the READs of the round; then those of the cells that turn out to count. What lies
// no more than so many bytes apart is READ by one request.
func (s *Session) fetchAll(apart int) error {
	r := &s.ring
	if r.n == 0 {
		return nil
	}
	r.sort()
	spare := len(r.room) - r.used
	at := 0
	for i := 0; i < r.n; {
		first := &r.read[r.order[i]]
		first.buffer = at
		end := first.size
		for i++; i < r.n; i++ {
			p := &r.read[r.order[i]]
			gap := int(int64(p.start-first.start)) - end
			if p.start.Server() != first.start.Server() || gap < 0 || gap > min(apart, spare) {
				break
			}
			spare -= gap
			p.buffer = at + end + gap
			end += gap + p.size
		}
		s.PS.Read(first.start, r.room[at:at+end])
		at += end
	}
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	s.Pause()
	return s.fetchOthers()
}

// sort puts the READs into the order of their addresses. They mostly are.
func (r *ring) sort() {
	for i := range r.n {
		j, start := i, r.read[i].start
		for ; j > 0 && r.read[r.order[j-1]].start > start; j-- {
			r.order[j] = r.order[j-1]
		}
		r.order[j] = uint8(i)
	}
}

// fetchOthers READs the cells 1 that count of the leaves that were READ in part.
func (s *Session) fetchOthers() error {
	r := &s.ring
	queued := false
	for i := range r.n {
		p := &r.read[i]
		if p.leaf == 0 {
			continue
		}
		var l leaf
		if l.beginPart(r.sums, r.bytes(i), p.start, p.leaf) == whole && l.ctl.cell() == 1 {
			offset, b := l.otherCell()
			s.PS.Read(p.start+pool.Addr(offset), b)
			p.other, queued = true, true
		}
	}
	if !queued {
		return nil
	}
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	s.Pause()
	return nil
}

// open opens the i-th READ of the round, a leaf.
func (r *ring) open(l *leaf, i int) verdict {
	p := &r.read[i]
	if p.leaf == 0 {
		return l.open(r.sums, r.bytes(i), p.start)
	}
	return l.openPart(r.sums, r.bytes(i), p.start, p.leaf, p.other)
}

// openLeaf is open. A torn leaf is READ again until it is whole, or out of the tree.
func (s *Session) openLeaf(l *leaf, i int) (verdict, error) {
	p, b := &s.ring.read[i], s.ring.bytes(i)
	for range mostTorn {
		v := s.ring.open(l, i)
		if v != torn && v != apart {
			return v, nil
		}
		if err := s.Reread(p.start); err != nil {
			return torn, err
		}
		if err := s.Read(p.start, b); err != nil {
			return torn, err
		}
		p.other = false
		if s.ring.open(l, i) == apart {
			offset, cell := l.otherCell()
			if err := s.Read(p.start+pool.Addr(offset), cell); err != nil {
				return torn, err
			}
			p.other = true
		}
	}
	return out, nil
}
