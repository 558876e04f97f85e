package chime

import (
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// session implements index.Session.
type session struct {
	btree.Session
	op.Direct
	t *tree

	scratch []byte // an entry on its way into a leaf
	old     []byte // a value that Modify tells of
	// where keys lie in blocks
	fingerprint [8]byte
	content     []byte // of a block
	candidates  candidates

	pairs  pairs
	scan   scanned
	tab    table
	target target
	plan   plan
	group  group  // what it makes as the holder
	round  *round // of LookupBatch; nil before the first one
	room   []byte // for what a batch READs
}

// newSession makes a session.
func (t *tree) newSession() (*session, error) {
	s := &session{t: t, scratch: make([]byte, maxEntry)}
	if err := t.OpenSession(&s.Session); err != nil {
		return nil, err
	}
	s.pairs.list = make([]pairAt, 0, t.n)
	return s, nil
}

// pieces are what a lookup READs of a leaf, in their places in Node.
type pieces struct {
	list [4]span
	n    int
	head bool // the head is among them
	late bool // the head is READ by itself, afterwards
	next pool.Addr
	// next is known: the leaf's right sibling, as the parent says
	known bool
}

func (p *pieces) add(s span) {
	p.list[p.n] = s
	p.n++
}

// bytes is how many the pieces have in all.
func (p *pieces) bytes() (n int) {
	for _, s := range p.list[:p.n] {
		n += s.to - s.from
	}
	return n
}

// extent is how much is READ of a leaf.
type extent uint8

const (
	asParentSays extent = iota
	withHead            // besides
	wholeLeaf
)

// piecesFor says what is READ of the leaf where p leads for a key with a home: the neighbourhood
// with a replica; and the head, where the parent's copy does not say which leaf comes next, or the
// technique is off.
func (s *session) piecesFor(p *btree.Path, home int, e extent) (w pieces) {
	t := s.t
	if e == wholeLeaf || !t.with.hopscotchLeaf {
		w.add(span{0, t.end()})
		w.head = true
		return w
	}
	w.next, w.known = p.Sibling()
	if e == withHead || !w.known || !t.with.siblingValidation || !t.with.metadataReplication {
		w.head, w.known = true, false
		if w.late = !t.with.metadataReplication; !w.late {
			w.add(span{0, t.head})
		}
	}
	all, n := t.neighbourhood(home)
	for _, piece := range all[:n] {
		w.add(piece)
	}
	return w
}

// spans appends the pieces as a lock word's Acquire has them.
func (w *pieces) spans(dst []pool.Span, a pool.Addr, b []byte) []pool.Span {
	for _, p := range w.list[:w.n] {
		dst = append(dst, pool.Span{At: a + pool.Addr(p.from), Local: b[p.from:p.to]})
	}
	return dst
}

// readPieces READs pieces of the leaf at a into b: one round trip. Without metadata replication the
// head comes in another one. One piece, as most neighbourhoods are, may be a READ that sessions
// make together.
func (s *session) readPieces(w *pieces, a pool.Addr, b []byte) error {
	if w.n == 1 && !w.late {
		p := w.list[0]
		return s.Read(a+pool.Addr(p.from), b[p.from:p.to])
	}
	for _, p := range w.list[:w.n] {
		s.PS.Read(a+pool.Addr(p.from), b[p.from:p.to])
	}
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	s.Pause()
	if w.late {
		return s.Read(a, b[:s.t.head])
	}
	return nil
}

// checkRange says at which version the leaf, of which w was READ, holds key: that of the replica of
// the key's neighbourhood, if its sibling is what the parent's copy says comes next, or that of the
// head with it, if key lies between its fences. ok is false if neither is the case.
//
// Why the sibling says so (section 4.2.3): lower fences never change while a node lives. The parent
// had this leaf from its separator on, which is not above key, and the next one from a separator on
// that is above key. If that one is the right sibling at that version, the leaf's range ends where
// it begins. Neither address is another node by now, since the copy that has them may be followed.
func (l *leaf) checkRange(w *pieces, key []byte, home int) (version uint32, ok bool) {
	version, sibling, ok := l.replica(l.replicaOf(home))
	if !ok {
		return 0, false
	}
	if w.known {
		return version, sibling == w.next
	}
	h, ok := l.open()
	return version, ok && h.Version == version && siblingOf(&h) == sibling && !h.Below(key) && !h.Above(key)
}

// headerOf is the header of a whole leaf; nil if it has none that verifies.
func headerOf(l *leaf, h *fence.Header) *fence.Header {
	var ok bool
	if *h, ok = l.open(); ok {
		return h
	}
	return nil
}
