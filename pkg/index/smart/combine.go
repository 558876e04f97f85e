package smart

import (
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Write combining (section 4.2). The session that has a leaf's lock makes, with its own change,
// those that sessions of its client offer while they wait for the lock (pool/combine.go has the
// queue and its rules). The window closes with the lock in hand, and with the leaf verified under
// it: the holder takes the offers out of the queue then, and no offer that comes later is answered
// by it. A leaf has one key. So all changes that were taken come to one state, which is written in
// one list as that of a single change. The changes before the last one took effect directly before
// it: nobody saw the leaf between them, since the cell that they would have written does not count
// until the control word is WRITTEN.
//
// A change that does not end in place, as its value is too long for the cell, takes memory. Who
// holds the lock for a change that needs none takes no such offers: it could not answer its own
// operation where there is no memory.

// offers makes the change that the operation under way is.
func (s *Session) offers(m combine.Mode, key, value []byte) *combine.Change {
	s.offer = combine.Change{Mode: m, Key: key, Value: value}
	return &s.offer
}

// lockOr acquires the lock of the leaf at a and READs it to b. made: another session of this
// client, which has the lock, made the change c, or failed to.
func (s *Session) lockOr(a pool.Addr, b []byte, c *combine.Change) (made bool, err error) {
	if c == nil || !s.t.with.writeCombining {
		return false, s.PS.Lock(a, b)
	}
	return s.PS.LockOr(a, b, c)
}

// changeLocked makes the session's change c of the locked leaf, which is in s.leaf, together with
// those that others offer, and releases the lock.
func (s *Session) changeLocked(c *combine.Change) error {
	there := s.leaf.ctl.state() == alive
	k := combine.KeyState{Key: c.Key, Was: there, Is: there}
	k.Add(c, len(c.Value))
	if s.t.with.writeCombining {
		k.Take(s.PS, s.leaf.at, s.longestBeside(&k))
	}
	var err error
	switch {
	case !k.Changed():
		err = s.Unlock(nil)
	case k.Is:
		err = s.updateLocked(c.Key, k.Value)
	default:
		err = s.removeLocked(c.Key)
	}
	if err != nil {
		return err
	}
	return c.Answer
}

// longestBeside is how long values may be that the holder of the leaf's lock writes for others
// beside its own change, which k has.
func (s *Session) longestBeside(k *combine.KeyState) int {
	if n := len(k.Value); k.Put && (s.lay.InBlock(n) || !s.leaf.hasRoom(n)) {
		return s.lay.MaxValue
	}
	most := s.leaf.cell - cellHead
	if s.lay.Blocks {
		most = min(most, s.lay.Inline)
	}
	return most
}
