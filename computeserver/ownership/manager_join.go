package ownership

import (
	"bytes"
	"time"
)

// JoinsRanges is the reason that is logged when holdings are joined.
const JoinsRanges = "neighbouring ranges become one"

// Ranges that move because of load leave a client with more and more adjacent holdings, each with
// its own epoch, and an index may have only so many. A client that has many releases a run of them
// and acquires it again as one. To all others that is a handover with the same client on both
// sides. Its requests for these keys wait meanwhile.

const (
	heldMost  = 48               // a client with more holdings joins some
	joinMost  = 32               // at once
	joinEvery = 10 * time.Second // at most
)

// join begins to join holdings, if there is nothing else to do. Called under mu.
func (h *Manager) join() bool {
	now := h.env.Now()
	if len(h.held) <= h.most || len(h.claims.open) > 0 || h.joined > 0 && now-h.joined < joinEvery {
		return false
	}
	first, length := 0, 0
	for i := 0; i < len(h.held); {
		n := 1
		for i+n < len(h.held) && n < joinMost && bytes.Equal(h.held[i+n-1].End, h.held[i+n].Start) {
			n++
		}
		if n > length {
			first, length = i, n
		}
		i += n
	}
	for i := range h.held {
		if h.held[i].state != RangeServing || h.held[i].deferred {
			return false
		}
	}
	if length < 2 {
		return false
	}
	h.joined = now
	h.log.Info(JoinsRanges, "neighbours", length, "of", len(h.held))
	for i := range h.held[first : first+length] {
		h.enter(&h.held[first+i], RangeClosing)
	}
	h.publish()
	return true
}
