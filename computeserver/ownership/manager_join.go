package ownership

import (
	"bytes"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/pool"
)

// JoinsRanges is the reason that is logged when holdings are joined.
const JoinsRanges = "neighbouring ranges become one"

// Ranges that move because of load leave a client with more and more adjacent holdings, each with
// its own epoch, and an index may have only so many (pool.MaxHoldings). A client that has many
// releases a run of them and acquires it again as one. To all others that is a handover with the
// same client on both sides. Its requests for these keys wait meanwhile.
//
// All clients of an index share its holdings, so many is less where there are more servers: a
// quarter of what the index may have, divided among the servers of the map. A map has at most half
// as many separate ranges (partition.MaxSeparate). So holdings that could be joined and those that
// could not are three quarters at most; the rest is for keys that change hands.
//
// A client joins also while claims of its own are open, or moves put off: these may wait for a
// holding that others find by joining theirs. A part of a grant of which another part is put off is
// left alone, because the home keeps both as one holding, and would refuse to divide it.

const (
	heldMost  = 48               // a client with more holdings joins some
	joinMost  = 32               // at once
	joinEvery = 10 * time.Second // at most
)

// mostHoldings is how many holdings this client has before it joins some. Called under mu.
func (h *Manager) mostHoldings() int {
	servers := 1
	if m := h.own.Current(); m != nil {
		servers = len(m.Servers)
	}
	return min(h.most, max(1, pool.MaxHoldings/4/servers))
}

// join begins to join holdings, if no step is due. Called under mu.
func (h *Manager) join() bool {
	now := h.env.Now()
	if len(h.held) <= h.mostHoldings() || h.joined > 0 && now-h.joined < joinEvery {
		return false
	}
	may := func(r *heldRange) bool {
		return r.state == RangeServing && !slices.ContainsFunc(h.held, func(o heldRange) bool { return o.deferred && o.Epoch == r.Epoch })
	}
	first, length := 0, 0
	for i := 0; i < len(h.held); {
		n := 0
		for i+n < len(h.held) && n < joinMost && may(&h.held[i+n]) && (n == 0 || bytes.Equal(h.held[i+n-1].End, h.held[i+n].Start)) {
			n++
		}
		if n > length {
			first, length = i, n
		}
		i += max(n, 1)
	}
	if length < 2 {
		return false
	}
	h.joined = now
	h.log.Info(JoinsRanges, "neighbours", length, "of", len(h.held))
	for i := range h.held[first : first+length] {
		h.enterState(&h.held[first+i], RangeClosing)
	}
	h.publish()
	return true
}
