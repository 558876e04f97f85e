package workload

import (
	"strings"
	"testing"
)

// TestNamesOfWorkloads: what is not there is answered with what there is.
func TestNamesOfWorkloads(t *testing.T) {
	if _, err := ByName("G"); err == nil || !strings.Contains(err.Error(), "there are A, B, C, D, E, F, LOAD, insert-intensive, write-only") {
		t.Error(err)
	}
}

// TestTextsOfDistributions: what can be read is written as it was read.
func TestTextsOfDistributions(t *testing.T) {
	for _, text := range []string{"gauss", "zipfian:-1", "zipfian:x", "uniform:2", "latest:9", "zipfian:0.99/x", "zipfian:0.99/0", "latest:0.99/1e9"} {
		if d, err := ParseDistribution(text); err == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
	for _, text := range []string{"uniform", "latest", "latest:0.5", "zipfian:0.99", "zipfian:1.2", "zipfian:0.99/1e9"} {
		if d, err := ParseDistribution(text); err != nil || d.String() != text {
			t.Errorf("%q is %v, %v", text, d, err)
		}
	}
}
