package envtest

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// series are the operator's metrics of an index with all their labels but those that name it.
func (c *cluster) series(name string) (map[string]float64, error) {
	families, err := c.operator.metrics.Gather()
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			text, ours := f.GetName(), false
			for _, l := range m.Label {
				switch {
				case l.GetName() == "index":
					ours = l.GetValue() == name
				case l.GetName() != "namespace":
					text += " " + l.GetValue()
				}
			}
			if ours {
				found[text] = m.Gauge.GetValue()
			}
		}
	}
	return found, err
}

// TestMetrics: an operator shows each index from its cache, and nothing of one that was deleted.
func TestMetrics(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.eventually("metrics of the index", func() string {
		got, err := c.series("demo")
		if err != nil {
			return err.Error()
		}
		for series, want := range map[string]float64{
			"dmindex_index_condition Available Serving": 1,
			"dmindex_index_condition DataLost Intact":   0,
			"dmindex_index_servers compute Ready":       2,
			"dmindex_index_servers memory Ready":        2,
		} {
			if v, there := got[series]; !there || v != want {
				return fmt.Sprintf("%s is %v (%v), want %v of %v", series, v, there, want, got)
			}
		}
		for _, series := range []string{"dmindex_index_ranges", "dmindex_index_ranges_unserved", "dmindex_index_memory_quota_bytes demo-memory"} {
			if _, there := got[series]; !there {
				return fmt.Sprintf("%s is missing in %v", series, got)
			}
		}
		return ""
	})
	if err := api.Delete(t.Context(), c.index("demo")); err != nil {
		t.Fatal(err)
	}
	c.eventually("the index and its metrics are gone", func() string {
		if err := c.get("demo", &dmv1.DMIndex{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint("the index: ", err)
		}
		if got, err := c.series("demo"); err != nil || len(got) > 0 {
			return fmt.Sprint(got, err)
		}
		return ""
	})
}
