package smart

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/pool"
)

// The walk of a sweep is that of a scan, which READs each inner node and each leaf. It goes by
// pieces: an operation each, of as many pairs as one round of a scan finds, so that no epoch waits
// for more than that. A piece begins behind the last pair of the one before, at the root. All nodes
// on its way to there are seen again.

// walkAll tells r of all that is in the tree during all of the walk.
func (t *Tree) walkAll(r *pool.Review) (err error) {
	s, err := t.newSession()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	sc := s.scanner()
	sc.sees = make([]pool.Addr, 0, 4*mostReads)
	defer func() { sc.sees = nil }()
	sc.bound = sc.bound[:0]
	for first, more := true, true; more; first = false {
		began := t.Env.Now()
		if more, err = s.walkPiece(!first); err != nil {
			return err
		}
		r.Seen(sc.sees)
		sc.sees = sc.sees[:0]
		if err := t.Rest(began); err != nil {
			return err
		}
	}
	return s.SeeRoots(r.Seen)
}

// walkPiece goes on with the walk of a sweep, behind the pair where the piece before ended, unless
// it is the first one. more is false at its end.
func (s *Session) walkPiece(behind bool) (more bool, err error) {
	s.Begin()
	defer s.End()
	sc := s.scan
	sc.reverse, sc.left = false, mostReads
	sc.bounded, sc.strict = true, behind
	sc.out, sc.keys = sc.out[:0], sc.keys[:0]
	s.restart()
	defer sc.drop()
	for {
		why, err := s.walk()
		if err == nil && why == lacking {
			err = s.readAhead()
		}
		if err != nil || why != lacking {
			return why == full, err
		}
	}
}

// see notes that the node, leaf or block at a is in the tree.
func (sc *scan) see(a pool.Addr) {
	if sc.sees != nil {
		sc.sees = append(sc.sees, a)
	}
}
