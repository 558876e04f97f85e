// Package simtest is what the tests of all simulations share: which seeds are run, on how many
// processors, and how one that failed is run again. Only tests import it.
//
// hack/sim sets the environment:
//
//	DMINDEX_SIM_SEEDS  how many seeds are run
//	DMINDEX_SIM_SEED   the first of them; alone, that one seed is run
//	DMINDEX_SIM_PLAN   the adversary's plan (JSON), in the place of each seed's own
package simtest

import (
	"fmt"
	"iter"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

const (
	seedsVariable = "DMINDEX_SIM_SEEDS"
	seedVariable  = "DMINDEX_SIM_SEED"
	stepVariable  = "DMINDEX_SIM_STEP"

	// PlanVariable names the plan of the adversary.
	PlanVariable = "DMINDEX_SIM_PLAN"
)

// mostFailures is after how many failed seeds no other is begun.
const mostFailures = 3

// Seeds are the seeds that a test runs.
type Seeds struct {
	First, Count uint64

	design, folder, test string
}

// Read returns the seeds that the environment asks for; without it, count of them from 1 on. design
// is the name of the simulation to hack/sim, folder is where the test is.
func Read(t testing.TB, design, folder string, count uint64) Seeds {
	t.Helper()
	s := Seeds{First: number(t, seedVariable, 1), Count: number(t, seedsVariable, count), design: design, folder: folder, test: t.Name()}
	if os.Getenv(seedVariable) != "" && os.Getenv(seedsVariable) == "" {
		s.Count = 1
	}
	return s
}

// Step is how many places lie between two that a test tries, of all at which a client can die: what
// the environment asks for, or otherwise.
func Step(t testing.TB, otherwise int) int {
	t.Helper()
	return max(1, int(number(t, stepVariable, uint64(otherwise))))
}

func number(t testing.TB, name string, otherwise uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// OneByOne are the seeds in order, for runs that share something of their process.
func (s Seeds) OneByOne() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for i := range s.Count {
			if !yield(s.First + i) {
				return
			}
		}
	}
}

// Each runs the seeds, as many at once as there are processors: worlds know nothing of each other.
// run reports whether a seed passed; after some that failed no other is begun. Each returns how
// many were begun and how many of them failed.
func (s Seeds) Each(run func(seed uint64) (passed bool)) (done, failed uint64) {
	var next, failures atomic.Uint64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for failures.Load() < mostFailures {
				i := next.Add(1) - 1
				if i >= s.Count {
					return
				}
				if !run(s.First + i) {
					failures.Add(1)
				}
			}
		})
	}
	workers.Wait()
	return min(next.Load(), s.Count), failures.Load()
}

// Replay is the end of a message about a seed that failed: the line that runs it again.
func (s Seeds) Replay(seed uint64) string {
	command := simenv.Replay(s.design)
	if !invariants.Enabled { // another build: other choices
		command = fmt.Sprintf("%s=1 go test -run '^%s$' ./%s", seedsVariable, s.test, s.folder)
	}
	return fmt.Sprintf("replay with %s=%d %s", seedVariable, seed, command)
}
