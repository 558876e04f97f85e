package dolphin_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dolphin"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestMain(m *testing.M) { indextest.Main(m) }

// costs are the ceilings, of 8/8 pairs in leaves of 1 KiB. Each record is of one key for good, so a
// leaf takes some forty changes that are no updates, and then another one takes its place: that is
// in Insert, with splits. Shrink has room for merges.
var costs = indextest.Costs{
	Lookup:  indextest.Cost{RoundTrips: 1.02, Requests: counts(1.02, 0, 0), Bytes: 1045},
	Miss:    indextest.Cost{RoundTrips: 1.02, Requests: counts(1.02, 0, 0), Bytes: 1045},
	Update:  indextest.Cost{RoundTrips: 2.01, Requests: counts(1.01, 3.01, 0.01), Bytes: 745},
	Modify:  indextest.Cost{RoundTrips: 4.02, Requests: counts(3.02, 3.01, 2.02), Bytes: 780 + presenceWords},
	Delete:  indextest.Cost{RoundTrips: 2.05, Requests: counts(1.05, 1.05, 2.05), Bytes: 800},
	Shrink:  indextest.Cost{RoundTrips: 2.95, Requests: counts(1.7, 1.45, 2.5), Bytes: 1450},
	Insert:  indextest.Cost{RoundTrips: 2.35, Requests: counts(1.15, 2.3, 2.1), Bytes: 1060},
	Scan100: indextest.Cost{RoundTrips: 1.1, Requests: counts(5.5, 0, 0), Bytes: 5.5 * 1024},

	LongLookup: indextest.Cost{RoundTrips: 2.05, Requests: counts(2.05, 0, 0), Bytes: 1100 + indextest.LongValue},
	LongUpdate: indextest.Cost{RoundTrips: 2.9, Requests: counts(1.5, 5.01, 2.3), Bytes: 1600 + indextest.LongValue},
	// By where leaves end: 3.08 on average, and up to 3.28 in 65 runs.
	LongScan20: indextest.Cost{RoundTrips: 3.4, Requests: counts(24, 0, 0), Bytes: 4100 + 20*indextest.LongValue},
}

// presenceWords is what a READ of all of them brings: 224 of each server.
const presenceWords = 224 * pool.PresenceBytes

// costsWith are those without some techniques.
func costsWith(switches map[string]bool) indextest.Costs {
	c := costs
	if !switches["ternaryLock"] {
		c.Update.Requests = counts(1.01, 1, 2.02)
	}
	if !switches["keysOnlyRead"] {
		for _, o := range []*indextest.Cost{&c.Update, &c.Modify, &c.Delete, &c.Insert, &c.Shrink} {
			o.Bytes += 340
		}
	}
	if !switches["nodeTypes"] { // more memory is taken and given back with inner nodes
		c.Insert.Bytes += 200
		c.Shrink.Requests[verbs.CompareSwap] += 1.05
	}
	return c
}

func counts(reads, writes, atomics float64) (n [verbs.NumOps]float64) {
	n[verbs.Read], n[verbs.Write], n[verbs.CompareSwap] = reads, writes, atomics
	return n
}

func TestConformance(t *testing.T) {
	d, err := index.Lookup(dolphin.Name)
	if err != nil {
		t.Fatal(err)
	}
	indextest.Run(t, indextest.Suite{Design: d, Costs: costs, CostsWith: costsWith})
}
