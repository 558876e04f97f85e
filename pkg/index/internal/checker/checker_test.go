package checker

import (
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestReport: a node that is met twice is a fault, and a walk that finds many reports a few.
func TestReport(t *testing.T) {
	var r Report
	for i := range 3 {
		r.Node(pool.NewAddr(1, uint64(64*(i+1))), 256, index.KindLeaf)
	}
	r.Pair(8, 24)
	r.Finish()
	if err := r.Err(); err != nil || r.Found.Nodes != 3 || r.Found.NodeBytes != 768 || r.Found.Pairs != 1 || r.Found.PairBytes != 32 {
		t.Errorf("%+v, %v", r.Found, err)
	}
	r.Node(pool.NewAddr(1, 128), 256, index.KindLeaf)
	r.Finish()
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a node that is there twice: %v", err)
	}
	for range 2 * maxFaults {
		r.Fault("one more")
	}
	if len(r.faults) != maxFaults {
		t.Errorf("%d faults are reported, at most %d", len(r.faults), maxFaults)
	}
}
