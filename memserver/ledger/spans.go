package ledger

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/keyrange"
)

// joined puts neighbours together that are parts of one grant and differ in nothing.
func joined(all []Holding) (out []Holding) {
	for _, h := range all {
		if n := len(out) - 1; n >= 0 {
			o := &out[n]
			if o.Client == h.Client && o.Epoch == h.Epoch && len(o.Inherits)+len(h.Inherits) == 0 && len(o.End) > 0 && bytes.Equal(o.End, h.Start) {
				o.End = h.End
				continue
			}
		}
		out = append(out, h)
	}
	return out
}

// carve cuts holdings at both ends of a range, into those below it, in it and above it. What it
// gives can be changed: the inherited logs of what was cut are clipped copies.
func carve(all []Holding, start, end []byte) (below, inside, above []Holding) {
	for _, h := range all {
		if part, ok := h.clip(nil, start); ok && len(start) > 0 {
			below = append(below, part)
		}
		if part, ok := h.clip(start, end); ok {
			inside = append(inside, part)
		}
		if part, ok := h.clip(end, nil); ok && len(end) > 0 {
			above = append(above, part)
		}
	}
	return below, inside, above
}

// filled are the pieces of a range: the holdings in it, and where nobody holds anything, holdings
// of client 0.
func filled(inside []Holding, start, end []byte) (pieces []Holding) {
	at := start
	for _, h := range inside {
		if !bytes.Equal(at, h.Start) {
			pieces = append(pieces, Holding{Start: at, End: h.Start})
		}
		pieces = append(pieces, h)
		if at = h.End; len(at) == 0 {
			return pieces
		}
	}
	if keyrange.Before(at, end) {
		pieces = append(pieces, Holding{Start: at, End: end})
	}
	return pieces
}

// clip is the part of a holding within a range, if there is one.
func (h Holding) clip(start, end []byte) (Holding, bool) {
	var ok bool
	if h.Start, h.End, ok = keyrange.Intersect(h.Start, h.End, start, end); !ok {
		return h, false
	}
	var logs []Inherited
	for _, i := range h.Inherits {
		if i.Start, i.End, ok = keyrange.Intersect(i.Start, i.End, start, end); ok {
			logs = append(logs, i)
		}
	}
	h.Inherits = logs
	return h, true
}

func isRange(start, end []byte) bool {
	return max(len(start), len(end)) <= MaxHoldingKey && keyrange.Before(start, end)
}
