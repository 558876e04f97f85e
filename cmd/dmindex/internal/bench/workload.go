package bench

import (
	"fmt"
	"strings"
)

// kind of an operation.
type kind uint8

const (
	lookup kind = iota
	insert      // of a new item
	update      // of an item that is there
	upsert      // of an item that may be there
	modify      // a lookup and then an update: one operation
	scan
	kinds
)

// Workload says how often each kind of operation comes.
type Workload struct {
	Name  string
	share [kinds]int // of a hundred
	// sparse: a third of the items is not there at first, so that of upserts with uniform keys two
	// thirds update (Sherman, section 5).
	sparse bool
	latest bool // by default the latest items are the popular ones
	// even: all items are upserted alike, and only scans follow the distribution.
	even bool
}

// workloads are YCSB's (LOAD is its first phase), the one of DEX's table 1 that is none of those,
// and those of Sherman's table 2, where "insert" is an upsert. That range-write is even follows
// from its table 3, which says that ranges are skewed: the baseline does 7.74 million operations a
// second there, and 0.34 million (table 1) where writes are skewed.
var workloads = []Workload{
	{Name: "A", share: [kinds]int{lookup: 50, update: 50}},
	{Name: "B", share: [kinds]int{lookup: 95, update: 5}},
	{Name: "C", share: [kinds]int{lookup: 100}},
	{Name: "D", share: [kinds]int{lookup: 95, insert: 5}, latest: true},
	{Name: "E", share: [kinds]int{scan: 95, insert: 5}},
	{Name: "F", share: [kinds]int{lookup: 50, modify: 50}},
	{Name: "LOAD", share: [kinds]int{insert: 100}},
	{Name: "insert-intensive", share: [kinds]int{insert: 50, lookup: 50}},
	{Name: "write-only", share: [kinds]int{upsert: 100}, sparse: true},
	{Name: "write-intensive", share: [kinds]int{upsert: 50, lookup: 50}, sparse: true},
	{Name: "read-intensive", share: [kinds]int{upsert: 5, lookup: 95}, sparse: true},
	{Name: "range-only", share: [kinds]int{scan: 100}, sparse: true},
	{Name: "range-write", share: [kinds]int{upsert: 50, scan: 50}, sparse: true, even: true},
}

// LookupWorkload finds a workload by name, in upper or lower case; the error lists those that there
// are.
func LookupWorkload(name string) (Workload, error) {
	var names []string
	for _, w := range workloads {
		if strings.EqualFold(w.Name, name) {
			return w, nil
		}
		names = append(names, w.Name)
	}
	return Workload{}, fmt.Errorf("unknown workload %q: there are %s", name, strings.Join(names, ", "))
}

var kindNames = [kinds]string{"lookup", "insert", "update", "upsert", "read-modify-write", "scan"}

func (k kind) String() string { return kindNames[k] }

// DistributionOr is the distribution that was asked for, or if text is empty, the workload's own.
func (w *Workload) DistributionOr(text string) string {
	switch {
	case text != "":
		return text
	case w.latest:
		return "latest"
	}
	return "zipfian:0.99"
}
