package sherman

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// techniques are the paper's, in the order of its factor analysis (section 5.1), and two that it
// does not have behind them; all off is its baseline FG+. They are a client's own matter: each
// changes what is posted when, none what a request means to others (docs/design/sherman.md,
// "Switches").
type techniques struct {
	combine      bool // section 4.5: lists of dependent requests (pool.Techniques.Apart)
	onChip       bool // section 4.3: locks in the NIC's memory
	hierarchical bool // section 4.3: local lock table and handover (pool.Techniques.Flat)
	// section 4.4: a change of one entry writes that entry, not the whole leaf
	twoLevelVersions bool
	// not the paper's: the holder of a lock carries out what others of its client wait for. It
	// needs hierarchical and twoLevelVersions.
	writeCombining bool
	// SMART, section 4.2: sessions of one client READ a node together. Not Sherman's.
	readDelegation bool
}

// switches are the names of the techniques in options.
var switches = []string{"combine", "onChip", "hierarchical", "twoLevelVersions", "writeCombining", "readDelegation"}

// techniquesOf reads switches; nil or missing is on. Where the locks lie is the memory servers'
// choice, made when they started, and the same for all clients, since they must meet at the same
// words. So with onChip the index takes what there is; without, it refuses locks on a chip.
func techniquesOf(given map[string]bool, p *pool.Pool) (t techniques, err error) {
	if err := index.CheckSwitches(Name, switches, given); err != nil {
		return t, err
	}
	for i, on := range []*bool{&t.combine, &t.onChip, &t.hierarchical, &t.twoLevelVersions, &t.writeCombining, &t.readDelegation} {
		v, ok := given[switches[i]]
		*on = v || !ok
	}
	if !t.onChip && p.OnChip() {
		return t, errors.New("the switch onChip is off, but the memory servers hold the locks in their NICs: start them without device memory")
	}
	return t, nil
}
