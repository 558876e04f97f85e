package slottedtree

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
)

// Leaves with owners that keep none of them (Config.Own): P-Sherman, the baseline of DEX's paper.
// Only the client that has taken a range changes its leaves. So a change of one entry takes the
// leaf's place in the local lock table alone (pool.Session.LockOwn): READ, then the entry with its
// slot word, and no atomic. The list is that of writeEntry, so readers, and a client that dies
// between any two of its requests, are as there.
//
// Changes of structure stay what they are in Sherman, for what a client that dies leaves of them
// has to be found: a word of its lock, with a record. So a leaf that has to be compacted or divided
// is locked once more, with its lock of the memory server, and the operation begins anew. A merge
// takes the locks of both leaves and of their parent, and asks the Cache for both. All of these
// stand in the local queue before they ask the memory server. So they exclude changes of entries as
// well.
//
// Why no other client comes between:
//
//   - A taken range has leaves of its own only: whoever takes or gives it divides the leaves at its
//     ends under their locks, and the Cache allows no merge across an end.
//   - Before a client takes a range its last owner has given it, with no operation under way, or is
//     fenced. What that one left half done is repaired before (pool.Session.RepairAll). Later
//     repairs find nothing of these leaves.
//
// A dead client leaves no change of an entry that was answered and is not in the memory servers. So
// there is nothing to replay.

// resolveOwn is ResolveLocked where only the leaf's place in the local lock table is held. The leaf
// may be another client's, which a parent that does not know all of its children yet led to. That
// client may be rewriting it, so the leaf may come to rest.
func (s *Session) resolveOwn(p *btree.Path, h *fence.Header, key []byte, hops *int) error {
	if err := s.Unlock(nil); err != nil {
		return err
	}
	return s.Resolve(p, h, key, s.Node, hops)
}

// errNeedsLock: the leaf has no room, and only its place in the local lock table is held.
var errNeedsLock = errors.New("the leaf needs its lock")

// again reports whether an operation that ended with err is to be done once more.
func (s *Session) again(err error) bool {
	if errors.Is(err, errNeedsLock) {
		s.Blocks.Forget()
		s.needsLock = true
		return true
	}
	return errors.Is(err, index.ErrPoolFull) && s.AwaitMemory()
}
