package chime

import (
	"bytes"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// leaves implements btree.WordedLeaves.
type leaves struct {
	shape

	// of a merge
	left, right pairs
	both        table
}

func newLeaves(l *fence.Layout) *leaves { return &leaves{shape: shapeOf(l)} }

func (f *leaves) at(a pool.Addr, b []byte) leaf { return leaf{&f.shape, a, b} }

// Open implements btree.Leaves.
func (f *leaves) Open(a pool.Addr, b []byte) (fence.Header, bool) {
	l := f.at(a, b)
	return l.open()
}

// HeadBytes implements btree.HeadedLeaves.
func (f *leaves) HeadBytes() int { return f.head }

// Verify implements btree.Leaves.
func (f *leaves) Verify(a pool.Addr, b []byte) bool {
	l := f.at(a, b)
	h, ok := l.open()
	var p pairs
	return ok && p.collect(l, &h)
}

// Load implements btree.Leaves.
func (f *leaves) Load(a pool.Addr, b []byte) btree.Load {
	l := f.at(a, b)
	if _, ok := l.open(); !ok {
		return btree.Load{}
	}
	n := 0
	for i := range l.n {
		if e, _, ok := l.entry(i); !ok || e != nil {
			n++
		}
	}
	return f.load(n)
}

// load is that of a leaf with so many pairs.
func (s *shape) load(pairs int) btree.Load {
	return btree.Load{Pairs: pairs, Bytes: pairs * s.lay.NodeBytes / s.n}
}

// BuildEmpty implements btree.Leaves.
func (f *leaves) BuildEmpty(b []byte, a pool.Addr, h *fence.Header) int {
	l := f.at(a, b)
	return l.build(h, nil, nil)
}

// Merge implements btree.Leaves. Pairs of the left leaf keep their slots if no hop is needed.
func (f *leaves) Merge(b []byte, a [2]pool.Addr, nodes *[2][]byte) int {
	l, r := f.at(a[0], nodes[0]), f.at(a[1], nodes[1])
	h, ok := l.open()
	g, fits := r.open()
	if !ok || !fits || h.Rightmost || h.Sibling != a[1] || !f.left.collect(l, &h) || !f.right.collect(r, &g) {
		return 0
	}
	n, m := len(f.left.list), len(f.right.list)
	if f.load(n+m).Bytes > btree.MayFill(f.lay.NodeBytes, n == 0 || m == 0) {
		return 0
	}
	t := &f.both
	l.tabulate(t, h.Version, 0, l.n)
	for _, at := range f.right.list {
		e, _, _ := r.entry(int(at.slot))
		if !t.insert(f.home(f.codec.KeyOf(e)), f.n+int(at.slot)) {
			return 0
		}
	}
	h.Version++
	h.High, h.Rightmost, h.Sibling = g.High, g.Rightmost, g.Sibling
	to := f.at(a[0], b)
	return to.build(&h, t, func(it int) []byte {
		from := &l
		if it >= f.n {
			from, it = &r, it-f.n
		}
		e, _, _ := from.entry(it)
		return e
	})
}

// Kill implements btree.WordedLeaves.
func (f *leaves) Kill(b []byte, a pool.Addr, version uint32) int {
	l := f.at(a, b)
	return l.kill(version)
}

// RebuildWord implements btree.WordedLeaves: what a client left half done that died with the word.
//
// It made no change but in the order of publish (write.go), so at most one slot does not verify,
// whose content is elsewhere, or was not acknowledged, or was about to go: the slot becomes empty.
// A key can be in two slots, with one value: one of them becomes empty. Then the home words are
// made of the keys. What a Rewrite owed was made before.
//
// Each WRITE leaves a leaf of which the same is true, so one that dies here leaves the rest to the
// next repairer.
func (f *leaves) RebuildWord(s *pool.Session, w pool.Word, _ uint64, node, room []byte) (mask, bits uint64, err error) {
	l := f.at(w.Node, node)
	h, ok := l.open()
	if !ok {
		return ^uint64(0), 0, nil // it is no leaf: dead, an inner node, or never written
	}
	m := repairer{leaf: l, version: h.Version, s: s, room: room}
	if err := m.repair(); err != nil {
		return 0, 0, fmt.Errorf("repair leaf %v: %w", w.Node, err)
	}
	t := new(table)
	l.tabulate(t, h.Version, 0, l.n)
	return ^uint64(0), uint64(f.hintsOf(t)), nil
}

// repairer repairs a leaf.
type repairer struct {
	leaf
	version uint32
	s       *pool.Session
	room    []byte
	used    int
}

func (m *repairer) repair() error {
	for i := range m.n {
		e, v, ok := m.entry(i)
		if ok && v == m.version && (e == nil || m.isNearHome(i, e) && !m.isDuplicate(i, e)) {
			continue
		}
		m.put(i, m.version, nil)
		if err := m.write(m.slotAt(i), slotHead); err != nil {
			return err
		}
	}
	for i := range m.n {
		d, bitmap, _ := m.digest(i, m.version)
		if have, b := m.homeWord(i); have == d && b == bitmap {
			continue
		}
		m.setHome(i, d, bitmap)
		if err := m.write(m.slotAt(i)+atDigest, homeWord); err != nil {
			return err
		}
	}
	return m.flush()
}

// isNearHome reports whether e, in slot i, lies in the neighbourhood of its home.
func (m *repairer) isNearHome(i int, e []byte) bool {
	key, _, ok := m.codec.Pair(e)
	return ok && m.ahead(m.home(key), i) < m.hood
}

// isDuplicate reports whether e, in slot i, is in a slot before it in its neighbourhood, too. A hop
// copies all of an entry. Entries that have no more in common than what leaves have for a key, a
// fingerprint, are of several keys.
func (m *repairer) isDuplicate(i int, e []byte) bool {
	home := m.home(m.codec.KeyOf(e))
	for j := range m.ahead(home, i) {
		if other, _, ok := m.entry(m.next(home, j)); ok && bytes.Equal(other, e) {
			return true
		}
	}
	return false
}

// mostRepairWrites is how many WRITEs of a repair are in one list. One client that dies leaves
// fewer to do; memory that is damaged, or a client that lies, does not.
const mostRepairWrites = verbs.MaxList / 2

// write queues n bytes from at on.
func (m *repairer) write(at, n int) error {
	if m.used+slotHead > len(m.room) || m.used >= mostRepairWrites*slotHead {
		if err := m.flush(); err != nil {
			return err
		}
	}
	b := m.room[m.used : m.used+copy(m.room[m.used:], m.b[at:at+n])]
	m.used += slotHead
	m.s.Write(pool.Shared, m.addr+pool.Addr(at), b)
	return nil
}

func (m *repairer) flush() error {
	m.used = 0
	return m.s.Post()
}
