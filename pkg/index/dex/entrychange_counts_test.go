package dex_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index/dex"
)

// entryCounts are changes of entries, those of them that took the place of an earlier one, values
// of entries that frames got, and changes of the number of buckets.
type entryCounts struct{ changed, superseded, absorbed, resized int }

func (c *entryCounts) add(d entryCounts) {
	c.changed += d.changed
	c.superseded += d.superseded
	c.absorbed += d.absorbed
	c.resized += d.resized
}

// check fails if not all of it happened.
func (c *entryCounts) check(t *testing.T) {
	t.Helper()
	if c.changed == 0 || c.superseded == 0 || c.absorbed == 0 {
		t.Errorf("changes of entries: %+v: something never happened", *c)
	}
}

// checkResized fails if the number of buckets never changed.
func (c *entryCounts) checkResized(t *testing.T) {
	t.Helper()
	if c.resized == 0 {
		t.Errorf("changes of entries: %+v: the share of entries never changed", *c)
	}
}

// entries is what all clients did.
func (o *owners) entries() (sum entryCounts) {
	for _, c := range o.all {
		if c.x != nil {
			changed, superseded, absorbed := dex.EntryChanges(c.x)
			sum.add(entryCounts{changed, superseded, absorbed, dex.Resized(c.x)})
		}
	}
	return sum
}
