package ownership

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
)

// claimPause is how long to wait before a claim that was not granted is repeated, if the map gave
// its keys to this server so long ago. The home does not notify claimants of a release, and
// requests wait for the keys. A pause that grows with the wait adds little to it, and keeps claims
// few.
func claimPause(waited time.Duration) time.Duration {
	return min(max(holdAgain, waited/holdPart), holdSlowest)
}

// missing returns the parts of what is wanted that are not held, in whatever state. Called under
// mu.
func (h *Manager) missing(wanted []partition.Span) (spans []partition.Span) {
	for _, w := range wanted {
		at, ended := w.Start, false
		for _, r := range h.held {
			if ended || len(w.End) > 0 && bytes.Compare(r.Start, w.End) >= 0 || len(r.End) > 0 && bytes.Compare(r.End, at) <= 0 {
				continue
			}
			if bytes.Compare(at, r.Start) < 0 {
				spans = append(spans, partition.Span{Start: at, End: r.Start})
			}
			at, ended = r.End, len(r.End) == 0
		}
		if !ended && keyrange.Before(at, w.End) {
			spans = append(spans, partition.Span{Start: at, End: w.End})
		}
	}
	return spans
}

// claim asks the home for what is missing. Called under mu, which it releases meanwhile.
func (h *Manager) claim(m *partition.Map) {
	open := h.claims.open
	fenced := h.fence.done()
	h.mu.Unlock()
	var own []pool.Holding
	var blocked []pool.Blocked
	var err error
	for _, s := range open {
		var got pool.Acquired
		got, err = h.ix.Acquire(pool.Claim{Generation: m.Generation, Start: s.Start, End: s.End, Log: h.ix.Log(), Fenced: fenced})
		if err != nil {
			break
		}
		own, blocked = append(own, got.Own...), append(blocked, got.Blocked...)
	}
	h.fence.addClients(blocked, err == nil)
	h.mu.Lock()
	c := &h.claims
	now := h.env.Now()
	pause := claimPause(now - c.since)
	if len(own) > 0 { // more may be released soon
		pause = holdAgain
	}
	c.by, c.blocked, c.why, c.next = m.Generation, blocked, err, now+pause
	for _, r := range own {
		h.add(r)
	}
	switch {
	case hopeless(err):
		h.giveUp(h.ix, fmt.Errorf("acquire keys: %w", err))
	case err != nil && !errors.Is(err, pool.ErrOtherMap):
		h.provisional = true // the claim may have been granted
	}
}

// add records a range that was granted. Called under mu.
func (h *Manager) add(r pool.Holding) {
	at, _ := slices.BinarySearchFunc(h.held, r.Start, func(o heldRange, key []byte) int { return bytes.Compare(o.Start, key) })
	h.held = slices.Insert(h.held, at, heldRange{Holding: r, began: h.claims.since, state: RangeTaking, since: h.env.Now()})
	h.log.Info("acquired keys", "keys", partition.Interval(r.Start, r.End), "epoch", r.Epoch, "logs_to_replay", len(r.Inherits))
}

// recall asks the home what this client holds, and adds the grants that it does not know of. Called
// under mu, which it releases meanwhile.
func (h *Manager) recall() error {
	h.mu.Unlock()
	all, err := h.ix.Holdings()
	h.mu.Lock()
	if err != nil {
		return err
	}
	h.provisional = false
	for _, r := range all {
		if r.Client != h.ix.Client() {
			continue
		}
		for _, s := range h.missing([]partition.Span{{Start: r.Start, End: r.End}}) {
			part := r.Holding
			part.Start, part.End, part.Inherits = s.Start, s.End, nil
			for _, in := range r.Inherits {
				var ok bool
				if in.Start, in.End, ok = keyrange.Intersect(in.Start, in.End, s.Start, s.End); ok {
					part.Inherits = append(part.Inherits, in)
				}
			}
			h.add(part)
		}
	}
	return nil
}
