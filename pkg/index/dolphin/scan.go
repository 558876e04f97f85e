package dolphin

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Scans. The leaves that come next, as copies of inner nodes say, are READ side by side: a round.
// Each of them counts if it is the truth for the range that begins where the one before ends. Where
// it is not, that range is looked for as a key is. The pairs of a round are visited together, and
// the blocks of its long values are READ together.

// scan is where a scan stands. Its buffers are used again by the next one.
type scan struct {
	reverse bool
	left    int    // pairs that may come yet
	bound   []byte // pairs come from here on, or before here
	strict  bool   // not at the bound
	began   bool   // bound is that of a leaf which was visited
	leaf    leaf
	out     []visited // pairs of the round that are to be visited
	entry   []byte
	value   []byte
	usual   int  // pairs that leaves have, as far as this session has seen: see expect
	met     int  // leaves that it saw, at most fewLeaves
	n       int  // leaves in the ring
	alone   bool // the next leaf is to be found, as that of the ring did not count
	at      [mostReads]pool.Addr
}

// visited is a pair that is visited. Its bytes lie in the ring.
type visited struct {
	key, value []byte
	long       bool // value is a reference
	ok         bool // value was there when it was READ
}

// Len implements blocks.Entries.
func (sc *scan) Len() int { return len(sc.out) }

// Entry implements blocks.Entries. Only an entry with a reference has a value.
func (sc *scan) Entry(i int) []byte {
	p, lay := &sc.out[i], sc.leaf.lay
	if !p.long {
		return lay.PutEntry(sc.entry, p.key, nil)
	}
	r := blocks.Decode(p.value)
	return r.PutEntry(&lay.Codec, sc.entry, p.key)
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
	s.expect()
	sc.reverse, sc.left, sc.strict, sc.began, sc.alone = reverse, limit, reverse && len(start) > 0, false, false
	sc.bound = append(sc.bound[:0], start...)
	if reverse && len(start) == 0 { // from the largest key
		for len(sc.bound) < s.lay.MaxKey {
			sc.bound = append(sc.bound, 0xFF)
		}
	}
	for sc.left > 0 {
		sc.out = sc.out[:0]
		more, err := s.eachAhead(s.takeLeaf)
		if err != nil {
			return explain("scan", err)
		}
		if goes, err := s.visitAll(visit); err != nil {
			return explain("scan", err)
		} else if !goes || !more {
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

// fewLeaves are so few that other sessions of the client know more of how full leaves are.
const fewLeaves = 16

// expect takes over what other sessions know of how full leaves are, if this one has met few: a
// scan READs as many at once as it is likely to need.
func (s *Session) expect() {
	if known := s.t.usual.Load(); known > 0 && s.scan.met < fewLeaves {
		s.scan.usual = int(known)
	}
}

// count notes that a scan has found so many pairs in a leaf.
func (s *Session) count(pairs int) {
	sc := s.scan
	sc.usual = max(1, (3*sc.usual+pairs)/4)
	if sc.met < fewLeaves {
		sc.met++
		s.t.usual.Store(int64(sc.usual))
	}
}

// step is where a round goes on.
type step uint8

const (
	beside step = iota // with the leaf beside this one
	full               // nowhere, as it has all that the scan may visit yet
	over               // nowhere, as there is nothing more
	reread             // with the same leaf, which is to be READ again
)

// eachAhead calls take for the leaves that come next, each of them the scan's leaf. take makes
// bound the range beside it. more is false where the scan is over, as take says, or since there is
// no leaf. What was taken stays in the ring until the next call.
func (s *Session) eachAhead(take func() (step, error)) (more bool, err error) {
	sc := s.scan
	if sc.n = 0; !sc.alone {
		if err := s.readAhead(); err != nil {
			return false, err
		}
	}
	sc.alone = false
	for i := 0; i < max(1, sc.n); {
		if i >= sc.n || !s.counts(s.ring[i], sc.at[i]) {
			if i > 0 { // the ring has what was taken
				sc.alone = true
				return true, nil
			}
			sc.n = 0 // what was READ besides does not follow it
			if there, err := s.findOne(); err != nil || !there {
				return false, err
			}
		}
		next, err := take()
		switch {
		case err != nil || next == full || next == over:
			return next == full, err
		case next == reread:
			if err := s.Reread(sc.leaf.at); err != nil {
				return false, err
			}
			if sc.alone = i > 0; sc.alone {
				return true, nil
			}
			sc.n = 0
		default:
			i++
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
	first := sc.usual / 4 // pairs of the first leaf: a scan begins anywhere in it
	if sc.began {
		first = sc.usual
	}
	want := min(len(s.ring), 1+(max(0, sc.left-first)+sc.usual-1)/sc.usual)
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
		return s.misled(err, sc.at[:sc.n]...)
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
	return l.isTruth()
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

// takeLeaf takes the pairs of the scan's leaf that come, at most as many as may, and goes on to the
// range beside it.
func (s *Session) takeLeaf() (step, error) {
	sc := s.scan
	l := &sc.leaf
	switch again, damaged := s.gatherAlive(l); {
	case damaged:
		return over, damagedRecord(l.at)
	case again:
		return reread, nil
	}
	if n := len(s.pairs); n > 0 {
		s.count(n)
	}
	for i := range s.pairs {
		p := s.pairs[i]
		if sc.reverse {
			p = s.pairs[len(s.pairs)-1-i]
		}
		key := l.key(p.cursor, p.w)
		n := bytes.Compare(key, sc.bound)
		if n > 0 == sc.reverse && n != 0 || n == 0 && sc.strict {
			continue
		}
		if len(sc.out) == sc.left { // some of these may be gone when they are visited
			sc.bound, sc.strict, sc.began = append(sc.bound[:0], key...), false, false
			return full, nil
		}
		v, long, ok := l.value(p.cursor, p.w)
		sc.out = append(sc.out, visited{key, v, long, ok})
	}
	sc.began = true
	last := l.endless
	if sc.reverse {
		sc.bound, sc.strict, last = append(sc.bound[:0], l.low...), true, len(l.low) == 0
	} else {
		sc.bound = append(sc.bound[:0], l.high...)
	}
	switch {
	case last:
		return over, nil
	case len(sc.out) == sc.left:
		return full, nil
	}
	return beside, nil
}

// visitAll visits the pairs of a round. more is false if visit had enough.
func (s *Session) visitAll(visit func(key, value []byte) bool) (more bool, err error) {
	sc := s.scan
	s.Blocks.BeginScan()
	for i := range sc.out {
		p := &sc.out[i]
		value, ok := p.value, p.ok
		if p.long {
			if value, err = s.Blocks.Next(sc, i, 1, len(sc.out)-i); err != nil {
				return false, err
			}
			ok = value != nil
		}
		if !ok {
			// It was READ before it was written, or its block is out: a lookup says which.
			sc.value, err = s.lookup(p.key, sc.value[:0])
			if err == index.ErrNotFound {
				continue
			} else if err != nil {
				return false, err
			}
			value = sc.value
			s.Blocks.BeginScan()
		}
		if sc.left--; !visit(p.key, value) {
			return false, nil
		}
	}
	return true, nil
}
