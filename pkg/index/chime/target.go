package chime

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// target is the leaf that a change is made in. Its word is held, and what was READ of it is in
// Node.
type target struct {
	leaf
	version uint32
	key     []byte // as leaves have it
	home    int    // of the key
	known   int    // slots from home on that were READ
	hints   vacancyHints
	whole   bool         // all of it was READ
	header  fence.Header // if whole
}

// wasRead reports whether slot i was READ.
func (t *target) wasRead(i int) bool { return t.whole || t.ahead(t.home, i) < t.known }

// acquire finds the leaf for key and acquires its word. In the same list it READs the key's
// neighbourhood, and the own bits come with the atomic. When it returns an error no lock is held.
func (s *session) acquire(key []byte) (*target, error) {
	t, _, err := s.acquireOr(key, nil)
	return t, err
}

// acquireOr is acquire, but another session that has the word may carry out c, which can be nil.
// Then answered is true, and no lock is held. err is nil if the answer is in c.
func (s *session) acquireOr(key []byte, c *btree.Change) (t *target, answered bool, err error) {
	p, err := s.Descend(key)
	if err != nil {
		return nil, false, err
	}
	for hops := 0; ; {
		done, answered, err := s.acquireAt(&p, key, c, &hops)
		if answered || err != nil {
			return nil, answered, err
		}
		if done {
			return &s.target, false, s.Late()
		}
	}
}

// acquireAt is acquireOr for the leaf where p leads, if that is the one. Else p leads elsewhere, or
// to the same once more.
func (s *session) acquireAt(p *btree.Path, key []byte, c *btree.Change, hops *int) (done, answered bool, err error) {
	t := &s.target
	k := s.leafKey(key)
	home := s.t.home(k)
	w := s.piecesFor(p, home, asParentSays)
	var room [4]pool.Span
	var bits uint64
	if spans := w.spans(room[:0], p.Addr(), s.Node); c == nil {
		bits, err = s.Acquire(p.Addr(), 0, spans...)
	} else {
		bits, answered, err = s.AcquireOr(p.Addr(), 0, c, spans...)
	}
	if answered || err != nil {
		return false, answered, err
	}
	*t = target{leaf: leaf{&s.t.shape, p.Addr(), s.Node}, home: home, key: k, known: s.t.hood, hints: vacancyHints(bits)}
	var holds bool
	var header *fence.Header
	if s.t.with.hopscotchLeaf {
		if w.late {
			if err := s.readLocked(t.addr, s.Node[:s.t.head]); err != nil {
				return false, false, s.Unlock(err)
			}
		}
		if t.version, holds = t.checkRange(&w, key, home); holds {
			return true, false, nil
		}
		if holds, err = s.readHead(t, &w, key); holds || err != nil {
			return holds, false, err
		}
		if t.header.Below(key) || t.header.Above(key) {
			return false, false, s.ResolveLocked(p, &t.header, key, hops)
		}
	}
	if !s.t.with.hopscotchLeaf {
		header = s.decodeWhole(t)
	} else if header, err = s.readWhole(t); err != nil {
		return false, false, err
	}
	if header != nil && !header.Below(key) && !header.Above(key) {
		if !t.whole {
			return false, false, s.damaged(t)
		}
		return true, false, nil
	}
	return false, false, s.ResolveLocked(p, header, key, hops)
}

// readHead READs the head of the locked leaf, where w does not show that it holds key, if w did not
// have it: a leaf that has split, or whose sibling has, is told by its fences. header is that of
// the head; if that does not verify, one without an end, which key is not outside of.
func (s *session) readHead(t *target, w *pieces, key []byte) (holds bool, err error) {
	if w.known {
		if err := s.readLocked(t.addr, s.Node[:s.t.head]); err != nil {
			return false, s.Unlock(err)
		}
		w.known = false
		if t.version, holds = t.checkRange(w, key, t.home); holds {
			return true, nil
		}
	}
	var ok bool
	if t.header, ok = t.open(); !ok {
		t.header = fence.Header{Low: s.Lay.Bottom, Rightmost: true}
	}
	return false, nil
}

// readWhole READs all of the locked leaf. The header is nil if it has none that verifies; whole is
// false then, and where the leaf does not verify.
func (s *session) readWhole(t *target) (*fence.Header, error) {
	if err := s.readLocked(t.addr, s.Node); err != nil {
		return nil, s.Unlock(err)
	}
	return s.decodeWhole(t), nil
}

// readLocked READs a part of the locked leaf. Who holds a word waits for nobody else's READ.
func (s *session) readLocked(a pool.Addr, b []byte) error {
	s.PS.Read(a, b)
	return op.Failure(s.PS.Post(), false)
}

// decodeWhole looks at the whole of the locked leaf, which was READ.
func (s *session) decodeWhole(t *target) *fence.Header {
	var ok bool
	if t.header, ok = t.open(); !ok {
		return nil
	}
	t.version, t.known = t.header.Version, t.n
	if t.whole = s.pairs.collect(t.leaf, &t.header); t.whole {
		t.hints = s.t.hintsOf(s.table(t))
	}
	return &t.header
}

// table is where the keys of what was READ are.
func (s *session) table(t *target) *table {
	t.tabulate(&s.tab, t.version, t.home, t.known)
	return &s.tab
}

// damaged gives up the word of a leaf that does not verify while it is held.
func (s *session) damaged(t *target) error {
	return s.Unlock(t.isDamaged())
}

func (t *target) isDamaged() error {
	return fmt.Errorf("leaf %v does not verify under its lock: %w", t.addr, index.ErrFormat)
}

// readSlots READs count slots of the locked leaf from its home on, of which it has some.
func (s *session) readSlots(t *target, count int) error {
	if count <= t.known {
		return nil
	}
	all, n := t.pieces(t.next(t.home, t.known), count-t.known)
	for _, p := range all[:n] {
		s.PS.Read(t.addr+pool.Addr(p.from), s.Node[p.from:p.to])
	}
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	t.known = count
	return nil
}
