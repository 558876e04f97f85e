package sherman_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestMain(m *testing.M) { indextest.Main(m) }

// costs are the ceilings, Insert with room for splits and Shrink for merges.
var costs = indextest.Costs{
	Lookup: indextest.Cost{RoundTrips: 1, Requests: counts(1, 0, 0), Bytes: 1024},
	Miss:   indextest.Cost{RoundTrips: 1, Requests: counts(1, 0, 0), Bytes: 1024},
	Update: indextest.Cost{RoundTrips: 2, Requests: counts(1, 2, 2), Bytes: 1024 + 24 + 16},
	// splits at the end leave small leaves
	Delete:  indextest.Cost{RoundTrips: 2.05, Requests: counts(1.05, 1.05, 2.05), Bytes: 1024 + 8 + 16 + 50},
	Shrink:  indextest.Cost{RoundTrips: 2.2, Requests: counts(1.2, 1.1, 2.1), Bytes: 1024 + 8 + 16 + 200},
	Insert:  indextest.Cost{RoundTrips: 2.1, Requests: counts(1.1, 2.1, 2.1), Bytes: 1024 + 24 + 16 + 100},
	Scan100: indextest.Cost{RoundTrips: 2, Requests: counts(7, 0, 0), Bytes: 7 * 1024},

	// The leaf, then the block; a write the block, entry, slot word and mark in the list that gives
	// up the lock. While memory comes back, epochs grow, and inner nodes are read again.
	LongLookup: indextest.Cost{RoundTrips: 2.1, Requests: counts(2.1, 0, 0), Bytes: 1024 + indextest.LongValue + 110},
	LongUpdate: indextest.Cost{RoundTrips: 2.1, Requests: counts(1.1, 4.1, 2.1), Bytes: 1024 + indextest.LongValue + 24 + 25 + 8 + 24 + 16 + 200},
	LongScan20: indextest.Cost{RoundTrips: 4, Requests: counts(24, 0, 0), Bytes: 4*1024 + 20*indextest.LongValue},
}

// costsWith are those without some techniques: changes of one pair take two round trips more
// without combination (lock, READ, WRITE, release), and write the leaf and its image without
// two-level versions.
func costsWith(switches map[string]bool) indextest.Costs {
	c := costs
	for _, op := range []*indextest.Cost{&c.Update, &c.Insert, &c.Delete, &c.Shrink} {
		if !switches["combine"] {
			op.RoundTrips += 2
		}
		if !switches["twoLevelVersions"] {
			op.Requests[verbs.Write] = 4
			op.Bytes = 1024 + 2*1024 + 40 + 16
		}
	}
	// Splits and merges.
	for _, op := range []*indextest.Cost{&c.Insert, &c.Delete, &c.Shrink} {
		if !switches["combine"] {
			op.RoundTrips += 0.2
		}
		if !switches["twoLevelVersions"] {
			op.Requests[verbs.Write], op.Bytes = 4.2, 3*1024+400
		}
	}
	return c
}

func counts(reads, writes, atomics float64) (n [verbs.NumOps]float64) {
	n[verbs.Read], n[verbs.Write], n[verbs.CompareSwap] = reads, writes, atomics
	return n
}

func TestConformance(t *testing.T) {
	d, err := index.Lookup(sherman.Name)
	if err != nil {
		t.Fatal(err)
	}
	indextest.Run(t, indextest.Suite{Design: d, Costs: costs, CostsWith: costsWith})
}
