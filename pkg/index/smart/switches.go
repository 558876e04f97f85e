package smart

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
)

// techniques are the paper's. They are a client's own matter: each changes what is posted when, or
// what is made, none what a word, node or leaf means to others.
type techniques struct {
	art.Techniques
	// section 4.1.2: a value is changed in its leaf. Off: a new leaf takes the place of the old one
	// (read-copy-update)
	inPlaceLeaf bool
	// section 4.1.1: the release of a lock rides behind the change. Off: it is awaited apart
	rearLock bool
	// section 4.2: sessions READ a node or leaf together (package combine)
	readDelegation bool
	// section 4.2: the holder of a leaf's lock makes the changes of those that wait for it
	// (combine.go)
	writeCombining bool
	// Sherman, section 4.3: sessions of a client queue for a lock, and hand it over with the leaf.
	// Off: each of them asks the memory server. Then nobody waits where changes could be taken from
	hierarchical bool
}

var switches = []string{"lockFreeInternal", "inPlaceLeaf", "rearLock", "readDelegation", "writeCombining", "hierarchical", "pathCompression", "nodeTypes"}

// techniquesOf reads switches; nil or missing is on.
func techniquesOf(given map[string]bool) (t techniques, err error) {
	if err := index.CheckSwitches(Name, switches, given); err != nil {
		return t, err
	}
	for i, on := range []*bool{
		&t.LockFreeInternal, &t.inPlaceLeaf, &t.rearLock, &t.readDelegation, &t.writeCombining, &t.hierarchical, &t.PathCompression, &t.NodeTypes,
	} {
		v, ok := given[switches[i]]
		*on = v || !ok
	}
	return t, nil
}
