package papers

import (
	"testing"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
)

// TestEveryLineIsMeasured: --figure processor measures each line of the processor times.
func TestEveryLineIsMeasured(t *testing.T) {
	measured := map[string]bool{}
	for _, v := range processorMeasure.variants {
		measured[v.design] = true
	}
	for _, name := range bench.CostLines() {
		if !measured[name] {
			t.Errorf("the line of %s is not measured by --figure processor", name)
		}
	}
}
