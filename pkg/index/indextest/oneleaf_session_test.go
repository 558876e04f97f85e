package indextest

import (
	"bytes"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
)

// oneLeafSession implements index.Session. op.Op has its limit, counts and end, op.Direct what a
// session without a log does not do.
type oneLeafSession struct {
	op.Op
	op.Direct
	x           *oneLeaf
	leaf, image []byte     // buffers of the arena: only such can be READ into, and WRITTEN from
	pairs       []leafPair // of leaf
}

// look is an operation that reads: it READs the leaf, without its lock, until that is whole.
func (s *oneLeafSession) look(use func(pairs []leafPair)) error {
	s.Begin()
	defer s.End()
	for {
		if err := s.Read(s.x.root, s.leaf); err != nil {
			return err
		}
		pairs, ok := s.x.decode(s.leaf, s.x.root, s.pairs[:0])
		if ok {
			s.pairs = pairs
			use(pairs)
			return nil
		}
		if err := s.Reread(s.x.root); err != nil {
			return err
		}
	}
}

// change is an operation that writes: what edit makes of the pairs takes the place of the leaf,
// under its lock; nil = the leaf stays.
//
//  1. Lock: the atomic, and behind it the READ of the leaf, which nobody else changes now.
//  2. Late: a caller whose limit is over may have given up, so nothing is changed any more.
//  3. ReserveRewrite: a place for an image of the leaf. After this nothing can fail before 4.
//  4. Rewrite, PostUnlock: image, repair record, leaf and release go out in one list. A client that
//     dies leaves the old leaf, the new one, or a lock whose next holder makes it the new one.
func (s *oneLeafSession) change(edit func(pairs []leafPair) ([]leafPair, error)) error {
	s.Begin()
	defer s.End()
	if err := s.PS.Lock(s.x.root, s.leaf); err != nil {
		return op.Failure(err, false)
	}
	if late := s.PS.Late(); late != nil {
		return s.Refuse(op.Failure(late, false))
	}
	pairs, ok := s.x.decode(s.leaf, s.x.root, s.pairs[:0])
	if !ok {
		return s.Refuse(index.ErrFormat)
	}
	s.pairs = pairs
	made, err := edit(pairs)
	if made == nil || err != nil {
		return s.Refuse(err)
	}
	if !s.x.encode(s.image, s.x.root, unit.Version(s.leaf)+1, made) {
		return s.Refuse(index.ErrPoolFull)
	}
	if err := s.PS.ReserveRewrite(s.x.root, s.x.size); err != nil {
		return s.Refuse(op.Failure(err, false))
	}
	s.PS.Rewrite(s.x.root, s.image)
	return op.Failure(s.PS.PostUnlock(), true)
}

// findPair returns where key is, or would be.
func findPair(pairs []leafPair, key []byte) (at int, found bool) {
	return slices.BinarySearchFunc(pairs, key, func(p leafPair, k []byte) int { return bytes.Compare(p.key, k) })
}

// Lookup implements index.Session.
func (s *oneLeafSession) Lookup(key, dst []byte) (value []byte, err error) {
	value, answer := dst, index.ErrNotFound
	if err := s.x.codec.CheckKey(key); err != nil {
		return dst, err
	}
	if err := s.look(func(pairs []leafPair) {
		if i, found := findPair(pairs, key); found {
			value, answer = append(dst, pairs[i].value...), nil
		}
	}); err != nil {
		return dst, err
	}
	return value, answer
}

// edit changes one pair: decide is told what key has, and says what it shall have.
func (s *oneLeafSession) edit(key []byte, decide func(old []byte, found bool) ([]byte, index.Action, error)) error {
	if err := s.x.codec.CheckKey(key); err != nil {
		return err
	}
	return s.change(func(pairs []leafPair) ([]leafPair, error) {
		i, found := findPair(pairs, key)
		var old []byte
		if found {
			old = pairs[i].value
		}
		value, action, err := decide(old, found)
		switch {
		case err != nil || action == index.Keep || action == index.Remove && !found:
			return nil, err
		case action == index.Remove:
			return slices.Delete(pairs, i, i+1), nil
		case found:
			pairs[i].value = value
			return pairs, nil
		}
		return slices.Insert(pairs, i, leafPair{key, value}), nil
	})
}

// put gives key a value; absent and present are the answers if it is not there, and if it is.
func (s *oneLeafSession) put(key, value []byte, absent, present error) error {
	if err := s.x.codec.CheckPair(key, value); err != nil {
		return err
	}
	return s.edit(key, func(_ []byte, found bool) ([]byte, index.Action, error) {
		if found {
			return value, index.Put, present
		}
		return value, index.Put, absent
	})
}

// Insert implements index.Session.
func (s *oneLeafSession) Insert(key, value []byte) error {
	return s.put(key, value, nil, index.ErrExists)
}

// Update implements index.Session.
func (s *oneLeafSession) Update(key, value []byte) error {
	return s.put(key, value, index.ErrNotFound, nil)
}

// Upsert implements index.Session.
func (s *oneLeafSession) Upsert(key, value []byte) error { return s.put(key, value, nil, nil) }

// Delete implements index.Session.
func (s *oneLeafSession) Delete(key []byte) error {
	return s.edit(key, func(_ []byte, found bool) ([]byte, index.Action, error) {
		if !found {
			return nil, index.Keep, index.ErrNotFound
		}
		return nil, index.Remove, nil
	})
}

// Modify implements index.Session.
func (s *oneLeafSession) Modify(key []byte, change index.Change) error {
	return s.edit(key, func(old []byte, found bool) ([]byte, index.Action, error) {
		return s.x.codec.Decide(change, key, old, found)
	})
}

// LookupBatch implements index.Session.
func (s *oneLeafSession) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	for _, k := range keys {
		if err := s.x.codec.CheckKey(k); err != nil {
			return err
		}
	}
	return s.look(func(pairs []leafPair) {
		for n, k := range keys {
			if i, found := findPair(pairs, k); found {
				visit(n, pairs[i].value, nil)
			} else {
				visit(n, nil, index.ErrNotFound)
			}
		}
	})
}

// Scan implements index.Session.
func (s *oneLeafSession) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	if len(start) > 0 {
		if err := s.x.codec.CheckKey(start); err != nil {
			return err
		}
	}
	return s.look(func(pairs []leafPair) {
		i, _ := findPair(pairs, start)
		switch {
		case reverse && len(start) > 0:
			slices.Reverse(pairs[:i])
			pairs = pairs[:i]
		case reverse:
			slices.Reverse(pairs)
		default:
			pairs = pairs[i:]
		}
		for _, p := range pairs[:min(limit, len(pairs))] {
			if !visit(p.key, p.value) {
				return
			}
		}
	})
}
