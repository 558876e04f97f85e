package chime

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// A leaf is a hopscotch table (CHIME, sections 4.1 and 4.2; Herlihy, Shavit, Tzafrir: DISC 2008).
// Little-endian:
//
//	leaf:     | head | replica 0 | slots 0 to H-1 | replica 1 | slots H to 2H-1 | ...
//	head:     what every node begins with (package fence): version, sum, fences, sibling; up to
//	          Layout.HeadBytes. The unit ends with the fences.
//	replica:  offset  size  field
//	          0       4     version of the node
//	          4       4     CRC-32C of the sibling
//	          8       8     address of the right sibling; 0 = there is none
//	slot:     offset  size  field
//	          0       4     version of the node
//	          4       4     sum of bytes 14 to the entry's end (package sum)
//	          8       4     digest of the keys whose home this slot is
//	          12      2     bitmap of where they are: bit j = slot i+j
//	          14      2     length of the entry; 0xFFFF = the slot is empty
//	          16      ...   the entry (package item), then anything
//
// The home of a key is the slot that it hashes to. It lies in one of the H slots from its home on,
// its neighbourhood, which goes past the last slot to slot 0. The number of slots follows from the
// node's size. A node with less than H slots has that many for a neighbourhood.
//
// A slot has two parts that are written on their own. Its entry is a unit: version, length and
// content, sealed by the sum, which starts with the address, the version and the slot's number.
// Its home word, bytes 8 to 15, is one aligned word, which is never torn: so digest and bitmap
// change in one WRITE, and the sum has no part in them. The digest adds up a term for each key,
// which mixes the key's hash with the address, the version, the slot's number and where the key is.
// So a key that comes, goes or hops changes it, and what else there is need not be known.
//
// Keys are hashed under the index's secret, which its users do not know. Users choose keys. Without
// a secret they could choose such as have one home, of which a leaf takes no more than H, or such
// as have one term, whose digest says nothing.
const (
	replicaBytes = 16
	slotHead     = 16

	atSibling = 8

	atDigest = 8
	atBitmap = 12
	atLength = 14
	homeWord = 8

	emptySlot = 1<<16 - 1

	// Neighbourhood is the default number of slots in which a key can lie; leastNeighbourhood the
	// smallest that there is, mostNeighbourhood the largest, for which the bitmap has bits.
	Neighbourhood      = 8
	leastNeighbourhood = 2
	mostNeighbourhood  = 16

	// Span is how many slots the leaves of the default size have at least, if slots are small.
	Span = 64

	// maxSlots is how many a leaf has at most.
	maxSlots = 1024

	maxEntry = 1<<12 - 1
	// what leaves of the default size do not exceed for the sake of more slots
	largeLeaf   = 8 << 10
	leastSpan   = 16
	mostInline  = 256
	leastInline = 32
)

// shape is the layout of an index's leaves.
type shape struct {
	lay *fence.Layout
	// of the entries: that of the index, or where keys lie in blocks one of fingerprints
	codec *item.Codec
	n     int // slots
	hood  int // slots of a neighbourhood
	slot  int // bytes of a slot
	head  int // where replica 0 begins
}

// hoodOf is the neighbourhood of an index, as its options have it.
func hoodOf(l *fence.Layout) int {
	if l.Neighbourhood == 0 {
		return Neighbourhood
	}
	return l.Neighbourhood
}

// shapeOf is the shape that follows from the layout of nodes.
func shapeOf(l *fence.Layout) shape {
	hood := hoodOf(l)
	s := shape{lay: l, codec: codecOf(l), slot: slotBytes(l), head: l.HeadBytes()}
	room := l.NodeBytes - s.head
	// each group of hood slots has a replica
	group := replicaBytes + hood*s.slot
	s.n = room / group * hood
	if rest := room%group - replicaBytes; rest > 0 {
		s.n += rest / s.slot
	}
	s.n = min(s.n, maxSlots)
	s.hood = min(hood, s.n)
	if s.n < hood { // one group
		s.hood = s.n
	}
	return s
}

func slotBytes(l *fence.Layout) int { return slotHead + fence.RoundUp(codecOf(l).LongestEntry()) }

// groups is how many replicas there are.
func (s *shape) groups() int { return (s.n + s.hood - 1) / s.hood }

// replicaAt is where replica g begins.
func (s *shape) replicaAt(g int) int { return s.head + g*(replicaBytes+s.hood*s.slot) }

// slotAt is where slot i begins.
func (s *shape) slotAt(i int) int { return s.head + (i/s.hood+1)*replicaBytes + i*s.slot }

// end is where the last slot ends.
func (s *shape) end() int { return s.slotAt(s.n-1) + s.slot }

// next is the slot d behind slot i.
func (s *shape) next(i, d int) int {
	if i += d; i >= s.n {
		i -= s.n
	}
	return i
}

// ahead is how far slot i is behind slot from.
func (s *shape) ahead(from, i int) int {
	if i -= from; i < 0 {
		i += s.n
	}
	return i
}

// hash is that of a key as leaves have it, under the index's secret. It is a part of the format:
// the upper half decides the home, and all of it the term in the home's digest.
func (s *shape) hash(key []byte) uint64 { return siphash.Sum(s.lay.Secret, key) }

// home is the slot that a key hashes to; homeOf that of a hash.
func (s *shape) home(key []byte) int { return s.homeOf(s.hash(key)) }

func (s *shape) homeOf(hash uint64) int { return int(hash >> 32 * uint64(s.n) >> 32) }

// span is a piece of a leaf.
type span struct{ from, to int }

// neighbourhood returns the pieces of a leaf with the neighbourhood of home and a replica: one, or
// two if it goes past the last slot.
//
// A replica is in it, or beside it. If home begins a group, the group's replica is READ besides,
// which lies before it. Else the neighbourhood reaches the next group, and its replica lies
// between, or the neighbourhood goes on at slot 0, before which replica 0 lies.
func (s *shape) neighbourhood(home int) (p [2]span, n int) { return s.pieces(home, s.hood) }

// pieces is neighbourhood for count slots from slot i on.
func (s *shape) pieces(i, count int) (p [2]span, n int) {
	from := s.slotAt(i)
	if i%s.hood == 0 {
		from -= replicaBytes
	}
	if over := i + count - s.n; over > 0 {
		return [2]span{{from, s.end()}, {s.head, s.slotAt(over-1) + s.slot}}, 2
	}
	return [2]span{{from, s.slotAt(i+count-1) + s.slot}}, 1
}

// replicaOf is the replica that neighbourhood(home) has.
func (s *shape) replicaOf(home int) int {
	if home%s.hood == 0 {
		return home / s.hood
	}
	if g := home/s.hood + 1; g < s.groups() {
		return g
	}
	return 0
}

// newLayout checks options and fills in defaults.
func newLayout(o index.Options) (l fence.Layout, err error) {
	if l.Codec, err = item.NewCodec(o); err != nil {
		return l, err
	}
	if l.MaxValue > blocks.MaxValue {
		return l, fmt.Errorf("values of at most %d bytes: %d are possible", l.MaxValue, blocks.MaxValue)
	}
	if h := o.Neighbourhood; h != 0 && (h < leastNeighbourhood || h > mostNeighbourhood) {
		return l, fmt.Errorf("neighbourhoods of %d slots: %d to %d are possible", h, leastNeighbourhood, mostNeighbourhood)
	}
	// the default is stored as none, as by programs that knew no other
	if l.NodeBytes = o.NodeBytes; o.Neighbourhood != Neighbourhood {
		l.Neighbourhood = o.Neighbourhood
	}
	if o.InlineBytes == 0 {
		defaultInline(&l)
	}
	if l.MaxKey > maxEntry || codecOf(&l).LongestEntry() > maxEntry {
		return l, fmt.Errorf("keys of %d bytes and values of %d in their entries: an entry has at most %d bytes together with %d of its own",
			l.MaxKey, l.Inline, maxEntry, l.EntryBytes(0, 0))
	}
	if l.NodeBytes == 0 {
		l.NodeBytes = defaultNode(&l)
	}
	if least := leastNode(&l); l.NodeBytes < least || l.NodeBytes > fence.MaxNodeBytes || l.NodeBytes%64 != 0 {
		return l, fmt.Errorf("nodes of %d bytes: keys of %d and values of %d bytes need a multiple of 64 from %d to %d",
			l.NodeBytes, l.MaxKey, l.MaxValue, least, fence.MaxNodeBytes)
	}
	return l, nil
}

// defaultInline sets the inline size that a design without a wish has. All slots are as large as
// the largest entry, so where there are long values the inline ones are short.
func defaultInline(l *fence.Layout) {
	if l.SetInline(min(l.MaxValue, mostInline)); l.Blocks {
		l.SetInline(leastInline)
	}
	if indirect(l) { // pairs lie in blocks
		l.SetInline(0)
	}
	for l.NodeBytes > 0 && l.Inline > 0 && l.NodeBytes < leastNode(l) {
		l.SetInline(max(0, l.Inline-fence.Grain))
	}
}

// defaultNode is the size of nodes for leaves of [Span] slots, or of fewer where slots are large.
func defaultNode(l *fence.Layout) int {
	slots, hood := Span, hoodOf(l)
	if n := (largeLeaf - l.HeadBytes()) / slotBytes(l); n < slots {
		slots = max(leastSpan, n/hood*hood)
	}
	size := func() int {
		groups := (slots + hood - 1) / hood
		return l.HeadBytes() + groups*replicaBytes + slots*slotBytes(l)
	}
	for slots > leastSlots && size() > fence.MaxNodeBytes-64 {
		slots--
	}
	return max(roundNode(size()), leastNode(l))
}

// leastSlots is how many slots a leaf has at least. A split then makes room for one key more.
const leastSlots = 2

// roundNode is the size of a node for so many bytes.
func roundNode(n int) int { return (n + 63) &^ 63 }

// leastNode is the smallest node: a leaf of leastSlots, and an inner node of more than four
// children.
func leastNode(l *fence.Layout) int {
	k := fence.RoundUp(l.MaxKey + 2)
	return roundNode(max(fence.MinNodeBytes, l.HeadBytes()+replicaBytes+leastSlots*slotBytes(l), 2*fence.HeaderBytes+6*k))
}
