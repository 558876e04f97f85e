package ownership

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Status returns the ranges that this client holds or wants, in key order.
func (h *Manager) Status() (all []RangeStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.held {
		s := RangeStatus{Start: r.Start, End: r.End, Epoch: r.Epoch, State: r.state}
		if r.why != nil {
			s.Reason, s.PoolFull = r.why.Error(), errors.Is(r.why, index.ErrPoolFull)
		}
		all = append(all, s)
	}
	for _, c := range h.claims.open {
		s := RangeStatus{Start: c.Start, End: c.End, State: RangeAcquiring}
		switch b := slices.IndexFunc(h.claims.blocked, func(b pool.Blocked) bool { _, _, ok := keyrange.Intersect(b.Start, b.End, c.Start, c.End); return ok }); {
		case h.claims.why != nil:
			s.Reason = h.claims.why.Error()
		case b >= 0:
			s.Reason, s.Unfenced = h.obstacle(h.claims.blocked[b])
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b RangeStatus) int { return bytes.Compare(a.Start, b.Start) })
	return all
}

// obstacle describes what a claim waits for. Called under mu.
func (h *Manager) obstacle(b pool.Blocked) (reason string, unfenced uint16) {
	if b.Client == 0 {
		return b.Why.String(), 0
	}
	reason = fmt.Sprintf("client %d: %v", b.Client, b.Why)
	server, err := h.fence.pending(b.Client)
	if err != nil {
		return fmt.Sprintf("%s: it cannot be fenced at %v", reason, err), server
	}
	if b.Why == pool.BeingFenced {
		return reason, h.ix.Servers()[0]
	}
	return reason, 0
}

// Why returns why a key is not served now that the map gives to this server, or whose move is
// deferred here.
func (h *Manager) Why(key []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	holds := func(start, end []byte) bool {
		return keyrange.Contains(start, end, key)
	}
	state, reason, what := RangeAcquiring, "", "takes them over"
	at := slices.IndexFunc(h.held, func(r heldRange) bool { return holds(r.Start, r.End) })
	b := slices.IndexFunc(h.claims.blocked, func(b pool.Blocked) bool { return holds(b.Start, b.End) })
	switch {
	case at >= 0:
		if state = h.held[at].state; h.held[at].why != nil {
			reason = ": " + h.held[at].why.Error()
		}
		if h.held[at].deferrals > 0 {
			what = "tries to hand them over"
		}
	case h.claims.why != nil:
		reason = ": " + h.claims.why.Error()
	case b >= 0:
		why, _ := h.obstacle(h.claims.blocked[b])
		reason = ": " + why
	}
	return fmt.Errorf("this server %s: %s%s", what, state, reason)
}
