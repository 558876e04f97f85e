package ownership

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// errEnds is why a client is given up whose range manager is in a step that takes too long to wait
// for.
var errEnds = errors.New("the index is closed, and a step of a range did not end in time")

// End stops the range manager, before its index is closed. With gently, it first gives all ranges
// back, so that no other client has to wait for this client's lease. No session may be lent then.
//
// The step under way goes on beside End, and the index must not be closed beside it: the step uses
// sessions and caches of the index. A Take can replay a log for minutes. So a client whose step
// does not end is condemned. Nothing that the step posts takes effect from then on, and each of its
// waits ends, so the step fails. That is to everybody else what the death of this client at the
// same moment is: what it holds stays held with the logs to be replayed, and the next holder fences
// it, as it does with a client that died during Take, and replays them again.
func (h *Manager) End(gently bool) {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.wake.Set()
	h.tables.quiet.Set()
	h.fence.stop()
	h.own.onChange(nil)
	if !h.ended.Wait(holdParting) {
		h.ix.Condemn(errEnds)
		gently = false
		// Calls to the home have a limit of their own, which Condemn does not end.
		if !h.ended.Wait(h.closes()) {
			h.log.Error("the range manager does not end, though its client was given up")
		}
	}
	if !gently {
		return
	}
	h.rejoin()
	for deadline := env.Deadline(h.env, holdParting); h.ix.Alive() == nil && env.Remaining(h.env, deadline) > 0; {
		if !h.giveBackOne() {
			return
		}
	}
}

// giveBackOne gives back one of the ranges. It returns false if none is left that can be given.
func (h *Manager) giveBackOne() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.held {
		r := &h.held[i]
		switch {
		case r.failed > 0: // it stays held; its log will be replayed
			continue
		case r.state == RangeServing, r.state == RangeClosing:
			h.enterState(r, RangeGiving)
		case r.state == RangeTaking && len(r.Inherits) == 0:
			h.enterState(r, RangeReleasing)
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

// close begins to close what is served and not wanted any more. Called under mu.
func (h *Manager) close(wanted []partition.Span) {
	var kept []heldRange
	changed := false
	for _, r := range h.held {
		if r.state != RangeServing {
			// A range that is not served yet is taken as a whole first, because the logs that it
			// inherited must be replayed.
			if r.state == RangeTaking && len(r.Inherits) == 0 && !isWanted(r.Holding, wanted) {
				r.failed, r.next = 0, 0
				h.enterState(&r, RangeReleasing)
			}
			kept = append(kept, r)
			continue
		}
		for _, part := range cutRange(r, wanted) {
			switch {
			case isWanted(part.Holding, wanted):
				changed = changed || part.deferred
				part.wantedAgain()
			case part.deferred && h.env.Now() < part.next:
			default:
				part.deferred = false
				h.enterState(&part, RangeClosing)
				changed = true
			}
			kept = append(kept, part)
		}
	}
	h.held = rejoined(kept, false) // parts that were divided for a move that a newer map cancelled
	if changed {
		h.publish()
	}
}
