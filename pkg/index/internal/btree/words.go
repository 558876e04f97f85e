package btree

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Leaves with lock words. Whoever changes pairs of such a leaf, or splits it, holds its lock word
// (pool.Word), and not its lock of the table. Merges, and the bulk load that makes an inner node of
// the only leaf, change leaves as part of a larger change, which lies under locks of the table
// (pool.RewriteAll, pool.Rewrite). They hold the leaves' words besides, so that nobody else changes
// the leaves, and owe nothing under them. So two kinds of locks meet at a leaf:
//
//	changes a leaf as                    holds
//	a leaf, alone                        its word
//	a part of a merge                    the parent's lock; the words of both leaves, if they are
//	                                     free; their locks of the table, if they are free
//	the root that a load replaces        its word; then its lock of the table
//
// Who holds a lock of the table waits for no word, and for no second lock. So nobody waits for each
// other: who waits for a lock of the table, perhaps with a word, waits for one that is given up.
//
// A client that dies in a merge leaves locks of the table in REPAIR, with records, and words in
// REPAIR, that owe nothing. A word that is acquired from REPAIR is repaired before anybody else has
// it, and that begins with the leaf's lock of the table: when that was had, the merge is complete
// or undone, and nobody repairs it any more (pool/bundle_repair.go). Then the design looks at the
// leaf. The other way around, who repairs the merge writes leaves whose words nobody has, as none
// is had before.
//
// A leaf dies with its word held, so nothing is owed under a word of a dead leaf, and what its own
// bits say is cleared.

// WordedLeaves is a format of leaves that have lock words.
type WordedLeaves interface {
	Leaves

	// RebuildWord makes the leaf whole that w guards, whose holder died, and returns what its own
	// bits shall be, as pool.Rebuild. node is what lies there: the leaf, or, if that is gone,
	// anything. No Rewrite is owed there. WRITEs are s's, from room.
	RebuildWord(s *pool.Session, w pool.Word, own uint64, node, room []byte) (mask, bits uint64, err error)

	// Kill makes in b the image of the dead leaf at a, and returns how much of b it takes: so much
	// that a reader of any piece of the leaf finds that nothing verifies. It begins as that of
	// unit.PutDead.
	Kill(b []byte, a pool.Addr, version uint32) int
}

// openWords declares the lock words of leaves, if they have some.
func (t *Tree) openWords() (err error) {
	var ok bool
	if t.worded, ok = t.leaves.(WordedLeaves); !ok {
		t.worded = nil
		return nil
	}
	if t.strips, err = t.Pool.DeclareStrip(t.Lay.NodeBytes); err == nil {
		t.Pool.SetRebuild(t.rebuildWord)
	}
	return err
}

// Acquire acquires the lock word of the leaf at a, and reads spans of it under the lock: one round
// trip. own is what its own bits probably are, and then what they are. PS.SetOwn changes them, and
// Publish or Unlock gives the word up.
func (s *Session) Acquire(a pool.Addr, own uint64, spans ...pool.Span) (uint64, error) {
	own, _, err := s.AcquireOr(a, own, nil, spans...)
	return own, err
}

// AcquireOr is Acquire, but another session of this client that has the word may carry out change
// in the stead of this one (pool.Session.AcquireOr), unless it is nil. Then answered is true, and
// the word is not held. err is nil if the answer is in change; else it is ErrUnknown.
func (s *Session) AcquireOr(a pool.Addr, own uint64, change any, spans ...pool.Span) (now uint64, answered bool, err error) {
	s.Pause()
	at, err := s.t.strips.WordOf(a)
	if err != nil {
		return 0, false, op.Failure(err, false)
	}
	w := pool.Word{At: at, Node: a, InStrip: true, Own: own}
	if change == nil {
		own, err = s.PS.Acquire(w, spans...)
	} else {
		own, answered, err = s.PS.AcquireOr(w, change, spans...)
	}
	if answered || err != nil {
		return 0, answered, op.Failure(err, answered)
	}
	s.locked = a
	return own, false, nil
}

// kill makes the image of a dead node.
func (t *Tree) kill(b []byte, a pool.Addr, level uint8, version uint32) int {
	if level == 0 && t.worded != nil {
		return t.worded.Kill(b, a, version)
	}
	return unit.PutDead(b, a, level, version)
}

// settler is what repairs the lock of the table of a leaf while its word is held.
type settler struct {
	ps   *pool.Session
	node []byte
}

// rebuildWord is the hook of the pool.
func (t *Tree) rebuildWord(s *pool.Session, w pool.Word, own uint64, room []byte) (mask, bits uint64, err error) {
	e, err := t.acquireSettler(s)
	if err != nil {
		return 0, 0, err
	}
	defer t.releaseSettler(e)
	if err := e.ps.Lock(w.Node, e.node); err != nil {
		return 0, 0, err
	}
	if err := e.ps.PostUnlock(); err != nil {
		return 0, 0, err
	}
	return t.worded.RebuildWord(s, w, own, e.node, room)
}

func (t *Tree) acquireSettler(s *pool.Session) (*settler, error) {
	t.mu.Lock()
	var e *settler
	if n := len(t.settlers); n > 0 {
		e, t.settlers = t.settlers[n-1], t.settlers[:n-1]
	}
	t.mu.Unlock()
	if e == nil {
		e = new(settler)
		var err error
		if e.ps, err = t.Pool.NewSession(t.Lay.NodeBytes); err != nil {
			return nil, err
		}
		if e.node, err = e.ps.Buffer(t.Lay.NodeBytes); err != nil {
			return nil, errors.Join(err, e.ps.Close())
		}
	}
	e.ps.SetLimit(s.Limit())
	e.ps.BeginIn(s)
	return e, nil
}

// releaseSettler makes e idle. One that died is closed.
func (t *Tree) releaseSettler(e *settler) {
	e.ps.End()
	if e.ps.Err() != nil {
		_ = e.ps.Close()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settlers = append(t.settlers, e)
}

// closeSettlers is called with mu held.
func (t *Tree) closeSettlers() error {
	var errs []error
	for _, e := range t.settlers {
		errs = append(errs, e.ps.Close())
	}
	t.settlers = nil
	return errors.Join(errs...)
}

// wordsOfMerge is how many lock words a merge of leaves holds.
func (t *Tree) wordsOfMerge() int {
	if t.worded == nil {
		return 0
	}
	return 2
}

func (m *merger) holdsWords() bool {
	for _, ps := range m.words {
		if ps.Holds() {
			return true
		}
	}
	return false
}

// acquireWords acquires the words of two leaves, if they have some and nobody holds them. false:
// unlockAll gives up what was acquired.
func (s *Session) acquireWords(m *merger, a [2]pool.Addr) (bool, error) {
	for j, ps := range m.words {
		ps.BeginIn(s.PS)
		at, err := s.t.strips.WordOf(a[j])
		ok := false
		if err == nil {
			_, ok, err = ps.TryAcquire(pool.Word{At: at, Node: a[j], InStrip: true})
		}
		if err != nil || !ok {
			return false, op.Failure(err, false)
		}
	}
	return true, nil
}

// releaseWords gives up the words of two leaves that were merged. Of the left one nothing is known
// any more, and the right one is dead.
func (m *merger) releaseWords() error {
	for _, ps := range m.words {
		if !ps.Holds() { // inner nodes were merged
			continue
		}
		ps.SetOwn(^uint64(0), 0)
		if err := ps.PostUnlock(); err != nil {
			return op.Failure(err, true)
		}
	}
	return nil
}

// guardWord acquires the word of the leaf at a, if leaves have some, with another session; free
// gives it up. The operation goes on with the leaf's lock of the table.
func (s *Session) guardWord(a pool.Addr) (free func() error, err error) {
	if s.t.worded == nil {
		return func() error { return nil }, nil
	}
	at, err := s.t.strips.WordOf(a)
	if err != nil {
		return nil, err
	}
	ps, err := s.Pool.NewSession(0)
	if err != nil {
		return nil, op.Failure(err, false)
	}
	ps.SetLimit(s.PS.Limit())
	ps.BeginIn(s.PS)
	if _, err := ps.Acquire(pool.Word{At: at, Node: a, InStrip: true}); err != nil {
		return nil, errors.Join(op.Failure(err, false), ps.Close())
	}
	ps.SetOwn(^uint64(0), 0)
	return func() error {
		err := op.Failure(ps.PostUnlock(), true)
		_ = ps.Close()
		return err
	}, nil
}
