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
	indextest.Run(t, indextest.Suite{Design: d, Costs: costs, AllInline: true})
}
