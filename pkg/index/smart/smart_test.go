package smart_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/index/smart"
	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestMain(m *testing.M) { indextest.Main(m) }

// costs are the ceilings. A leaf of an 8/8 pair has 64 bytes; a miss may READ the leaf of another
// key and the slot that leads to it, or an inner node. Insert has room for splits, and for nodes
// that replace smaller ones; Delete and Shrink for those that replace larger ones, and for the READ
// of the node that has a child less, which here is one in 32 of a direct node.
var costs = indextest.Costs{
	Lookup:  indextest.Cost{RoundTrips: 1, Requests: counts(1, 0, 0), Bytes: 64},
	Miss:    indextest.Cost{RoundTrips: 2, Requests: counts(2, 0, 0), Bytes: 64 + 2088},
	Update:  indextest.Cost{RoundTrips: 2, Requests: counts(1, 2, 2), Bytes: 64 + 24 + 16 + 16},
	Delete:  indextest.Cost{RoundTrips: 3.05, Requests: counts(1.1, 2.05, 3.05), Bytes: 64 + 8 + 24 + 24 + 20 + 80},
	Shrink:  indextest.Cost{RoundTrips: 3.3, Requests: counts(1.3, 2.2, 4.5), Bytes: 64 + 8 + 24 + 24 + 80 + 80},
	Insert:  indextest.Cost{RoundTrips: 1.1, Requests: counts(0.1, 1.1, 1.1), Bytes: 72 + 30},
	Scan100: indextest.Cost{RoundTrips: 2.2, Requests: counts(115, 0, 0), Bytes: 115*64 + 3200},

	LongLookup: indextest.Cost{RoundTrips: 2.05, Requests: counts(2.05, 0, 0), Bytes: 64 + indextest.LongValue + 110},
	LongUpdate: indextest.Cost{RoundTrips: 2.05, Requests: counts(1.05, 4.05, 2), Bytes: 64 + indextest.LongValue + 24 + 25 + 8 + 24 + 16 + 200},
	LongScan20: indextest.Cost{RoundTrips: 3.2, Requests: counts(60, 0, 0), Bytes: 6000 + 20*indextest.LongValue},
}

// costsWith are those without some techniques. Without rearLock the lock, the READ, the WRITEs and
// the release of a change take a round trip each. Without in-place leaves an update marks the old
// leaf dead afterwards. Without lock-free inner nodes an insert takes a lock.
func costsWith(switches map[string]bool) indextest.Costs {
	c := costs
	locked := []*indextest.Cost{&c.Update, &c.Delete, &c.Shrink}
	if !switches["inPlaceLeaf"] {
		c.Update = indextest.Cost{RoundTrips: 3.1, Requests: counts(1.1, 4, 3), Bytes: c.Update.Bytes + 64 + 10 + 24 + 16}
	}
	if !switches["lockFreeInternal"] {
		c.Insert = indextest.Cost{RoundTrips: 2.1, Requests: counts(1.1, 1.1, 3.1), Bytes: c.Insert.Bytes + 24 + 32}
		c.Shrink.RoundTrips += 0.1 // for nodes that are replaced
		locked = append(locked, &c.Insert)
	}
	if !switches["nodeTypes"] {
		c.Scan100.Bytes *= 2
	}
	if !switches["rearLock"] {
		for _, op := range locked {
			op.RoundTrips += 2
		}
	}
	return c
}

func counts(reads, writes, atomics float64) (n [verbs.NumOps]float64) {
	n[verbs.Read], n[verbs.Write], n[verbs.CompareSwap] = reads, writes, atomics
	return n
}

func TestConformance(t *testing.T) {
	d, err := index.Lookup(smart.Name)
	if err != nil {
		t.Fatal(err)
	}
	indextest.Run(t, indextest.Suite{Design: d, Costs: costs, CostsWith: costsWith, FreeInserts: true})
}
