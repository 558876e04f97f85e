package ownership

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
)

// A range that finds no memory to be given. A new boundary divides a leaf, and a full pool has no
// leaf for the right half. Then Give fails with index.ErrPoolFull before anything of the range has
// left the cache, and the move is deferred: the range returns to the table of what is served, and
// is closed and given again after a pause. The pause doubles up to deferSlowest, because requests
// wait during each attempt.
//
//	Serving -> Closing -> Giving -> Releasing
//	   ^                    | no memory
//	   +---- deferred ------+
//
// Serving the range again is safe. The holding at the home memory server is this client's from its
// grant until Release, which follows a successful Give. The home grants a held key to another
// client only if the holder is an orphan, and a failed Give does not change that rule: an orphan's
// sessions answer nothing after its lease, and its log is inherited. Give changed no key, and
// removed no record of the log. It may have divided a leaf at one end; a leaf may be divided at any
// time. So to others the attempt looks as if this client's sessions had been slow for a moment.
//
// The partition map still names the next owner, which claims in vain. Servers send requests for the
// range to the server that serves it (engine/seek.go). Routing is not part of the safety argument:
// each server serves only what is in its table.

// Pauses between attempts to give a range that finds no memory.
const (
	deferFirst   = time.Second
	deferSlowest = 30 * time.Second
)

// putOff defers the move of a range whose Give found no memory. Called under mu.
func (h *Manager) putOff(r *heldRange, err error) {
	pause := min(deferFirst<<min(r.deferrals, 10), deferSlowest)
	if r.deferrals++; r.deferrals == 1 {
		h.log.Warn("keys are served on, since there is no memory to move them; tried again, ever less often",
			"keys", partition.Interval(r.Start, r.End), "epoch", r.Epoch, "again_after", pause, "error", err)
	}
	r.deferred, r.next = true, h.env.Now()+pause
	r.why = fmt.Errorf("the map gives them to another server; this one serves them until there is memory to move them: %w", err)
	h.enter(r, RangeServing)
	h.publish()
}

// wantedAgain ends the deferral of a range that the map gives to this server.
func (r *heldRange) wantedAgain() {
	if r.deferrals > 0 {
		r.deferred, r.deferrals, r.next, r.why = false, 0, 0, nil
	}
}

// deferred returns what is served here although the map gives it to another server. That includes a
// range during a further attempt to give it: its requests wait here. Called under mu.
func (h *Manager) deferred() (spans []partition.Span) {
	for i := range h.held {
		if r := &h.held[i]; r.deferrals > 0 && r.state != RangeReleasing {
			spans = append(spans, partition.Span{Start: r.Start, End: r.End, Owner: h.own.self})
		}
	}
	return spans
}

// rejoin joins parts of one grant that are served, before all of them are given: their boundary
// needs no memory then. End may have interrupted an attempt to give a part; that part has not left.
func (h *Manager) rejoin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.held {
		r := &h.held[i]
		if r.state == RangeClosing || r.state == RangeGiving && (r.failed == 0 || errors.Is(r.why, index.ErrPoolFull)) {
			r.failed = 0
			h.enter(r, RangeServing)
		}
	}
	h.held = rejoined(h.held, true)
}

// rejoined joins parts of one grant that are served, with deferred ones or without. To the home
// memory server they are one holding.
func rejoined(all []heldRange, deferred bool) []heldRange {
	may := func(r *heldRange) bool { return r.state == RangeServing && (deferred || !r.deferred) }
	for i := len(all) - 1; i > 0; i-- {
		low, high := &all[i-1], &all[i]
		if may(low) && may(high) && low.Epoch == high.Epoch && bytes.Equal(low.End, high.Start) {
			low.End = high.End
			all = slices.Delete(all, i, i+1)
		}
	}
	return all
}
