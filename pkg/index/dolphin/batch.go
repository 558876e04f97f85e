package dolphin

import (
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/rounds"
	"github.com/dmindex/dmindex/pkg/pool"
)

// round is the part of a batch of which the leaves are READ together. It implements rounds.Nodes.
type round struct {
	s       *Session
	lookups rounds.Lookups
	leaf    leaf
	n       int // leaves in the ring
	at      [mostReads]pool.Addr
	in      [rounds.Most]int // of each key, which of them
}

// LookupBatch implements index.Session: see package rounds. What is true of a lookup is true of
// each key: its leaf is READ once.
func (s *Session) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	if s.round == nil {
		s.round = &round{s: s}
		s.round.leaf.lay = s.lay
	}
	return s.round.lookups.Run(s, s.round, &s.Blocks, keys, visit)
}

// Resume goes on with an operation, which forgets what it has got.
func (s *Session) Resume() {
	s.Op.Resume()
	s.Forget()
}

// Read implements rounds.Nodes.
func (r *round) Read(keys [][]byte) (n int, err error) {
	s := r.s
	r.n = 0
	for n < min(len(keys), rounds.Most) {
		if err := s.lay.CheckKey(keys[n]); err != nil {
			return 0, err
		}
		found, err := s.SeekBound(keys[n], false)
		if err != nil {
			return 0, err
		}
		r.in[n] = -1
		if found {
			a := s.Last().Word.Addr()
			i := 0
			for i < r.n && r.at[i] != a {
				i++
			}
			if i == len(s.ring) {
				break
			}
			if r.in[n] = i; i == r.n {
				r.at[i] = a
				r.n++
			}
		}
		n++
	}
	if r.n == 0 {
		return n, nil
	}
	for i, a := range r.at[:r.n] {
		s.PS.Read(a, s.ring[i])
	}
	if err := s.PS.Post(); err != nil {
		return 0, s.misled(err, r.at[:r.n]...)
	}
	s.Pause()
	return n, nil
}

// Search implements rounds.Nodes.
func (r *round) Search(i int, key []byte) (b []byte, o rounds.Outcome) {
	s, l := r.s, &r.leaf
	j := r.in[i]
	if j < 0 || !l.open(s.ring[j], r.at[j]) || l.below(key, false) || l.above(key, false) {
		return nil, rounds.Undecided
	}
	if !l.isTruth() {
		return nil, rounds.Undecided
	}
	f, damaged := l.find(key, s.lay.tagOf(key))
	switch {
	case damaged || f.again:
		return nil, rounds.Undecided
	case !f.is:
		return nil, rounds.Absent
	}
	v, long, ok := l.value(f.cursor, f.w)
	switch {
	case !ok:
		return nil, rounds.Undecided
	case long:
		ref := blocks.Decode(v)
		return ref.PutEntry(&s.lay.Codec, s.entry, key), rounds.InBlock
	}
	return v, rounds.Found
}

// Value implements rounds.Nodes.
func (r *round) Value(_, b []byte) ([]byte, bool) { return b, true }

// Find implements rounds.Nodes.
func (r *round) Find(key, dst []byte) ([]byte, error) { return r.s.lookup(key, dst) }
