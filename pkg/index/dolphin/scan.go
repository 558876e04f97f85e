package dolphin

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Scans. The leaves that come next, as copies of inner nodes say, are READ side by side. Each of
// them counts if it is the truth for the range that begins where the one before ends. Where it is
// not, that range is looked for as a key is.

// scan is where a scan stands. Its buffers are used again by the next one.
type scan struct {
	reverse bool
	left    int    // pairs that may come yet
	bound   []byte // pairs come from here on, or before here
	strict  bool   // not at the bound
	began   bool   // bound is that of a leaf which was visited
	leaf    leaf
	list    []pairAt // of leaf, in the order in which they are visited
	entry   []byte
	value   []byte
	usual   int // pairs that leaves have, as far as this session has seen
	n       int // leaves in the ring
	at      [mostReads]pool.Addr
}

// Len implements blocks.Entries.
func (sc *scan) Len() int { return len(sc.list) }

// Entry implements blocks.Entries. Only an entry with a reference has a value.
func (sc *scan) Entry(i int) []byte {
	p := sc.list[i]
	key := sc.leaf.key(p.cursor, p.w)
	v, long, _ := sc.leaf.value(p.cursor, p.w)
	if !long {
		return sc.leaf.lay.PutEntry(sc.entry, key, nil)
	}
	r := blocks.Decode(v)
	return r.PutEntry(&sc.leaf.lay.Codec, sc.entry, key)
}

// Scan implements index.Session.
func (s *Session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	if len(start) > 0 || !s.lay.Uint64 {
		if err := s.lay.CheckKey(start); err != nil {
			return explain("scan", err)
		}
	}
	s.Begin()
	defer s.End()
	sc := s.scanner()
	sc.reverse, sc.left, sc.strict, sc.began = reverse, limit, reverse && len(start) > 0, false
	sc.bound = append(sc.bound[:0], start...)
	if reverse && len(start) == 0 { // from the largest key
		for len(sc.bound) < s.lay.MaxKey {
			sc.bound = append(sc.bound, 0xFF)
		}
	}
	for sc.left > 0 {
		more, err := s.eachAhead(func() (bool, error) { return s.visitLeaf(visit) })
		if err != nil {
			return explain("scan", err)
		}
		if !more {
			return nil
		}
	}
	return nil
}

// scanner is the session's, made when it is first used.
func (s *Session) scanner() *scan {
	if s.scan == nil {
		s.scan = &scan{entry: s.entry, usual: 1}
		s.scan.leaf.lay = s.lay
	}
	return s.scan
}

// eachAhead calls do for the leaves that come next, each of them the scan's leaf. do makes bound
// the range beside it. more is false where the scan is over, as do says, or since there is no leaf.
func (s *Session) eachAhead(do func() (more bool, err error)) (more bool, err error) {
	sc := s.scan
	if err := s.readAhead(); err != nil {
		return false, err
	}
	for i := 0; i < max(1, sc.n); i++ {
		if i >= sc.n || !s.counts(s.ring[i], sc.at[i]) {
			if there, err := s.findOne(); err != nil || !there {
				return false, err
			}
			sc.n = 0 // what was READ besides does not follow it
		}
		if more, err := do(); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// readAhead READs the leaves that come next, as copies say: as many as the scan may need, and there
// is room for.
func (s *Session) readAhead() error {
	sc := s.scan
	sc.n = 0
	found, err := s.SeekBound(sc.bound, false)
	if sc.reverse && sc.began && found && err == nil { // that one was visited
		found, err = s.NextLeaf(true)
	}
	want := min(len(s.ring), (sc.left+sc.usual-1)/sc.usual+1)
	for found && err == nil && sc.n < want {
		sc.at[sc.n] = s.Last().Word.Addr()
		if sc.n++; sc.n < want {
			found, err = s.NextLeaf(sc.reverse)
		}
	}
	if err != nil || sc.n == 0 {
		return err
	}
	for i, a := range sc.at[:sc.n] {
		s.PS.Read(a, s.ring[i])
	}
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	s.Pause()
	return nil
}

// counts reports whether b, READ from a, is the truth for the range that the scan comes to. It is
// the scan's leaf then.
func (s *Session) counts(b []byte, a pool.Addr) bool {
	sc := s.scan
	l := &sc.leaf
	if !l.open(b, a) || l.below(sc.bound, sc.strict) || l.above(sc.bound, sc.strict) {
		return false
	}
	fw := l.forward()
	return fw == 0 || fw == shut
}

// findOne finds the leaf that comes next. false: there is none.
func (s *Session) findOne() (bool, error) {
	sc := s.scan
	there, err := s.find(sc.bound, sc.strict)
	if err != nil || !there {
		return false, err
	}
	copy(s.ring[0], s.room)
	sc.leaf.open(s.ring[0], s.leaf.at)
	return true, nil
}

// visitLeaf visits the pairs of the scan's leaf, and goes on to the range beside it. more is false
// where the scan is over.
func (s *Session) visitLeaf(visit func(key, value []byte) bool) (more bool, err error) {
	sc := s.scan
	l := &sc.leaf
	for {
		again, damaged := s.alive(l)
		if damaged {
			return false, damagedLeaf(l.at, "a record that is none")
		}
		if !again {
			break
		}
		if err := s.Reread(l.at); err != nil {
			return false, err
		}
		if there, err := s.findOne(); err != nil || !there {
			return false, err
		}
		sc.n = 0
	}
	if n := len(s.pairs); n > 0 {
		sc.usual = max(1, (3*sc.usual+n)/4)
	}
	s.choose()
	s.Blocks.BeginScan()
	for i, p := range sc.list {
		key := l.key(p.cursor, p.w)
		value, long, ok := l.value(p.cursor, p.w)
		if long {
			if value, err = s.Blocks.Next(sc, i, 1, len(sc.list)-i); err != nil {
				return false, err
			}
			ok = value != nil
		}
		if !ok {
			// It was READ before it was written, or its block is out: a lookup says which.
			sc.value, err = s.lookup(key, sc.value[:0])
			if err == index.ErrNotFound {
				continue
			} else if err != nil {
				return false, err
			}
			value = sc.value
			s.Blocks.BeginScan()
		}
		if sc.left--; !visit(key, value) || sc.left == 0 {
			return false, nil
		}
	}
	sc.began = true
	if sc.reverse {
		sc.bound, sc.strict = append(sc.bound[:0], l.low...), true
		return len(l.low) > 0, nil
	}
	sc.bound = append(sc.bound[:0], l.high...)
	return !l.endless, nil
}

// choose makes list the pairs of the scan's leaf that come, at most as many as may.
func (s *Session) choose() {
	sc := s.scan
	l := &sc.leaf
	sc.list = sc.list[:0]
	for i := range s.pairs {
		p := s.pairs[i]
		if sc.reverse {
			p = s.pairs[len(s.pairs)-1-i]
		}
		n := bytes.Compare(l.key(p.cursor, p.w), sc.bound)
		if n > 0 == sc.reverse && n != 0 || n == 0 && sc.strict {
			continue
		}
		if len(sc.list) == sc.left {
			return
		}
		sc.list = append(sc.list, p)
	}
}
