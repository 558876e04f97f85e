package dex_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestMain(m *testing.M) { indextest.Main(m) }

// costs are the ceilings.
var costs = indextest.Costs{
	Lookup:  indextest.Cost{RoundTrips: 1, Requests: counts(1, 0, 0), Bytes: 1024},
	Miss:    indextest.Cost{RoundTrips: 1, Requests: counts(1, 0, 0), Bytes: 1024},
	Update:  indextest.Cost{RoundTrips: 2, Requests: counts(1, 2, 2), Bytes: 1024 + 24 + 16},
	Delete:  indextest.Cost{RoundTrips: 2.05, Requests: counts(1.05, 1.05, 2.05), Bytes: 1024 + 8 + 16 + 50}, // splits at the end leave small leaves
	Shrink:  indextest.Cost{RoundTrips: 2.2, Requests: counts(1.2, 1.1, 2.1), Bytes: 1024 + 8 + 16 + 200},
	Insert:  indextest.Cost{RoundTrips: 2.1, Requests: counts(1.1, 2.1, 2.1), Bytes: 1024 + 24 + 16 + 100},
	Scan100: indextest.Cost{RoundTrips: 2, Requests: counts(7, 0, 0), Bytes: 7 * 1024},
}

func counts(reads, writes, atomics float64) (n [verbs.NumOps]float64) {
	n[verbs.Read], n[verbs.Write], n[verbs.CompareSwap] = reads, writes, atomics
	return n
}

func TestConformance(t *testing.T) {
	d, err := index.Lookup(dex.Name)
	if err != nil {
		t.Fatal(err)
	}
	indextest.Run(t, indextest.Suite{Design: d, Costs: costs, AllInline: true})
}
