package dolphin

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
)

// techniques are a client's own matter: each changes what is posted when, or what is made, none
// what a word, node or leaf means to others.
type techniques struct {
	art.Techniques
	// a change READs the keys of its leaf without the values behind them, where keys are of one
	// length. Off: all of the leaf
	keysOnlyRead bool
	// updates of values of 8 bytes go on side by side (share.go), as by the paper's ternary lock.
	// Off: each acquires the lock word of its leaf
	ternaryLock bool
	// sessions READ a node or leaf together (package combine)
	readDelegation bool
	// who has a leaf's lock word makes the changes of those that wait for it, too (combine.go)
	writeCombining bool
	// Sherman, section 4.3: sessions of a client queue for a lock, and hand it over. Off: each of
	// them asks the memory server
	hierarchical bool
}

var switches = []string{"keysOnlyRead", "ternaryLock", "readDelegation", "writeCombining", "hierarchical", "pathCompression", "nodeTypes"}

// techniquesOf reads switches; nil or missing is on.
func techniquesOf(given map[string]bool) (t techniques, err error) {
	if err := index.CheckSwitches(Name, switches, given); err != nil {
		return t, err
	}
	t.LockFreeInternal = true
	for i, on := range []*bool{&t.keysOnlyRead, &t.ternaryLock, &t.readDelegation, &t.writeCombining, &t.hierarchical, &t.PathCompression, &t.NodeTypes} {
		v, ok := given[switches[i]]
		*on = v || !ok
	}
	return t, nil
}
