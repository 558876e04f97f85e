package smart

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Where memory is short, deletes leave their leaves in the tree: the key's next insertion makes the
// leaf alive again, and needs no memory. A leaf that is taken out comes back only when nobody can
// look at it any more. Else who deletes a pair and inserts it again in a full pool would wait for
// that each time.
//
// The keys of such leaves are noted here, so that the leaves are taken out (unlinkDead) when
// somebody finds no memory, or when memory was not short for a while. Of a client that dies they
// stay in the tree, until somebody inserts their keys.

// mostLeft is how many leaves a client leaves in the tree.
const mostLeft = 64

// shortage is what a client knows of it.
type shortage struct {
	n  atomic.Int32 // keys that are noted
	mu struct {
		env.Mutex
		keys [][]byte // n of them; those behind are room
		out  int      // keys that sessions took, and which may come back
	}
}

func (h *shortage) init(e env.Env) { h.mu.Mutex = e.NewMutex() }

// noteLeft notes the key of a leaf that is left. false: there are as many as may be.
func (h *shortage) noteLeft(key []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if int(h.n.Load())+h.mu.out == mostLeft {
		return false
	}
	h.addLocked(key)
	return true
}

// addLocked notes a key, as the one that is popped last.
func (h *shortage) addLocked(key []byte) {
	n := int(h.n.Load())
	if n == len(h.mu.keys) {
		h.mu.keys = append(h.mu.keys, nil)
	}
	k := h.mu.keys
	k[n] = append(k[n][:0], key...)
	k[0], k[n] = k[n], k[0]
	h.n.Store(int32(n + 1))
}

// putBack ends what pop began. kept: the leaf is in the tree still, so its key is noted again.
// There is room for it.
func (h *shortage) putBack(key []byte, kept bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.out--; kept {
		h.addLocked(key)
	}
}

// pop appends a noted key to dst. putBack follows.
func (h *shortage) pop(dst []byte) ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := int(h.n.Load())
	if n == 0 {
		return dst, false
	}
	h.n.Store(int32(n - 1))
	h.mu.out++
	return append(dst, h.mu.keys[n-1]...), true
}

// buryTogether is how many leaves an operation takes out on the way, where memory is not short any
// more.
const buryTogether = 4

// burySome takes leaves out that were left, at most n.
func (s *Session) burySome(n int) error {
	for ; n > 0 && s.t.shortage.n.Load() > 0; n-- {
		var ok bool
		if s.left, ok = s.t.shortage.pop(s.left[:0]); !ok {
			return nil
		}
		err := s.unlinkDead(s.left)
		s.t.shortage.putBack(s.left, err != nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// unlinkDead takes the leaf of key out of the tree, if it is dead. The requests are those of
// removeLocked.
func (s *Session) unlinkDead(key []byte) error {
	for {
		ended, found, v, err := s.lockLeaf(key)
		switch {
		case err != nil:
			return err
		case !found:
			if absent, err := s.provesAbsent(key, ended, v); absent || err != nil {
				return err
			}
			continue
		case s.leaf.ctl.state() != dead:
			return s.Unlock(nil)
		}
		return s.takeOut(key)
	}
}

// leaveLocked deletes key, whose locked leaf is in s.leaf, and releases the lock. The leaf stays in
// its slot, dead.
func (s *Session) leaveLocked() error {
	l := &s.leaf
	s.PS.Write(pool.Shared, l.at+atControl, l.setControl(l.ctl.cell(), dead))
	return s.Blocks.Publish(l.at)
}
