// Package workload says which operations a benchmark makes, on which keys, with which values. A
// stream is a function of its seed, and every value names the operation that wrote it.
package workload

import (
	"fmt"
	"strings"
)

// Kind of an operation.
type Kind uint8

// The kinds of operations.
const (
	Lookup Kind = iota
	Insert      // of a new item
	Update      // of an item that is there
	Upsert      // of an item that may be there
	Modify      // a lookup and then an update: one operation
	Scan
	kinds
)

// Workload says how often each kind of operation comes.
type Workload struct {
	Name  string
	Share [kinds]int // of a hundred
	// sparse: a third of the items is not there at first, so that of upserts with uniform keys two
	// thirds update (Sherman, section 5).
	Sparse bool
	latest bool // by default the latest items are the popular ones
	// even: all items are upserted alike, and only scans follow the distribution.
	Even bool
}

// All are YCSB's (LOAD is its first phase), the one of DEX's table 1 that is none of those,
// and those of Sherman's table 2, where "insert" is an upsert. That range-write is even follows
// from its table 3, which says that ranges are skewed: the baseline does 7.74 million operations a
// second there, and 0.34 million (table 1) where writes are skewed.
var All = []Workload{
	{Name: "A", Share: [kinds]int{Lookup: 50, Update: 50}},
	{Name: "B", Share: [kinds]int{Lookup: 95, Update: 5}},
	{Name: "C", Share: [kinds]int{Lookup: 100}},
	{Name: "D", Share: [kinds]int{Lookup: 95, Insert: 5}, latest: true},
	{Name: "E", Share: [kinds]int{Scan: 95, Insert: 5}},
	{Name: "F", Share: [kinds]int{Lookup: 50, Modify: 50}},
	{Name: "LOAD", Share: [kinds]int{Insert: 100}},
	{Name: "insert-intensive", Share: [kinds]int{Insert: 50, Lookup: 50}},
	{Name: "write-only", Share: [kinds]int{Upsert: 100}, Sparse: true},
	{Name: "write-intensive", Share: [kinds]int{Upsert: 50, Lookup: 50}, Sparse: true},
	{Name: "read-intensive", Share: [kinds]int{Upsert: 5, Lookup: 95}, Sparse: true},
	{Name: "range-only", Share: [kinds]int{Scan: 100}, Sparse: true},
	{Name: "range-write", Share: [kinds]int{Upsert: 50, Scan: 50}, Sparse: true, Even: true},
}

// ByName finds a workload by name, in upper or lower case; the error lists those that there
// are.
func ByName(name string) (Workload, error) {
	var names []string
	for _, w := range All {
		if strings.EqualFold(w.Name, name) {
			return w, nil
		}
		names = append(names, w.Name)
	}
	return Workload{}, fmt.Errorf("unknown workload %q: there are %s", name, strings.Join(names, ", "))
}

var kindNames = [kinds]string{"lookup", "insert", "update", "upsert", "read-modify-write", "scan"}

func (k Kind) String() string { return kindNames[k] }

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
