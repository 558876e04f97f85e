package chime

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/rounds"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// mostRoom bounds what a session has for the pieces of a round.
const mostRoom = 32 << 10

// round is the part of a batch of which the neighbourhoods are READ together. It implements
// rounds.Nodes.
type round struct {
	rounds.Lookups
	s     *session
	n     int
	addrs [rounds.Most]pool.Addr
	homes [rounds.Most]int
	wants [rounds.Most]pieces
	at    [rounds.Most]int // of the pieces, in the room
}

// bytesOfPieces is what the pieces of one key take at most.
func (s *shape) bytesOfPieces() int {
	return s.head + 2*replicaBytes + (s.hood+s.hood)*s.slot
}

// batchBytes is what a session's arena has for a batch.
func batchBytes(l *fence.Layout) int {
	s := shapeOf(l)
	return s.roomBytes() + 64
}

func (s *shape) roomBytes() int {
	return max(s.lay.NodeBytes, min(mostRoom, rounds.Most*s.bytesOfPieces()))
}

// LookupBatch implements index.Session. Of each key the neighbourhood is READ. What is true of a
// lookup is true of each key. A key of which what was READ does not say is looked up alone.
func (s *session) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) (err error) {
	if s.round == nil {
		r := &round{s: s}
		if s.room, err = s.PS.Buffer(s.t.roomBytes()); err != nil {
			return explain("look up", err)
		}
		s.round = r
	}
	return s.round.Run(s, s.round, &s.Blocks, keys, visit)
}

// Read implements rounds.Nodes: the neighbourhoods of as many keys as there is room for. Without
// metadata replication their heads come in another list.
func (r *round) Read(keys [][]byte) (int, error) {
	s := r.s
	r.n = 0
	used, requests := 0, 0
	for r.n < min(len(keys), rounds.Most) {
		key := keys[r.n]
		if err := s.Lay.CheckKey(key); err != nil {
			return 0, err
		}
		i := r.n
		home := s.t.home(s.leafKey(key))
		p, err := s.Seek(key, fence.Holding, 0)
		if err != nil {
			return 0, err
		}
		w := s.piecesFor(&p, home, asParentSays)
		n := w.bytes()
		if w.late {
			n += s.t.head
		}
		if requests += w.n; used+n > len(s.room) || requests > verbs.MaxList {
			break
		}
		s.CountHit(&p)
		r.addrs[i], r.homes[i], r.wants[i], r.at[i] = p.Addr(), home, w, used
		used += n
		r.n++
	}
	for i := range r.n {
		at := r.at[i]
		for _, p := range r.wants[i].list[:r.wants[i].n] {
			n := p.to - p.from
			s.PS.Read(r.addrs[i]+pool.Addr(p.from), s.room[at:at+n])
			at += n
		}
	}
	if err := s.PS.Post(); err != nil {
		return 0, op.Failure(err, false)
	}
	s.Pause()
	for i := range r.n {
		if w := &r.wants[i]; w.late {
			at := r.at[i] + w.bytes()
			s.PS.Read(r.addrs[i], s.room[at:at+s.t.head])
		}
	}
	return r.n, op.Failure(s.PS.Post(), false)
}

// Search implements rounds.Nodes. The pieces are put into Node, one key after the other.
func (r *round) Search(i int, key []byte) ([]byte, rounds.Outcome) {
	s := r.s
	w, at := &r.wants[i], r.at[i]
	for _, p := range w.list[:w.n] {
		at += copy(s.Node[p.from:p.to], s.room[at:])
	}
	if w.late {
		copy(s.Node[:s.t.head], s.room[at:])
	}
	l := leaf{&s.t.shape, r.addrs[i], s.Node}
	version, holds := l.checkRange(w, key, r.homes[i])
	switch _, e, o := l.find(s.leafKey(key), r.homes[i], version); {
	case o == absent && holds:
		return nil, rounds.Absent
	case o != present:
		return nil, rounds.Undecided
	case s.t.codec.HasReference(e):
		return e, rounds.InBlock
	default:
		return s.Lay.ValueOf(e), rounds.Found
	}
}

// Value implements rounds.Nodes. Where keys lie in blocks another one can have its fingerprint.
func (r *round) Value(key, b []byte) ([]byte, bool) {
	if !r.s.t.indirect {
		return b, true
	}
	k, v, ok := splitPair(b)
	return v, ok && bytes.Equal(k, key)
}

// Find implements rounds.Nodes.
func (r *round) Find(key, dst []byte) ([]byte, error) { return r.s.find(key, dst) }
