package smart

import (
	"bytes"
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
)

// A leaf has one key, and two cells for its value, of which one counts:
//
//	offset  size  field
//	0       2     length of the key, little-endian
//	2       2     bytes of a cell, a multiple of 8
//	4       4     zero
//	8       1     kind 200
//	9       1     flags: see package unit
//	10      14    the key, or its first 14 bytes
//	24      8     control word
//	32      r     the rest of the key, filled up to a multiple of 8
//	32+r    c     cell 0
//	32+r+c  c     cell 1
//
// So the first part of a leaf is all that has to be READ of it while cell 0 counts.
//
// The control word, little-endian:
//
//	bits   field
//	0-31   sum (package sum) of three parts: the head (bytes 0 to 24), the rest of the key, and
//	       the cell that counts, as far as that is used; it starts from address, version and state
//	32-55  version
//	56     which cell counts
//	57-58  state
//
// A cell:
//
//	offset  size  field
//	0       2     length of the value, little-endian; bit 15: a reference follows, not the value
//	2       ...   the value
//
// A reference: address, packed (6), check (4), length (2), size in units of 64 (2). In a leaf that
// moved, the cell that counts has the slot of the new leaf instead (8).
//
// Who holds the leaf's lock writes the other cell, and then the control word: one aligned word, so
// a change takes effect at once, and a client that dies before leaves the old value.
const (
	atCell      = 2
	atKey       = 10
	keyInHead   = art.HeadBytes - atKey
	atControl   = art.HeadBytes
	atCells     = atControl + 8
	cellHead    = 2
	leastCell   = 16
	flagInBlock = 1 << 15

	referenceBytes = 14
)

// state is that of a leaf.
type state uint8

const (
	alive state = iota
	dead        // its key is not there; the leaf is in the tree, and may become alive again
	gone        // its key is not there; it is being taken out of the tree, or is out
	moved       // its key is in another leaf, which is to take its place in the tree
)

// control is a control word.
type control uint64

func (c control) check() uint32   { return uint32(c) }
func (c control) version() uint32 { return uint32(c>>32) & (1<<24 - 1) }
func (c control) cell() int       { return int(c>>56) & 1 }
func (c control) state() state    { return state(c>>57) & 3 }

// shape is the size of a leaf.
type shape struct{ key, cell int }

// newShape is the shape of the leaf of a key with n bytes, for values of so many. Cells are as
// large as what is allocated has room for.
func newShape(key, value int) shape {
	s := shape{key, max(leastCell, (cellHead+value+7)&^7)}
	s.cell += (s.allocated() - s.bytes()) / 2 &^ 7
	return s
}

// restBytes is how much of the key does not lie in the head.
func (s shape) restBytes() int { return max(0, s.key-keyInHead) }

// bytes is how much of a leaf is READ.
func (s shape) bytes() int { return s.cellAt(2) }

// allocated is what it takes of memory.
func (s shape) allocated() int { return art.AllocatedFor(art.LeafSlot(0, s.bytes(), 0).LeafBytes()) }

func (s shape) cellAt(i int) int { return atCells + (s.restBytes()+7)&^7 + i*s.cell }

// hasRoom reports whether a cell has room for a value, or reference, of n bytes.
func (s shape) hasRoom(n int) bool { return cellHead+n <= s.cell }

// leaf is a leaf that was READ, and verified.
type leaf struct {
	shape
	sums *sum.Key
	at   pool.Addr
	b    []byte
	ctl  control
	// b has only the cell that counts, in the place of cell 0
	single bool
}

// verdict is what openLeaf finds.
type verdict uint8

const (
	torn  verdict = iota // what was READ is no leaf, or one that is being written
	whole                // it verifies
	out                  // it is a dead mark: the leaf is out of the tree
	apart                // of one that was READ in part: the cell that counts was not READ
)

// open looks at b, READ from a.
func (l *leaf) open(k *sum.Key, b []byte, a pool.Addr) verdict {
	l.sums, l.at, l.b, l.single = k, a, b, false
	if v := l.decode(); v != whole {
		return v
	}
	if l.bytes() > len(b) {
		return torn
	}
	return l.verify()
}

// openPart looks at b, READ from a: a leaf of so many bytes up to the end of cell 0 at least, or,
// with other, up to that cell, and then cell 1 (otherCell).
func (l *leaf) openPart(k *sum.Key, b []byte, a pool.Addr, bytes int, other bool) verdict {
	v := l.beginPart(k, b, a, bytes)
	switch {
	case v != whole:
		return v
	case other == (l.ctl.cell() == 1):
		return l.verify()
	case other:
		return torn // changed between the two READs
	}
	return apart
}

// beginPart looks at what of a leaf that was READ in part lies before its cells. It does not return
// whole if that is of no leaf.
func (l *leaf) beginPart(k *sum.Key, b []byte, a pool.Addr, bytes int) verdict {
	l.sums, l.at, l.b, l.single = k, a, b, true
	if v := l.decode(); v != whole {
		return v
	}
	if l.cellAt(1) > len(b) || l.bytes() > bytes {
		return torn
	}
	return whole
}

// otherCell is where cell 1 lies of a leaf that was READ in part, and what to READ it to.
func (l *leaf) otherCell() (offset int, b []byte) {
	return l.cellAt(1), l.b[l.cellAt(0):l.cellAt(1)]
}

// decode takes what bytes 0 to 32 say. It does not return whole if they are of no leaf.
func (l *leaf) decode() verdict {
	b := l.b
	if len(b) < atCells || b[unit.AtFlags] != unit.Node || b[unit.AtKind] != art.KindLeaf {
		if len(b) >= art.HeadBytes && unit.IsDead(l.at, b) {
			return out
		}
		return torn
	}
	l.key = int(binary.LittleEndian.Uint16(b))
	l.cell = int(binary.LittleEndian.Uint16(b[atCell:]))
	l.ctl = control(binary.LittleEndian.Uint64(b[atControl:]))
	if l.cell < leastCell {
		return torn
	}
	return whole
}

// verify reports whether the control word has the sum of the rest: whole, or torn.
func (l *leaf) verify() verdict {
	if l.usedBytes(l.ctl.cell()) > l.cell || l.sum(l.ctl.version(), l.ctl.cell(), l.ctl.state()) != l.ctl.check() {
		return torn
	}
	return whole
}

// cellOffset is where in b cell i lies.
func (l *leaf) cellOffset(i int) int {
	if l.single {
		i = 0
	}
	return l.cellAt(i)
}

// usedBytes is how many bytes of a cell are used.
func (l *leaf) usedBytes(i int) int {
	n := binary.LittleEndian.Uint16(l.b[l.cellOffset(i):])
	if n&flagInBlock != 0 {
		return cellHead + referenceBytes
	}
	return cellHead + int(n)
}

// keyRest is the part of the key that does not lie in the head.
func (l *leaf) keyRest() []byte { return l.b[atCells:][:l.restBytes()] }

// sum is the sum of the leaf, if cell i counts.
func (l *leaf) sum(version uint32, i int, st state) uint32 {
	at := l.cellOffset(i)
	return l.sums.OfParts(unit.Seed(l.at, version<<3|uint32(i)<<2|uint32(st)),
		l.b[:art.HeadBytes], l.keyRest(), l.b[at:at+l.usedBytes(i)])
}

// isInTree reports whether the leaf is in the tree, if it ever was.
func (l *leaf) isInTree() bool { return l.ctl.state() <= dead }

// hasKey reports whether the leaf's key is key.
func (l *leaf) hasKey(key []byte) bool {
	if l.key != len(key) {
		return false
	}
	n := min(l.key, keyInHead)
	return bytes.Equal(l.b[atKey:atKey+n], key[:n]) && bytes.Equal(l.keyRest(), key[n:])
}

// appendKey appends the leaf's key to dst.
func (l *leaf) appendKey(dst []byte) []byte {
	dst = append(dst, l.b[atKey:atKey+min(l.key, keyInHead)]...)
	return append(dst, l.keyRest()...)
}

// value is what the cell that counts has: a value, or a reference if long.
func (l *leaf) value() (v []byte, long bool) {
	at := l.cellOffset(l.ctl.cell())
	n := binary.LittleEndian.Uint16(l.b[at:])
	return l.b[at+cellHead : at+l.usedBytes(l.ctl.cell())], n&flagInBlock != 0
}

// reference decodes the reference that value returned.
func reference(v []byte) blocks.Reference {
	var w [8]byte
	copy(w[:], v[:6])
	return blocks.Reference{
		Addr:   art.Slot(binary.LittleEndian.Uint64(w[:])).Addr(),
		Check:  binary.LittleEndian.Uint32(v[6:]),
		Length: int(binary.LittleEndian.Uint16(v[10:])),
		Size:   int(binary.LittleEndian.Uint16(v[12:])) * art.AddrUnit,
	}
}

// forward is where a leaf that moved is now.
func (l *leaf) forward() art.Slot {
	return art.Slot(binary.LittleEndian.Uint64(l.b[l.cellOffset(l.ctl.cell())+cellHead:]))
}

// content is what is put into a cell.
type content struct {
	value []byte
	long  bool
	ref   blocks.Reference // if long
}

// bytes is how much of a cell it takes, but for its head.
func (c *content) bytes() int {
	if c.long {
		return referenceBytes
	}
	return len(c.value)
}

// putCell writes c to cell i of the image, and returns the bytes that it wrote.
func (l *leaf) putCell(i int, c *content) []byte {
	b := l.b[l.cellAt(i):][:cellHead+c.bytes()]
	if !c.long {
		binary.LittleEndian.PutUint16(b, uint16(len(c.value)))
		copy(b[cellHead:], c.value)
		return b
	}
	at, _ := art.Pack(c.ref.Addr)
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], uint64(at))
	binary.LittleEndian.PutUint16(b, flagInBlock)
	copy(b[cellHead:], w[:6])
	binary.LittleEndian.PutUint32(b[cellHead+6:], c.ref.Check)
	binary.LittleEndian.PutUint16(b[cellHead+10:], uint16(c.ref.Length))
	binary.LittleEndian.PutUint16(b[cellHead+12:], uint16(c.ref.Size/art.AddrUnit))
	return b
}

// putForward writes to cell i where the leaf is now.
func (l *leaf) putForward(i int, to art.Slot) []byte {
	b := l.b[l.cellAt(i):][:cellHead+8]
	binary.LittleEndian.PutUint16(b, 8)
	binary.LittleEndian.PutUint64(b[cellHead:], uint64(to))
	return b
}

// setControl makes cell i the one that counts, and returns the control word's bytes. The version
// goes on from the one before.
func (l *leaf) setControl(i int, st state) []byte {
	return l.seal(l.ctl.version()+1, i, st)
}

func (l *leaf) seal(version uint32, i int, st state) []byte {
	version &= 1<<24 - 1
	l.ctl = control(l.sum(version, i, st)) | control(version)<<32 | control(i)<<56 | control(st)<<57
	b := l.b[atControl:atCells]
	binary.LittleEndian.PutUint64(b, uint64(l.ctl))
	return b
}

// build makes the image of a new leaf in b, which is to lie at a.
func (l *leaf) build(k *sum.Key, s shape, b []byte, a pool.Addr, version uint32, key []byte, c *content) []byte {
	b = b[:s.bytes()]
	clear(b)
	l.sums, l.shape, l.at, l.b, l.single = k, s, a, b, false
	binary.LittleEndian.PutUint16(b, uint16(s.key))
	binary.LittleEndian.PutUint16(b[atCell:], uint16(s.cell))
	b[unit.AtKind], b[unit.AtFlags] = art.KindLeaf, unit.Node
	n := min(len(key), keyInHead)
	copy(b[atKey:art.HeadBytes], key[:n])
	copy(b[atCells:], key[n:])
	l.putCell(0, c)
	l.seal(version, 0, alive)
	return b
}
