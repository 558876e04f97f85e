package dex_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestMain(m *testing.M) { indextest.Main(m) }

// costs are the ceilings, when all leaves are in the cache: nothing to read; leaves are written
// back when they are divided or merged, or the log wants room. The log's own WRITEs are not in
// them. They are up to two and a half times what was measured where leaves are written back, since
// when that is depends on how fast the log is, and a delete or the insert after it pays; elsewhere
// a few hundredths more.
var costs = indextest.Costs{
	Lookup:  ceiling(0.02, 0.02, 0.01, 0.01, 20), // measured 0.004 round trips
	Miss:    ceiling(0.02, 0.02, 0.01, 0.01, 20),
	Scan100: ceiling(0.02, 0.05, 0.01, 0.01, 50),
	Update:  ceiling(0.4, 0.02, 0.8, 0.02, 80), // 0.12 to 0.16, 0.24 to 0.33 WRITEs
	Delete:  ceiling(0.4, 0.02, 1.5, 0.02, 90), // 0 to 0.004
	Insert:  ceiling(0.4, 0.02, 1.5, 0.02, 90), // 0.12 to 0.16, 0.6 to 0.9 WRITEs
	Shrink:  ceiling(0.2, 0.04, 1.2, 0.04, 80), // 0.05, 0.13 to 0.52 WRITEs

	// 1.01 to 1.034 round trips: a leaf that was compacted has no frame at first
	LongLookup: ceiling(1.05, 1.05, 0.01, 0.01, 1070),
	LongUpdate: ceiling(1.5, 0.04, 3.2, 0.04, 1250),                     // 1.18, 2.3 WRITEs
	LongScan20: ceiling(3.3, 22, 0.1, 0.1, 22*(indextest.LongValue+20)), // 2.4, 20 READs
}

func ceiling(roundTrips, reads, writes, atomics, bytes float64) indextest.Cost {
	c := indextest.Cost{RoundTrips: roundTrips, Bytes: bytes}
	c.Requests[verbs.Read], c.Requests[verbs.Write], c.Requests[verbs.CompareSwap] = reads, writes, atomics
	return c
}

// costsWith are those without some techniques. Where one leaf in ten is kept, new ones are READ
// several times.
func costsWith(switches map[string]bool) indextest.Costs {
	c := costs
	if !switches["frequencies"] {
		c.Lookup, c.Miss = few(0.5), few(0.3)
		c.Scan100 = few(0.5)
	}
	return c
}

// few is a ceiling of so many round trips, each with four requests of a kind and a KiB: what is
// written back of a leaf is one for its entries, one for each slot that was emptied, and one for
// the others.
func few(roundTrips float64) (c indextest.Cost) {
	c.RoundTrips, c.Bytes = roundTrips, 1024*roundTrips
	for i := range c.Requests {
		c.Requests[i] = 4 * roundTrips
	}
	return c
}

func TestConformance(t *testing.T) {
	d, err := index.Lookup(dex.Name)
	if err != nil {
		t.Fatal(err)
	}
	indextest.Run(t, indextest.Suite{Design: d, Costs: costs, CostsWith: costsWith})
}
