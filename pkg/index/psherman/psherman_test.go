package psherman_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/index/psherman"
	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestMain(m *testing.M) { indextest.Main(m) }

// costs are the ceilings: Sherman's, but for the atomics. What is left of these are the locks of
// splits and merges, and a split READs its leaf again, under its lock.
var costs = indextest.Costs{
	Lookup:  cost(1, 1, 0, 0, 1024),
	Miss:    cost(1, 1, 0, 0, 1024),
	Update:  cost(2, 1, 2, 0, 1024+24+16),
	Delete:  cost(2.05, 1.05, 1.05, 0.1, 1024+8+16+50),
	Shrink:  cost(2.2, 1.2, 1.1, 0.1, 1024+8+16+200),
	Insert:  cost(2.15, 1.15, 2.1, 0.15, 1024+24+16+150),
	Scan100: cost(2, 7, 0, 0, 7*1024),

	LongLookup: cost(2.1, 2.1, 0, 0, 1024+indextest.LongValue+110),
	LongUpdate: cost(2.1, 1.1, 4.1, 0.1, 1024+indextest.LongValue+24+25+8+24+16+200),
	LongScan20: cost(4, 24, 0, 0, 4*1024+20*indextest.LongValue),
}

func cost(roundTrips, reads, writes, atomics, bytes float64) indextest.Cost {
	c := indextest.Cost{RoundTrips: roundTrips, Bytes: bytes}
	c.Requests[verbs.Read], c.Requests[verbs.Write], c.Requests[verbs.CompareSwap] = reads, writes, atomics
	return c
}

func TestConformance(t *testing.T) {
	indextest.Run(t, indextest.Suite{Design: psherman.Design, Costs: costs, Format: true})
}
