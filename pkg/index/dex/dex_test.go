package dex_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/index/indextest"
)

func TestMain(m *testing.M) { indextest.Main(m) }

// costs are the ceilings, when all leaves are in the cache: nothing to read; leaves are written back when they are divided or merged, or the log wants
// room. The log's own WRITEs are not in them.
var costs = indextest.Costs{
	Lookup:  few(0.03),
	Miss:    few(0.03),
	Scan100: few(0.2),
	Update:  few(0.3),
	Delete:  few(0.3),
	Insert:  few(0.3),
	Shrink:  few(1),

	LongLookup: long(few(0.03), 1),
	LongUpdate: long(few(0.7), 1),
	LongScan20: long(few(3), 20),
}

// long adds a round trip, and requests for so many blocks.
func long(c indextest.Cost, blocks float64) indextest.Cost {
	c.RoundTrips++
	c.Bytes += blocks * (indextest.LongValue + 48)
	for i := range c.Requests {
		c.Requests[i] += blocks
	}
	return c
}

// costsWith are those without some techniques. Without caching, leaves are READ, and a change is written through: one list more. Without partitioning, as many clients share them: Sherman's
// costs. Where one leaf in ten is kept, new ones are READ several times.
func costsWith(switches map[string]bool) indextest.Costs {
	c := costs
	switch {
	case !switches["partitioning"]:
		c.Lookup, c.Miss, c.Update, c.Insert, c.Delete, c.Shrink = few(1), few(1), few(2), few(2.2), few(2.1), few(2.5)
		c.Scan100 = few(8) // two round trips
		c.Shrink.Bytes += 1024
	case !switches["caching"]:
		c.Lookup, c.Miss, c.Update, c.Insert, c.Delete, c.Shrink = few(1), few(1), few(2), few(2.2), few(2.2), few(2.8)
		c.Scan100 = few(8)
	case !switches["frequencies"]:
		c.Lookup, c.Miss = few(0.5), few(0.3)
		c.Scan100 = few(0.5)
	}
	return c
}

// few is a ceiling of so many round trips, each with four requests of a kind and a KiB: what is written back of a leaf is one for its entries, one for each slot that was emptied, and one for the others.
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
