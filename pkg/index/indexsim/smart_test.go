package indexsim_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indexsim"
	"github.com/dmindex/dmindex/pkg/index/smart"
)

// TestKnownSeedsOfSMART runs seeds that found faults.
func TestKnownSeedsOfSMART(t *testing.T) {
	d, err := index.Lookup(smart.Name)
	if err != nil {
		t.Fatal(err)
	}
	for seed, found := range map[uint64]string{
		77:  "a root that was replaced came into the cache of inner nodes, which then looked for a victim without end",
		227: "a client died when it had written a part of a leaf's dead mark, and those with old copies READ that leaf for ever",
	} {
		if rep := (indexsim.Run{Design: d, Seed: seed, Fresh: true}).Do(); rep.Err != nil {
			t.Errorf("seed %d (%s): %v", seed, found, rep.Err)
		}
	}
}
