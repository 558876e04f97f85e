package slottedtree

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// mostInRound is how many keys of a batch are looked up in one round at most.
const mostInRound = 64

// round is the part of a batch of which the leaves are READ together.
type round struct {
	keys   int // from the first one on
	leaf   [mostInRound]int8
	addrs  [btree.MaxRing]pool.Addr // of what the ring has
	leaves int
	long   longEntries
	value  []byte // of a key that is looked up alone
}

// longEntries are the entries of a round that refer to blocks, in the order of its keys.
type longEntries struct {
	n       int
	entries [mostInRound][]byte
	keys    [mostInRound]int
}

// Len implements blocks.Entries.
func (l *longEntries) Len() int { return l.n }

// Entry implements blocks.Entries.
func (l *longEntries) Entry(i int) []byte { return l.entries[i] }

// LookupBatch implements index.Session. It goes round by round: descents for some keys; the READs
// of their leaves, in one round trip to all servers; then those of long values. What is true of a
// lookup is true of each key, since its leaf is READ once, and as a whole. A key whose leaf is
// torn, or is another one by now, is looked up alone.
//
// What a round has got is forgotten at its end, so the epochs wait for no more than a round,
// however many keys there are. The limit is of the whole batch.
func (s *Session) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	s.Begin()
	defer s.End()
	if s.batch == nil {
		s.batch = new(round)
	}
	r := s.batch
	for first := 0; first < len(keys); first += r.keys {
		if first > 0 {
			s.End()
			s.Resume()
		}
		if err := s.readRound(keys[first:]); err != nil {
			return explain("look up", err)
		}
		if err := s.visitRound(keys, first, visit); err != nil {
			return err
		}
		for i := range r.keys {
			if first+i > 0 { // Begin counts one
				s.Counted()
			}
		}
	}
	return nil
}

// readRound READs the leaves of as many keys as there is room for, but at least of one.
func (s *Session) readRound(keys [][]byte) error {
	r := s.batch
	r.keys, r.leaves, r.long.n = 0, 0, 0
	for r.keys < min(len(keys), mostInRound) {
		if err := s.Lay.CheckKey(keys[r.keys]); err != nil {
			return err
		}
		p, err := s.Seek(keys[r.keys], fence.Holding, 0)
		if err != nil {
			return err
		}
		at := 0
		for at < r.leaves && r.addrs[at] != p.Addr() {
			at++
		}
		if at == len(s.Ring) {
			break
		}
		if at == r.leaves {
			r.addrs[at] = p.Addr()
			r.leaves++
		}
		s.CountHit(&p)
		r.leaf[r.keys] = int8(at)
		r.keys++
	}
	for i := range r.leaves {
		s.PS.Read(r.addrs[i], s.Ring[i])
	}
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	s.Pause()
	return nil
}

// visitRound visits the keys of the round, of which the first is keys[first].
func (s *Session) visitRound(keys [][]byte, first int, visit func(i int, value []byte, err error)) error {
	r := s.batch
	var l slotted.Leaf
	open := -1
	for i := range r.keys {
		key := keys[first+i]
		at := int(r.leaf[i])
		o := slotted.Torn
		var e []byte
		if at != open {
			open = -1
			if l.Open(s.Lay, r.addrs[at], s.Ring[at]) {
				open = at
			}
		}
		if open >= 0 && !l.Below(key) && !l.Above(key) {
			_, e, o = l.Find(key, s.Lay.Fingerprint(key))
		}
		switch o {
		case slotted.Absent:
			visit(first+i, nil, index.ErrNotFound)
		case slotted.Present:
			if s.Lay.HasReference(e) {
				r.long.entries[r.long.n], r.long.keys[r.long.n] = e, first+i
				r.long.n++
			} else {
				visit(first+i, s.Lay.ValueOf(e), nil)
			}
		default:
			if err := s.visitAlone(key, first+i, visit); err != nil {
				return err
			}
		}
	}
	s.Blocks.BeginScan()
	for i := range r.long.n {
		n := r.long.keys[i]
		value, err := s.Blocks.Next(&r.long, i, 1, r.long.n-i)
		if err != nil {
			return explain("look up", err)
		}
		if value == nil { // looking the key up says why
			if err := s.visitAlone(keys[n], n, visit); err != nil {
				return err
			}
			s.Blocks.BeginScan()
			continue
		}
		visit(n, value, nil)
	}
	return nil
}

// visitAlone looks key n of a batch up as if it were the only one.
func (s *Session) visitAlone(key []byte, n int, visit func(i int, value []byte, err error)) (err error) {
	r := s.batch
	if r.value, err = s.Find(key, r.value[:0]); err != nil && err != index.ErrNotFound {
		return err
	}
	if err != nil {
		visit(n, nil, err)
	} else {
		visit(n, r.value, nil)
	}
	return nil
}

// Prepare implements index.Session: a change READs its leaf in the list that locks it, and keeps
// nothing of it.
func (s *Session) Prepare(_, _ [][]byte) error { return nil }

// Defer implements index.Session: all that this tree does is durable when it returns.
func (s *Session) Defer(bool) {}

// Position implements index.Session.
func (s *Session) Position() uint64 { return 0 }

// Durable implements index.Session.
func (s *Session) Durable(uint64) error { return nil }
