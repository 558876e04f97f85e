package bench

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/psherman"
)

// Check refuses runs that make no sense, with a word on what to do.
func (r *Run) Check() error {
	_, err := r.check()
	return err
}

func (r *Run) check() (index.Design, error) {
	design, err := designOf(r.Design)
	if err != nil {
		return design, err
	}
	switch {
	case !slices.Contains(Transports, r.Transport):
		err = fmt.Errorf("unknown transport %q: there are %s", r.Transport, strings.Join(Transports, ", "))
	case r.Records < 1:
		err = errors.New("no records: an index with nothing in it measures nothing; give --records 1 or more")
	case r.Ops < 1:
		err = errors.New("no operations: give --ops 1 or more")
	case r.Warmup < 0:
		err = errors.New("less than no warm-up: give --warmup 0 or more")
	case r.ComputeServers < 1 || r.ComputeServers > 1000 || r.MemoryServers < 1 || r.MemoryServers > 64:
		err = fmt.Errorf("%d memory servers and %d compute servers: 1 to 64 and 1 to 1000 are possible", r.MemoryServers, r.ComputeServers)
	case r.Clients < r.ComputeServers || r.Clients > 100_000:
		err = fmt.Errorf("%d clients on %d compute servers: each needs one at least, and there are at most 100000; give --clients",
			r.Clients, r.ComputeServers)
	case r.ScanFrom < 1 || r.ScanTo < r.ScanFrom || r.ScanTo > workload.MaxScan:
		err = fmt.Errorf("scans of %d to %d pairs: 1 to %d are possible, the shortest first", r.ScanFrom, r.ScanTo, workload.MaxScan)
	case r.ValueBytes < 8:
		err = fmt.Errorf("values of %d bytes: at least 8 are needed, which say who wrote them", r.ValueBytes)
	case !design.SharesAll && max(r.Records, uint64(r.Ops)+uint64(r.Warmup)) > 1<<32-1:
		err = fmt.Errorf("%d records and %d operations: with owners of ranges at most %d of each are possible: give fewer --records or --ops", r.Records, r.Ops+r.Warmup, uint64(1<<32-1))
	case r.ProcessorScale < 0 || r.ProcessorScale > 100:
		err = fmt.Errorf("processor time times %g: above 0 and at most 100 is possible; give --processor-time 1", r.ProcessorScale)
	case r.ProcessorScale != 0 && r.Transport != "sim":
		err = fmt.Errorf("--processor-time: over %s operations take the processor time that they take; leave it out", r.Transport)
	case r.MessageRate < 0 || r.MessageRate > 1000:
		err = fmt.Errorf("%g million messages a second: above 0 and at most 1000 are possible; give --message-rate 45", r.MessageRate)
	case r.MessageRate != 0 && r.Transport != "sim":
		err = fmt.Errorf("--message-rate: over %s the NICs are what they are; leave it out", r.Transport)
	case uint64(r.Ops)+uint64(r.Warmup) > workload.MaxWriter:
		err = fmt.Errorf("%d operations: a value can name %d", r.Ops+r.Warmup, workload.MaxWriter)
	}
	if err == nil {
		_, err = workload.NewKeys(r.KeyBytes)
	}
	if err == nil {
		err = checkSwitches(design, r.Switches)
	}
	if err == nil {
		err = r.checkMemory()
	}
	return design, err
}

// designOf finds a design by its name: a registered one, or P-Sherman, which only benchmarks know.
func designOf(name string) (index.Design, error) {
	if name == psherman.Name {
		return psherman.Design, nil
	}
	return index.Lookup(name)
}

// checkSwitches refuses names that the design does not know.
func checkSwitches(d index.Design, switches map[string]bool) error {
	var unknown []string
	for name := range switches {
		if !slices.Contains(d.Switches, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	sort.Strings(unknown)
	there := "it has none"
	if len(d.Switches) > 0 {
		there = "there are " + strings.Join(d.Switches, ", ")
	}
	return fmt.Errorf("design %s has no switch %s: %s", d.Name, strings.Join(unknown, ", "), there)
}
