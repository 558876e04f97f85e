package btree

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Draft is an inner node that is being made: its separators are whole, and between children i and
// i+1 stands separator i.
type Draft struct {
	Low, High  []byte
	Rightmost  bool
	Sibling    pool.Addr
	Level      uint8
	Children   []pool.Addr
	Separators [][]byte

	text []byte // of the separators that it was made with
}

// draft copies n so that it can be changed.
func (n *inner) draft() *Draft { return n.draftIn(new(Draft)) }

// draftIn is draft in d, whose slices are used again. It refers to the fences of n.
func (n *inner) draftIn(d *Draft) *Draft {
	const more = 4 // children, mostly
	d.Low, d.High, d.Rightmost, d.Sibling, d.Level = n.low, n.high, n.rightmost, n.sibling, n.Level()
	d.Children = append(slices.Grow(d.Children[:0], len(n.children)+more), n.children...)
	d.Separators = slices.Grow(d.Separators[:0], len(n.children)+more)
	size := 8 * len(n.numbers)
	if n.numbers == nil {
		size = n.skip*(len(n.children)-1) + len(n.seps)
	}
	d.text = slices.Grow(d.text[:0], size)
	for i := range len(n.children) - 1 {
		from := len(d.text)
		d.text = n.appendSeparator(d.text, i)
		d.Separators = append(d.Separators, d.text[from:len(d.text):len(d.text)])
	}
	return d
}

// insert puts child, which holds the keys from sep on, behind child i.
func (d *Draft) insert(i int, sep []byte, child pool.Addr) {
	d.Separators = append(d.Separators, nil)
	copy(d.Separators[i+1:], d.Separators[i:])
	d.Separators[i] = sep
	d.Children = append(d.Children, pool.Nil)
	copy(d.Children[i+2:], d.Children[i+1:])
	d.Children[i+1] = child
}

// remove takes child i, which is not the first, and the separator before it away.
func (d *Draft) remove(i int) {
	d.Separators = append(d.Separators[:i-1], d.Separators[i:]...)
	d.Children = append(d.Children[:i], d.Children[i+1:]...)
}

// join appends what its right sibling holds.
func (d *Draft) join(right *Draft) {
	d.Separators = append(append(d.Separators, right.Low), right.Separators...)
	d.Children = append(d.Children, right.Children...)
	d.High, d.Rightmost, d.Sibling = right.High, right.Rightmost, right.Sibling
}

func (d *Draft) prefix() int {
	if d.Rightmost {
		return 0
	}
	return item.CommonPrefix(d.Low, d.High)
}

// bytes is how large the node will be.
func (d *Draft) Bytes(l *fence.Layout) int {
	n := fence.RoundUp(fence.HeaderBytes+len(d.Low)+len(d.High)) + childBytes*len(d.Children)
	if l.Uint64 {
		return n + 8*len(d.Separators)
	}
	skip := d.prefix()
	for _, s := range d.Separators {
		n += 2 + len(s) - skip
	}
	return n
}

// build makes the image of the node in b, which it must fit, and returns how much of b it takes.
func (d *Draft) Build(b []byte, l *fence.Layout, a pool.Addr, version uint32) int {
	h := fence.Header{Version: version, Level: d.Level, Rightmost: d.Rightmost, Count: len(d.Children), Low: d.Low, High: d.High, Sibling: d.Sibling}
	h.Encode(b)
	at := h.End
	for _, c := range d.Children {
		binary.LittleEndian.PutUint64(b[at:], uint64(c))
		at += childBytes
	}
	if l.Uint64 {
		for _, s := range d.Separators {
			at += copy(b[at:], s)
		}
	} else {
		skip, ends := d.prefix(), at
		at += 2 * len(d.Separators)
		heap := at
		for i, s := range d.Separators {
			at += copy(b[at:], s[skip:])
			binary.LittleEndian.PutUint16(b[ends+2*i:], uint16(at-heap))
		}
	}
	l.Seal(b, at, a, version)
	if invariants.Enabled {
		d.check(b, l, a)
	}
	return at
}

// check panics unless b is the image of d and d is in order.
func (d *Draft) check(b []byte, l *fence.Layout, a pool.Addr) {
	n := decodeInner(l, a, b)
	invariants.Check(n != nil, "inner node %v does not verify after it was built", a)
	last := d.Low
	for i, s := range d.Separators {
		invariants.Check(bytes.Equal(n.separator(i), s), "inner node %v: separator %d is %x, not %x", a, i, n.separator(i), s)
		invariants.Check(item.Below(last, s), "inner node %v: separator %x stands behind %x", a, s, last)
		last = s
	}
	invariants.Check(d.Rightmost || item.Below(last, d.High), "inner node %v: separator %x reaches the high fence %x", a, last, d.High)
}

// split divides d near the middle, or near its end if the newest child came last, into d and its
// right sibling; separator is the low fence of that. The caller sets the sibling of d.
func (d *Draft) split(l *fence.Layout, newLast bool) (right *Draft, separator []byte) {
	target := d.Bytes(l) / 2
	if newLast {
		target = target * 9 / 5
	}
	at, used := 1, fence.HeaderBytes
	for ; at < len(d.Children)-1 && used < target; at++ {
		used += childBytes + len(d.Separators[at-1])
		if !l.Uint64 {
			used += 2 - d.prefix()
		}
	}
	// The left part gets a high fence, which may make it too large where nine tenths were wanted;
	// the middle always fits.
	left, right, separator := d.parts(at)
	for ; at > 1 && left.Bytes(l) > l.NodeBytes; at-- {
		left, right, separator = d.parts(at - 1)
	}
	*d = *left
	return right, separator
}

// parts are d up to child at, and from it on.
func (d *Draft) parts(at int) (left, right *Draft, separator []byte) {
	separator = d.Separators[at-1]
	left = &Draft{Low: d.Low, High: separator, Level: d.Level, Children: d.Children[:at:at], Separators: d.Separators[: at-1 : at-1]}
	right = &Draft{Low: separator, High: d.High, Rightmost: d.Rightmost, Sibling: d.Sibling, Level: d.Level,
		Children: d.Children[at:], Separators: d.Separators[at:]}
	return left, right, separator
}
