package dex

import "github.com/dmindex/dmindex/pkg/index"

// techniques are the paper's (sections 4 to 6), in the order of its factor analysis (8.3), and two
// of ours. They concern one client only: the next owner of a range finds what this client has
// acknowledged in the memory servers and the log.
type techniques struct {
	// section 5.2, with frequencies off. off = one queue of frames to evict, and one lock for
	// admission and eviction
	coolingMap bool
	// section 5.3, with frequencies off. off = inner nodes are evicted whether leaves of theirs are
	// kept or not
	pathAware     bool
	leafAdmission bool // section 5.4. off = every leaf that is READ is kept
	offloading    bool // section 6. off = memory servers search for no key
	costAware     bool // section 6.1. off = they are asked whenever they can answer
	frequencies   bool // the cache keeps what is used most. off = the paper's policy
	// the cache also keeps single entries and values of blocks. off = whole leaves only, as in the
	// paper
	entries bool
}

// Switches are the names of the techniques in options.
var Switches = []string{"coolingMap", "leafAdmission", "offloading", "costAware", "frequencies", "entries", "pathAware"}

// techniquesOf reads switches; nil or missing is on.
func techniquesOf(switches map[string]bool) (t techniques, err error) {
	if err := index.CheckSwitches(Name, Switches, switches); err != nil {
		return t, err
	}
	for i, on := range []*bool{&t.coolingMap, &t.leafAdmission, &t.offloading, &t.costAware, &t.frequencies, &t.entries, &t.pathAware} {
		v, given := switches[Switches[i]]
		*on = v || !given
	}
	t.pathAware = t.pathAware && !t.frequencies
	return t, nil
}
