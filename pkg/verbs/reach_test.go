package verbs_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestReach(t *testing.T) {
	const first, bytes = 3 << 12, 1 << 12
	chunks := verbs.NewChunks(first, bytes, 5)
	mine := verbs.NewReach(chunks, 2, verbs.Span{Region: verbs.RegionData, First: 4096, End: 4096 + 64},
		verbs.Span{Region: verbs.RegionLocks, First: 8, End: 24})
	nobody := verbs.NewReach(chunks, 0)
	for n, owner := range []uint32{2, 2, 1, 0, 2} {
		chunks.Grant(n, owner)
	}
	f := func(region verbs.RegionID, remote uint64, length int, want bool) {
		t.Helper()
		if got := mine.Allows(region, remote, length); got != want {
			t.Errorf("%d bytes at %d:%#x: %v", length, region, remote, got)
		}
		if length > 0 && nobody.Allows(region, remote, length) {
			t.Errorf("%d bytes at %d:%#x are nobody's", length, region, remote)
		}
		var all *verbs.Reach
		if !all.Allows(region, remote, length) {
			t.Errorf("%d bytes at %d:%#x: not for everybody", length, region, remote)
		}
	}
	f(verbs.RegionData, 0, 8, false)
	f(verbs.RegionData, 4095, 2, false)
	f(verbs.RegionData, 4096, 64, true)
	f(verbs.RegionData, 4096, 65, false)
	f(verbs.RegionData, 4096, 1<<40, false)
	f(verbs.RegionData, 4100, 0, true)
	f(verbs.RegionLocks, 0, 8, false)
	f(verbs.RegionLocks, 8, 16, true)
	f(verbs.RegionLocks, 16, 16, false)
	f(verbs.RegionLocks, 4096, 8, false)
	f(verbs.RegionData, first-1, 1, false)
	f(verbs.RegionData, first-1, 2, false)
	f(verbs.RegionData, first, 1, true)
	f(verbs.RegionData, first, 2*bytes, true)
	f(verbs.RegionData, first+bytes-1, 2, true)
	f(verbs.RegionData, first, 2*bytes+1, false)
	f(verbs.RegionData, first+2*bytes, 8, false)
	f(verbs.RegionData, first+3*bytes, 8, false)
	f(verbs.RegionData, first+4*bytes, bytes, true)
	f(verbs.RegionData, first+4*bytes, bytes+1, false)
	f(verbs.RegionData, first+5*bytes, 1, false)
	f(verbs.RegionData, 1<<63, 8, false)
	chunks.Grant(1, 0)
	f(verbs.RegionData, first, 2*bytes, false)
	chunks.Grant(2, 2)
	f(verbs.RegionData, first+2*bytes, bytes, true)
}
