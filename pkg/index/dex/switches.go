package dex

import "github.com/dmindex/dmindex/pkg/index"

// techniques are the paper's (sections 4 to 6), in the order of its factor analysis (8.3), and two
// of ours. They are a client's own matter: whoever takes a range finds in the memory servers and
// the log what this client has acknowledged.
type techniques struct {
	// section 4. off = leaves are READ, and changed under their locks in the memory servers:
	// several such clients may take the same keys
	partitioning bool
	// section 5. off = leaves are READ each time, and changes written through at once, without a
	// log
	caching bool
	// section 5.2, without frequencies. off = one queue of what is to go, and one lock for all that
	// comes and goes
	coolingMap    bool
	leafAdmission bool // section 5.4. off = every leaf that is READ is kept
	offloading    bool // section 6. off = the memory servers look for no key
	costAware     bool // section 6.1. off = they look for whatever they can, whatever that costs
	frequencies   bool // the cache keeps what is used most. off = the paper's policy
	// the cache keeps single entries and values of blocks, too. off = whole leaves only, as in the
	// paper
	entries bool
}

// Switches are the names of the techniques in options.
var Switches = []string{"partitioning", "caching", "coolingMap", "leafAdmission", "offloading", "costAware", "frequencies", "entries"}

// techniquesOf reads switches; nil or missing is on.
func techniquesOf(switches map[string]bool) (t techniques, err error) {
	if err := index.CheckSwitches(Name, Switches, switches); err != nil {
		return t, err
	}
	for i, on := range []*bool{&t.partitioning, &t.caching, &t.coolingMap, &t.leafAdmission, &t.offloading, &t.costAware, &t.frequencies, &t.entries} {
		v, given := switches[Switches[i]]
		*on = v || !given
	}
	t.offloading = t.offloading && !t.direct()
	t.entries = t.entries && !t.direct()
	return t, nil
}

// direct reports whether lookups go to the memory servers.
func (t *techniques) direct() bool { return !t.partitioning || !t.caching }
