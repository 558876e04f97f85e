package art

import "github.com/dmindex/dmindex/pkg/index/internal/op"

// Without lock-free inner nodes (section 4.1.2) a session inserts into a node, and replaces one
// that its slot leads to, under the node's lock, as in an adaptive radix tree whose writers exclude
// each other. It acquires the lock of the table that the node's address hashes to, READs the node's
// head with it, and releases it in the list of the swap, or apart without rearLock. The swap is the
// same. So clients with this technique and without it can use one index: to the others the lock
// means nothing.
//
// A session holds one lock at a time. So what is done under a leaf's lock, or follows from it, as
// that a leaf is taken out of its slot, is done without the node's; and the slots of a node that is
// replaced are frozen under no lock.

// lockNode acquires the lock of the node of st, unless inner nodes are lock-free. It fails if the
// operation's limit is over, since its change begins next. No lock may be held, and nothing be
// queued. publish, or Discard, releases it.
func (s *Session) lockNode(st *Step) error {
	if s.t.with.LockFreeInternal {
		return op.Failure(s.PS.Late(), false)
	}
	if err := s.PS.Lock(st.Node.Addr, s.Answers[:HeadBytes]); err != nil {
		return op.Failure(err, false)
	}
	return op.Failure(s.PS.Late(), false)
}

// postSwap posts what is queued, and releases the node's lock if there is one.
func (s *Session) postSwap() error {
	if s.PS.Holds() {
		return s.PS.PostUnlock()
	}
	return s.PS.Post()
}
