package btree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Connect makes the leaf at to, which begins at separator, known to its parent. What the operation
// wanted is done by then: only errors that the session does not survive are returned. No lock may
// be held.
func (s *Session) Connect(separator []byte, to pool.Addr) error {
	return s.connect([]sibling{{from: bytes.Clone(separator), at: to}})
}

// connect makes the leaves of a run, which follow each other, known to their parents. What the
// operation wanted is done by then: only errors that the session does not survive are returned.
func (s *Session) connect(run []sibling) error {
	err := s.insertSeparators(1, run)
	if s.PS.Err() != nil {
		return fmt.Errorf("the change is made, but its parent does not know it: %w: %w", index.ErrUnknown, err)
	}
	return nil
}

// Unconnected reports whether the operation has met a leaf that its parent does not know.
func (s *Session) Unconnected() bool { return s.unconnected != pool.Nil }

// ConnectMet makes a leaf that the operation has met, and that its parent does not know, known to
// that. Call it where no lock is held, when the operation is done.
func (s *Session) ConnectMet() error {
	if s.unconnected == pool.Nil {
		return nil
	}
	return s.connectMet()
}

// connectMet inserts the separator that an operation has found missing: its splitter is about to do
// it, has died, or had no memory for it. So not everybody tries who comes by.
func (s *Session) connectMet() error {
	to := s.unconnected
	s.unconnected = pool.Nil
	if invariants.Enabled {
		invariants.Check(s.metAt == s.PS.Stamp(), "leaf %v, which was met unconnected at %d, is connected at %d", to, s.metAt, s.PS.Stamp())
	}
	if s.Env.Uint64()%connectEvery != 0 {
		return nil
	}
	return s.connect([]sibling{{from: bytes.Clone(s.sep), at: to}})
}

// connectEvery is how many operations meet a missing separator for one that inserts it.
const connectEvery = 8

// insertSeparators makes the nodes of a run known to their parents on level: at once if a parent
// has room, else that is split and so on upwards. No lock is held before or after, and one at a
// time in between.
func (s *Session) insertSeparators(level uint8, run []sibling) error {
	for len(run) > 0 {
		root, err := s.root()
		if err != nil {
			return err
		}
		if root.level < level {
			done, err := s.growRoot(root, level, run[0].from, run[0].at)
			if err == errTorn {
				err = s.Settle(run[0].at)
			}
			if err == nil && done {
				run = run[1:]
				continue
			}
			if err == nil { // the root changed; the limit of the operation bounds how often
				err = s.Reread(root.addr)
			}
			if err != nil {
				return err
			}
			continue
		}
		p, err := s.descend(run[0].from, fence.Holding, level)
		var n *inner
		if err == nil {
			n, err = s.lockInner(&s.parent, p, run[0].from, level)
		}
		if err == errDead {
			if err = s.Reread(p.addr); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		done, up, to, err := s.addChildren(n, run)
		if err == errTorn {
			if err = s.Settle(run[done].at); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if run = run[done:]; up != nil {
			if err := s.insertSeparators(level+1, []sibling{{from: up, at: to}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// lockInner takes the lock of the node of a level that holds sep, starting at p, and decodes the
// node into n. errDead: p leads to a dead node.
func (s *Session) lockInner(n *inner, p Path, sep []byte, level uint8) (*inner, error) {
	for {
		if err := s.Lock(p.addr); err != nil {
			return nil, err
		}
		ok := n.decode(s.Lay, p.addr, s.Node)
		if !ok && unit.IsDead(p.addr, s.Node) {
			err := s.Unlock(errDead)
			if p.parent != nil {
				s.evict(p.parent)
			} else if err == errDead {
				if _, e := s.relearnRoot(); e != nil {
					err = e
				}
			}
			if err == nil {
				err = errDead
			}
			return nil, err
		}
		if !ok || n.Level() != level {
			return nil, s.Unlock(fmt.Errorf("inner node %v does not verify under its lock: %w", p.addr, index.ErrFormat))
		}
		if item.Below(sep, n.low) {
			if err := s.Unlock(nil); err != nil {
				return nil, err
			}
			if err := s.misled(p.parent, p.addr, sep); err != nil {
				return nil, err
			}
			return nil, errDead // the caller descends anew
		}
		if !n.above(sep) {
			return n, nil
		}
		if err := s.Unlock(nil); err != nil {
			return nil, err
		}
		if p.parent != nil {
			s.evict(p.parent)
		}
		p.addr = n.sibling
	}
}

// isAlive reports whether the node at a, of a level, begins at low and is not dead. The caller has
// the lock of the parent that it belongs to, or of the root word where it has none, so this stays
// true: a node dies under that lock. Somebody who connects a node that its splitter has connected
// long ago could else connect a dead one. errTorn: the node did not come to rest. Its writer may be
// dead, and its lock has to be taken; not by somebody who has one. Of a leaf its head says all that
// is asked.
func (s *Session) isAlive(a pool.Addr, level uint8, low []byte) (bool, error) {
	n := s.Lay.NodeBytes
	if level == 0 {
		n = s.t.leafHead
	}
	for range op.LockEvery {
		if err := s.Read(a, s.Node[:n]); err != nil {
			return false, err
		}
		if unit.IsDead(a, s.Node) {
			return false, nil
		}
		if h, ok := s.header(a, level, s.Node); ok {
			return bytes.Equal(h.Low, low), nil
		}
		s.Count.Retries++
		if late := s.PS.Overdue(); late != nil {
			return false, fmt.Errorf("node %v does not come to rest: %w", a, late)
		}
		s.Env.Yield()
	}
	return false, errTorn
}

// header returns that of the node of a level at a, of which b was READ; ok is false if it is torn.
func (s *Session) header(a pool.Addr, level uint8, b []byte) (h fence.Header, ok bool) {
	if level == 0 {
		return s.t.leaves.Open(a, b)
	}
	ok = h.Decode(b, s.Lay) && h.Level == level && VerifyInner(s.Lay, &h, a, b)
	return h, ok
}

// errTorn is returned where a node is torn, for good perhaps, and the caller had a lock. It has
// none any more.
var errTorn = errors.New("node is torn")

// addChildren inserts nodes of a run, those that live, into the locked node n, and gives the lock
// up: done of them, the first ones, as many as belong there and fit. If n had to be split, up is
// where its new sibling to begins, which must be made known one level higher. errTorn: nothing was
// inserted, and node number done is torn.
//
// Requests: READ of each child, unless it is held; rewrite of n as one unit under its next version,
// release. With a split, WRITE of the right sibling before them, as in DivideLeaf.
func (s *Session) addChildren(n *inner, run []sibling) (done int, up []byte, to pool.Addr, err error) {
	d, added, last := n.draftIn(&s.draft), 0, false
	for ; done < len(run) && (done == 0 || !n.above(run[done].from)) && d.Bytes(s.Lay) <= s.Lay.NodeBytes; done++ {
		c := &run[done]
		i := n.child(s.Lay, c.from)
		if n.children[i] == c.at {
			continue // somebody else was here
		}
		if !c.held {
			if lives, err := s.isAlive(c.at, n.Level()-1, c.from); err != nil {
				return done, nil, 0, s.Unlock(err)
			} else if !lives {
				continue
			}
		}
		// what was inserted before lies below it
		d.insert(i+added, c.from, c.at)
		added, last = added+1, i == len(n.children)-1
	}
	if added == 0 {
		return done, nil, 0, s.Unlock(nil)
	}
	if err := s.PS.ReserveRewrite(n.Addr, s.Lay.NodeBytes); err != nil {
		return 0, nil, 0, s.Unlock(op.Failure(err, false))
	}
	if d.Bytes(s.Lay) > s.Lay.NodeBytes {
		var right *Draft
		right, up = d.split(s.Lay, last)
		up = bytes.Clone(up) // the parent is drafted in the same place
		to, err = s.PS.Allocate(s.Lay.NodeBytes, s.t.placeInner(right.Level, right.Children))
		if err != nil {
			return 0, nil, 0, s.Unlock(op.Failure(err, false))
		}
		d.Sibling = to
		size := right.Build(s.Spare, s.Lay, to, unit.NewVersion(s.Env))
		s.PS.Write(pool.Sole, to, s.Spare[:size])
		if err := s.Await(); err != nil {
			return 0, nil, 0, s.Unlock(err)
		}
	}
	size := d.Build(s.Image, s.Lay, n.Addr, n.Version+1)
	s.PS.Rewrite(n.Addr, s.Image[:size])
	if err := s.Publish(); err != nil {
		return 0, nil, 0, err
	}
	if up != nil { // while the cache has a copy of the whole node
		s.admitPart(decodeInner(s.Lay, to, s.Spare), s.t.cached(n.Addr, 0))
	}
	s.admit(decodeInner(s.Lay, n.Addr, s.Image))
	return done, up, to, nil
}

// growRoot puts a new root above the present one, with it and child below; done says that this made
// child known, or that child does not live any more. The root is as known by root; if it is another
// one by now, that is learned and done is false.
//
// Two clients that split nodes of the root's level at the same time both come here, one after the
// other: the second one finds the new root and puts its child into it. Requests, under the lock of
// the root word: READ of that word; READ of the child; WRITE of the new root, whole, to a node that
// nobody knows; compare-and-swap of the root word, behind it: by G1, or awaited (G3), whoever sees
// the new root finds it complete.
//
// The lock is the only one that is needed, and it lies where the word does. While a client has it,
// nobody else changes the root (shrinkRoot needs it, too), until the client is fenced on the home
// server, and then its swap takes effect there no more. So the word cannot become another root and
// this one again before the swap. It is the root that was read, so no node of its level has a
// parent, and none of them is merged: a child that lives then goes on to live. The root itself may
// change meanwhile, as may the child: where they begin does not. Nor can it become another level's
// by a bulk load: with a sibling it is not all of an empty index. On which other servers the client
// is fenced does not matter: it changes nothing there that anybody knows.
func (s *Session) growRoot(root *rootRef, level uint8, sep []byte, child pool.Addr) (done bool, err error) {
	now, err := s.PS.LockRoot(s.Node)
	if err != nil {
		return false, op.Failure(err, false)
	}
	if now != root.addr {
		if err := s.Unlock(nil); err != nil {
			return false, err
		}
		_, err := s.learnRoot(now, root)
		return false, err
	}
	if root.level+1 != level {
		return false, s.Unlock(fmt.Errorf("root %v is on level %d, below it there is a node of level %d: %w", root.addr, root.level, level-1, index.ErrFormat))
	}
	if lives, err := s.isAlive(child, root.level, sep); err != nil || !lives {
		return err == nil, s.Unlock(err)
	}
	a, err := s.PS.Allocate(s.Lay.NodeBytes, pool.Nil)
	if err != nil {
		return false, s.Unlock(op.Failure(err, false))
	}
	d := &Draft{Low: s.Lay.Bottom, High: s.Lay.NoHigh(), Rightmost: true, Level: level,
		Children: []pool.Addr{root.addr, child}, Separators: [][]byte{sep}}
	n := d.Build(s.Spare, s.Lay, a, unit.NewVersion(s.Env))
	s.PS.Write(pool.Sole, a, s.Spare[:n])
	won, now, err := s.PS.SwapRoot(root.addr, a)
	if err == nil && !won {
		s.Pool.Free(a, s.Lay.NodeBytes)
		err = fmt.Errorf("the root is %v, not %v, under its lock: %w", now, root.addr, index.ErrFormat)
		return false, s.Unlock(err)
	}
	if err = s.Unlock(op.Failure(err, true)); err != nil {
		return false, err
	}
	s.admit(decodeInner(s.Lay, a, s.Spare))
	s.t.noteRoot(&rootRef{a, level, s.PS.Stamp()}, root)
	return true, nil
}
