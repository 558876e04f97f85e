package btree

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// LeafCache is what a design hooks in whose leaves have owners, and which keeps some of them in a
// cache, dirty ones too. The tree changes the structure of leaves in the memory servers only: what
// is kept of one must be written back before, and is old afterwards. A tree of a design without one
// lets all clients use all leaves.
//
// Methods are called on the goroutine of the session that they get, within one of its operations.
// They are safe for concurrent use by several sessions. A session's Owner is the design's session,
// or nil for the tree's own.
type LeafCache interface {
	// Claim keeps all other sessions of this client from the leaf at a, which holds the keys from
	// low up to high (without bound if rightmost), until Release. It writes back, by posting with
	// s, what is kept of it. It reports false if this client may not use all of the leaf, or may
	// not merge it now, or another session uses it. It waits for none.
	//
	// The caller has the client's merger until after Release. So a design that refuses claims from
	// some moment on, and then waits (AwaitMerges), knows that none is in force.
	Claim(s *Session, a pool.Addr, low, high []byte, rightmost bool) (bool, error)
	Release(a pool.Addr)

	// Copy makes b the leaf at a as it is kept, if it is. What the copy shows is durable when Copy
	// returns.
	Copy(s *Session, a pool.Addr, b []byte) (bool, error)

	// BeforeLoad is called before a bulk load takes effect. s has claimed the only leaf and holds
	// its lock, and the leaf is empty in the memory servers. After an error nothing is loaded.
	BeforeLoad(s *Session) error

	// Bound says where a scan of s ends, of a client that may use some keys only, and fewer of them
	// as time goes by. It is asked before a leaf is READ in which the scan goes on from cursor (or,
	// if reverse, below it, where an empty cursor is above all keys), and again when its image is
	// complete, before any pair of it is shown. The scan shows no keys from bound on, or, if
	// reverse, none below bound. An empty bound is nowhere. The scan ends if ok is false.
	Bound(s *Session, cursor []byte, reverse bool) (bound []byte, ok bool)

	// Clock is read before a scan READs leaves.
	Clock() uint64

	// Admit may keep the leaf at a, verified as a whole, which a scan of s READ into b after Clock
	// returned since. The leaf holds the keys from low up to high (without bound if rightmost).
	// Admit may post, but changes nothing that a scan uses. It is not called for the tree's own
	// sessions.
	Admit(s *Session, a pool.Addr, low, high []byte, rightmost bool, b []byte, since uint64) error

	// Offload reports whether a descent of s (DescendNear) ends at w, a node of level 1 or 2 that
	// is not in the cache, so that the memory server goes on from there.
	Offload(s *Session, w Way) bool
}

// claim and release are the leaf cache's, if there is one.
func (s *Session) claim(n *inner, i int) (bool, error) {
	if s.t.leafCache == nil || n.Level() > 1 {
		return true, nil
	}
	low, high, rightmost := n.low, n.high, n.rightmost && i == len(n.children)-1
	if i > 0 {
		low = n.separator(i - 1)
	}
	if i < len(n.children)-1 {
		high = n.separator(i)
	}
	return s.t.leafCache.Claim(s, n.children[i], low, high, rightmost)
}

func (s *Session) release(n *inner, i int) {
	if s.t.leafCache != nil && n.Level() == 1 {
		s.t.leafCache.Release(n.children[i])
	}
}

// claimRoot claims the leaf at a, which is the whole of an index, and waits for it.
func (s *Session) claimRoot(a pool.Addr) error {
	for s.t.leafCache != nil {
		if ok, err := s.t.leafCache.Claim(s, a, s.Lay.Bottom, nil, true); ok || err != nil {
			return err
		}
		if err := s.Retry(); err != nil {
			return fmt.Errorf("leaf %v is in use: %w", a, op.Failure(err, false))
		}
	}
	return nil
}

func (s *Session) releaseRoot(a pool.Addr) {
	if s.t.leafCache != nil {
		s.t.leafCache.Release(a)
	}
}

// copyCached makes b the leaf at a as the leaf cache has it, if there is one and it does.
func (s *Session) copyCached(a pool.Addr, b []byte) (bool, error) {
	if s.t.leafCache == nil {
		return false, nil
	}
	return s.t.leafCache.Copy(s, a, b)
}
