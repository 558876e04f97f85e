package papers

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// TestCrashFigure does it with next to nothing.
func TestCrashFigure(t *testing.T) {
	f, base := fiveCrash, smallBase()
	f.runs, f.distributions = 1, f.distributions[:1]
	f.Defaults(base, func(string) bool { return false })
	if base.Clients != 64 || base.MemoryServers != 4 || base.ComputeServers != 4 {
		t.Errorf("defaults %+v", base)
	}
	base.Records, base.Ops, base.Warmup, base.Clients, base.ComputeServers, base.MemoryServers = 500, 100, 10, 4, 2, 1
	var out bytes.Buffer
	results, err := f.Do(t.Context(), *base, &out)
	if err != nil || len(results) != len(index.Names()) || !strings.Contains(out.String(), "longest wait ms") {
		t.Errorf("%d results, %v in\n%s", len(results), err, &out)
	}
	base.ComputeServers, base.Clients = 1, 1
	if _, err := f.Do(t.Context(), *base, &out); err == nil || !strings.Contains(err.Error(), "give 2 or more") {
		t.Errorf("one server: %v", err)
	}
}
