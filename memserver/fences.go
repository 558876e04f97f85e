package memserver

import (
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Bounds of the attempts to finish a fence.
const (
	firstRetry   = 50 * time.Millisecond
	longestRetry = 5 * time.Second
	retryLimit   = 100 * time.Millisecond // of one attempt
	retriesATick = 8
)

// fences are the clients that are fenced and not finished: something of theirs may still take effect, or locks may name them. The
// lease loop tries again and again. All methods are called under the lock of the accounts.
type fences struct {
	list []unfinished
}

type unfinished struct {
	peer verbs.Peer
	next time.Duration // when it is tried again
	wait time.Duration // and after how long again, if in vain
}

func (s *fences) find(peer verbs.Peer) *unfinished {
	for i := range s.list {
		if s.list[i].peer == peer {
			return &s.list[i]
		}
	}
	return nil
}

// begin remembers a client, to be tried again from now on.
func (s *fences) begin(peer verbs.Peer, now time.Duration) {
	if s.find(peer) == nil {
		s.list = append(s.list, unfinished{peer, now, firstRetry})
	}
}

// due is the client whose turn it is, if any; its next turn comes later.
func (s *fences) due(now time.Duration) (peer verbs.Peer, ok bool) {
	for i := range s.list {
		if u := &s.list[i]; now >= u.next {
			u.next = now + u.wait
			u.wait = min(2*u.wait, longestRetry)
			return u.peer, true
		}
	}
	return verbs.Peer{}, false
}

// end forgets a client.
func (s *fences) end(peer verbs.Peer) {
	for i := range s.list {
		if s.list[i].peer == peer {
			s.list = append(s.list[:i], s.list[i+1:]...)
			return
		}
	}
}

// endIndex forgets the clients of an index.
func (s *fences) endIndex(index string) {
	kept := s.list[:0]
	for _, u := range s.list {
		if u.peer.Index != index {
			kept = append(kept, u)
		}
	}
	s.list = kept
}
