package ownership

import (
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// End stops the range manager, before its index is closed. Gently, it gives everything back, so
// that nobody has to wait for this client's lease; no session may be lent then.
func (h *Manager) End(gently bool) {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.wake.Set()
	h.tables.quiet.Set()
	h.fence.stop()
	h.own.onChange(nil)
	if !h.ended.Wait(holdParting) {
		h.log.Error("the range manager does not end")
		return
	}
	if !gently {
		return
	}
	h.rejoin()
	for deadline := env.Deadline(h.env, holdParting); h.ix.Alive() == nil && env.Remaining(h.env, deadline) > 0; {
		if !h.part() {
			return
		}
	}
}

// part gives back one of the ranges; false if there is none left that can be.
func (h *Manager) part() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.held {
		r := &h.held[i]
		switch {
		case r.failed > 0: // it stays; its log is replayed
			continue
		case r.state == RangeServing, r.state == RangeClosing:
			h.enter(r, RangeGiving)
		case r.state == RangeTaking && len(r.Inherits) == 0:
			h.enter(r, RangeReleasing)
		}
		if r.state == RangeGiving || r.state == RangeReleasing {
			h.step(i)
			return true
		}
	}
	return false
}

func (h *Manager) isStopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped
}

// close begins to give up what is served and not wanted any more. Called under mu.
func (h *Manager) close(wanted []partition.Span) {
	var kept []heldRange
	changed := false
	for _, r := range h.held {
		if r.state != RangeServing {
			// One that is not served yet is first taken whole: what it inherited must be replayed
			// by somebody.
			if r.state == RangeTaking && len(r.Inherits) == 0 && !isWanted(r.Holding, wanted) {
				r.failed, r.next = 0, 0
				h.enter(&r, RangeReleasing)
			}
			kept = append(kept, r)
			continue
		}
		for _, part := range cut(r, wanted) {
			switch {
			case isWanted(part.Holding, wanted):
				changed = changed || part.deferred
				part.wantedAgain()
			case part.deferred && h.env.Now() < part.next:
			default:
				part.deferred = false
				h.enter(&part, RangeClosing)
				changed = true
			}
			kept = append(kept, part)
		}
	}
	h.held = rejoined(kept, false) // what was divided for a move that a newer map has taken back
	if changed {
		h.publish()
	}
}
