package partition

import (
	"bytes"
	"slices"
)

// Shown returns the map for a reader that may not know all keys: boundaries between ranges are
// keys, or parts of them. The result has the boundaries that shows reports, and those at which a
// prefix begins, with their owners in m; no planned moves; and the generation of m. m must be
// valid.
//
// By the result each key below a prefix has the owner of the nearest boundary that is left, which
// may be another one than in m. That server sends requests on, as after a move.
func (m *Map) Shown(shows func(key []byte) bool, prefixes [][]byte) *Map {
	starts := make([][]byte, 0, len(m.Ranges)+len(prefixes))
	starts = append(append(starts, nil), prefixes...)
	for _, r := range m.Ranges {
		if shows(r.Start) {
			starts = append(starts, r.Start)
		}
	}
	slices.SortFunc(starts, bytes.Compare)
	starts = slices.CompactFunc(starts, bytes.Equal)
	out := &Map{Generation: m.Generation, Index: m.Index, Servers: m.Servers}
	for _, start := range starts[:min(len(starts), MaxRanges)] {
		r := m.Ranges[m.At(start)]
		r.Start = start
		out.Ranges = append(out.Ranges, r)
	}
	return out
}
