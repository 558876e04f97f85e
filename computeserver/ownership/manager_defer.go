package ownership

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A range that finds no memory to be given. A new boundary divides a leaf, and a full pool has no
// leaf for the right half. Then Give fails with index.ErrPoolFull before anything of the range has
// left the cache, and the move is deferred: the range returns to the table of what is served, and
// is closed and given again after a pause. The pause doubles up to deferSlowest, because requests
// wait during each attempt.
//
//	Serving -> Closing -> Giving -> Releasing
//	   ^                    | no memory | too many holdings
//	   +---- deferred ------+-----------+
//
// So is the move of a range whose Release would make the holdings of the index too many
// (pool.ErrHoldings): its keys would have no holder when the next owner finds no room. Its changes
// are written back by then and it has left the cache, so it is taken again first, under the same
// grant. That grant has settled all that it inherited, so there is nothing to replay; and nobody
// else can have changed the keys since Give, as the holding was this client's all the time.
//
// That holds only if no other Release of these keys is under way: it would take them away while
// they are served, as the grant is the same. So a range is taken again only if each Release of it
// was answered. After one without an answer the release is repeated until there is room, and the
// keys wait. The refusal is an answer of the home alone, which says that nothing was released.
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

// errKept is returned when keys could not be released and are taken again.
var errKept = errors.New("they are kept")

// release gives a range back to the home. If the home refuses, since holdings would be too many, it
// takes the range again where that is safe. provisional reports whether a Release of the range may
// still be under way.
func (h *Manager) release(r *heldRange) (provisional bool, err error) {
	err = h.ix.Release(r.Start, r.End, r.Epoch)
	if err == nil || r.provisional || !errors.Is(err, pool.ErrHoldings) {
		return err != nil, err
	}
	if again := h.ix.Take(r.Holding); again != nil { // the release is repeated first
		return false, fmt.Errorf("serve them again: %w", again)
	}
	return false, fmt.Errorf("%w: %w", errKept, err)
}

// putOff defers the move of a range that could not be given or released. Called under mu.
func (h *Manager) putOff(r *heldRange, err error) {
	pause := min(deferFirst<<min(r.deferrals, 10), deferSlowest)
	if r.deferrals++; r.deferrals == 1 {
		h.log.Warn("keys are served on, since they cannot be moved yet; tried again, ever less often",
			"keys", partition.Interval(r.Start, r.End), "epoch", r.Epoch, "again_after", pause, "error", err)
	}
	r.deferred, r.next = true, h.env.Now()+pause
	r.why = fmt.Errorf("the map gives them to another server; this one serves them until they can be moved: %w", err)
	h.enterState(r, RangeServing)
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
			h.enterState(r, RangeServing)
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
