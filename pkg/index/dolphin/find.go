package dolphin

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// How the leaf of a key is found. A descent goes by copies of inner nodes, whatever their age, to
// the leaf of the greatest place that is not above the key (package art). The leaf's range, which
// never changes, decides whether it is the one; its forward word, whether it is the truth. A leaf
// that is the truth for its range when its forward word is READ proves hit and miss, whatever led
// there. A copy that may be followed, and a slot that this operation READ, lead to memory that is
// still this leaf, or says that it is out.
//
// A leaf that is to be merged is the truth as long as its forward word says so. The leaf that has
// its pairs besides may be there already, but nobody changes these there before this one's forward
// word leads there (merge.go).
//
// Where another leaf has taken a leaf's place, readers follow the forward word. First the range,
// then the forward word: the other leaf may have a larger range than the one that leads there, and
// be the truth for a part of it only.
//
// A leaf with a right half had it when it came to be, and keeps the address for ever. So the right
// half is followed only from a leaf without a slot: where a descent by words that this operation
// READ ended at the leaf before. The right half had no slot then, and gets one before another leaf
// takes its place, so its memory is not used again before this operation ends. A copy of the slot
// would not do: the right half may have got its slot, and lost it, since the copy was made.

// reach is what a leaf is for a key.
type reach uint8

const (
	astray  reach = iota // no leaf is there, or one with smaller keys only
	above                // all of its keys are larger
	right                // the key is in its range
	none                 // the index has no leaf
	changed              // others have taken its place now, and the descent is to begin anew
)

// find READs the leaf that is the truth for key, to s.leaf; strict: for the keys directly below it.
// false: there is no leaf at all.
func (s *Session) find(key []byte, strict bool) (bool, error) {
	for fresh := false; ; fresh = true {
		found, err := s.SeekBound(key, fresh)
		for found && err == nil {
			var r reach
			if r, err = s.follow(key, strict, fresh); err != nil || r == right || r == none {
				return err == nil && r == right, err
			}
			if r == astray {
				break
			}
			found, err = s.SeekBefore(key, fresh)
		}
		switch {
		case err != nil:
			return false, err
		case !fresh:
			continue
		case !found:
			return false, nil
		}
		if err := s.strayed(s.Last().Word.Addr()); err != nil {
			return false, err
		}
	}
}

// follow READs the leaf where the descent ended, and those that have taken its place. fresh: the
// descent went by words that this operation READ.
func (s *Session) follow(key []byte, strict, fresh bool) (reach, error) {
	a, forwarded := s.Last().Word.Addr(), false
	for {
		if err := s.Read(a, s.room); err != nil {
			return astray, s.misled(err, a)
		}
		l := &s.leaf
		switch {
		case !l.open(s.room, a):
			return astray, nil
		case l.below(key, strict):
			if forwarded {
				return astray, nil
			}
			return above, nil
		}
		fw, err := s.t.forwardOf(l)
		if err != nil {
			return astray, err
		}
		if l.above(key, strict) {
			switch {
			case !forwarded && fw > merging: // it has the slot of what was merged
				a, forwarded = pool.Addr(fw), true
				continue
			case fresh && forwarded && l.right != pool.Nil:
				a = l.right
				continue
			}
			return astray, nil
		}
		switch {
		case l.isTruth():
			return right, nil
		case fw == gone && fresh: // and had its slot in this operation
			return none, nil
		case fw == gone:
			return astray, nil
		}
		a, forwarded = pool.Addr(fw), true
		if late := s.PS.Overdue(); late != nil {
			return astray, op.Failure(late, false)
		}
	}
}

// Lookup implements index.Session. One round trip if the inner nodes are in the cache: the READ of
// the leaf. Its range says that the leaf is the right one, for a hit and for a miss.
func (s *Session) Lookup(key, dst []byte) ([]byte, error) {
	s.Begin()
	defer s.End()
	v, err := s.lookup(key, dst)
	if err != nil && err != index.ErrNotFound {
		err = explain("look up", err)
	}
	return v, err
}

// lookup is Lookup as a part of an operation.
//
// A record that is alive may have been READ before its value was written, if its value was READ
// before the record was. Then it is READ once more: the value was there before the record was
// alive, so what is there then is the value, whatever it is.
func (s *Session) lookup(key, dst []byte) ([]byte, error) {
	if err := s.lay.CheckKey(key); err != nil {
		return dst, err
	}
	tag := s.lay.tagOf(key)
	unwritten, number := pool.Nil, 0 // a record that was alive, and had no value
	for {
		there, err := s.find(key, false)
		if err != nil {
			return dst, err
		}
		if !there {
			return dst, index.ErrNotFound
		}
		l := &s.leaf
		f, damaged := l.find(key, tag)
		switch {
		case damaged:
			return dst, damagedRecord(l.at)
		case f.is:
			v, long, ok := l.value(f.cursor, f.w)
			if ok || s.lay.words && unwritten == l.at && number == f.n {
				if !long {
					return append(dst, v...), nil
				}
				r := blocks.Decode(v)
				if value, ok, err := s.Blocks.AppendValue(dst, r); ok || err != nil {
					return value, err
				}
			}
			unwritten, number = l.at, f.n
		case !f.again:
			return dst, index.ErrNotFound
		}
		if err := s.Reread(l.at); err != nil {
			return dst, err
		}
	}
}
