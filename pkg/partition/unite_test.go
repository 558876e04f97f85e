package partition

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestSeparateRangesAreBounded: however the keys lie among servers, a plan leaves no more separate
// ranges than there can be holdings, of no more bytes, and each server has one; even with as many
// servers as there may be ranges.
func TestSeparateRangesAreBounded(t *testing.T) {
	for _, c := range []struct {
		servers, boundaries, bytes, separate, want int
	}{
		{servers: 4, boundaries: 3000, bytes: 2, want: MaxSeparate},
		{servers: 4, boundaries: 1000, bytes: 1000, want: maxSeparateBytes/1000 + 1},
		{servers: 600, boundaries: 3000, bytes: 2, want: 600},
		{servers: 3, boundaries: 40, bytes: 2, separate: 5, want: 5},
		{servers: 8, boundaries: 40, bytes: 2, separate: 5, want: 8},
	} {
		ids := make([]uint32, c.servers)
		for i := range ids {
			ids[i] = uint32(i + 1)
		}
		var boundaries [][]byte
		for i := range c.boundaries {
			key := binary.BigEndian.AppendUint16(nil, uint16(1+i*(1<<16/(c.boundaries+1))))
			boundaries = append(boundaries, append(key, bytes.Repeat([]byte("k"), c.bytes-2)...))
		}
		m, err := ByBoundaries("uid", servers(ids...), boundaries)
		must(t, m, err)
		next, _, err := Plan(m, servers(ids...), Options{Keys: Bytes, Separate: c.separate})
		must(t, next, err)
		if n := next.Separate(); n > c.want || n < min(c.want, c.servers) {
			t.Errorf("%+v: %d separate ranges", c, n)
		}
		for _, id := range ids {
			if !next.owns(id) {
				t.Errorf("%+v: server %d has nothing", c, id)
			}
		}
		if again, moves, _ := Plan(next, servers(ids...), Options{Keys: Bytes, Separate: c.separate, Tolerance: 100}); again.Separate() > c.want || len(moves) > c.want {
			t.Errorf("%+v: planned again, %d separate ranges after %d moves", c, again.Separate(), len(moves))
		}
	}
}
