package btree

import (
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The holder of a leaf's lock carries out, with its own change, those of sessions that wait for the
// lock (pool/combine.go has the queue and its rules; combine.Group, what becomes of the keys).
// Which changes may be made in one list, and what the memory holds after each part of it, depends
// on the leaf: slottedtree/combine.go and chime/combine.go say why that is safe.

// Change is what a session offers to do, and the answer.
type Change struct {
	combine.Change
	// of a delete: the leaf that had the key, and what is in it now
	leaf pool.Addr
	load Load
}

// Together is a locked leaf in which changes are made together. A combine.Group has some of it.
type Together interface {
	// Add is Group.AddTo. The session's own change comes first.
	Add(c *combine.Change) bool

	// BeginCombined is called before the first of n changes of others is added
	// (Session.TakenChange), which from here on wait for this session. c is its own. It READs what
	// they need and was not READ yet.
	BeginCombined(c *Change, n int) error

	// Queue makes the changes in the image of the leaf and queues their WRITEs. It reports whether
	// there are any. With an error none is queued.
	Queue() (changed bool, err error)

	// Removes is that of the Group.
	Removes() bool

	// Load is how full the leaf is after Queue.
	Load() Load
}

// OfferChange is the change that the operation under way is, for whoever has the lock that the
// session waits for (LockOr, AcquireOr). There is one at a time.
func (s *Session) OfferChange(m combine.Mode, key, value []byte) *Change {
	s.offer = Change{Change: combine.Change{Mode: m, Key: key, Value: value}}
	return &s.offer
}

// Answered ends an operation whose change c another session carried out.
func (s *Session) Answered(c *Change) error {
	switch {
	case c.Answer != nil:
		return c.Answer
	case c.Mode == combine.Delete:
		return s.Tidy(c.Key, c.leaf, c.load)
	}
	return s.ConnectMet()
}

// Meets reports whether Combine is worth a try with the session's change c, which can be nil:
// others may wait for the lock.
func (s *Session) Meets(c *Change) bool { return c != nil && s.PS.Waited() }

// Combine makes the session's change c of the locked leaf at a together with those of others that
// wait for the lock, gives the lock up, and ends the operation. done is false if c is not such a
// change: then nothing has changed, and the lock is still held.
//
// What cannot be made goes back to the queue before the lock is given up, and with an error before
// the list is posted all that were taken do. The list answers the others (pool.Session.PostUnlock,
// PostRelease). So what a delete has to say to its session is there before.
func (s *Session) Combine(a pool.Addr, c *Change, l Together) (done bool, err error) {
	if !l.Add(&c.Change) {
		return false, nil
	}
	n := s.PS.Take(a)
	if err := l.BeginCombined(c, n); err != nil {
		return true, s.Refuse(err)
	}
	back := uint32(0)
	for i := range n {
		if !l.Add(&s.CombinedChange(i).Change) {
			back |= 1 << i
		}
	}
	changed, err := l.Queue()
	if err != nil {
		return true, s.Refuse(err)
	}
	if l.Removes() {
		load := l.Load()
		c.leaf, c.load = a, load
		for i := range n {
			o := s.CombinedChange(i)
			o.leaf, o.load = a, load
		}
	}
	s.PS.PutBack(back)
	if changed {
		err = s.Publish()
	} else {
		err = s.Unlock(nil)
	}
	if err != nil {
		return true, err
	}
	return true, s.Answered(c)
}

// CombinedChange is change i of those that Combine took.
func (s *Session) CombinedChange(i int) *Change { return s.PS.TakenChange(i).(*Change) }
