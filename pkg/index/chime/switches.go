package chime

import (
	"github.com/dmindex/dmindex/pkg/index"
)

// techniques are the paper's, in the order of its factor analysis (figure 15a). They are a client's
// own matter: each changes what is READ when, none what a WRITE means to others.
type techniques struct {
	// section 4.1: a lookup READs a neighbourhood; off: the whole leaf, as Sherman does
	hopscotchLeaf bool
	// section 4.2.1: an insertion READs the range that the vacancy map says; off: the whole leaf
	vacancyBitmap bool
	// section 4.2.2: the leaf's version and sibling come with the neighbourhood; off: the head is
	// READ for itself, one round trip more
	metadataReplication bool
	// section 4.2.3: the sibling in a replica shows that the leaf is the right one; off: the
	// fences in the head do, which is READ besides
	siblingValidation bool
	// section 4.3: a hot entry is READ alone
	speculativeRead bool
	// SMART, section 4.2, which the paper takes over: the holder of a leaf's word makes the changes
	// of sessions of its client that wait for it (combine.go)
	writeCombining bool
	// the same: sessions of one client READ a neighbourhood together (package combine)
	readDelegation bool
}

// switches are the names of the techniques in options.
var switches = []string{"hopscotchLeaf", "vacancyBitmap", "metadataReplication", "siblingValidation", "speculativeRead", "writeCombining", "readDelegation"}

// techniquesOf reads switches; nil or missing is on.
func techniquesOf(given map[string]bool) (t techniques, err error) {
	if err := index.CheckSwitches(Name, switches, given); err != nil {
		return t, err
	}
	for i, on := range []*bool{&t.hopscotchLeaf, &t.vacancyBitmap, &t.metadataReplication, &t.siblingValidation, &t.speculativeRead, &t.writeCombining, &t.readDelegation} {
		v, ok := given[switches[i]]
		*on = v || !ok
	}
	return t, nil
}
