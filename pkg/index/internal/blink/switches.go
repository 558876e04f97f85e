package blink

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// techniques are the paper's, in the order of its factor analysis (section 5.1); all off is its
// baseline FG+. They are a client's own matter: each changes what is posted when, none what a
// request means to others (docs/design/sherman.md, "Switches").
type techniques struct {
	combine      bool // section 4.5: lists of dependent requests (pool.Techniques.Apart)
	onChip       bool // section 4.3: locks in the NIC's memory
	hierarchical bool // section 4.3: local lock table and handover (pool.Techniques.Flat)
	// section 4.4: a change of one entry writes that entry, not the whole leaf
	twoLevelVersions bool
}

// Switches are the names of the techniques in options.
var Switches = []string{"combine", "onChip", "hierarchical", "twoLevelVersions"}

// techniquesOf reads switches; nil or missing is on. Where the locks lie is the memory servers'
// choice, made when they started, and the same for all clients, since they must meet at the same
// words. So with onChip the index takes what there is; without, it refuses locks on a chip.
func techniquesOf(design string, switches map[string]bool, p *pool.Pool) (t techniques, err error) {
	if err := index.CheckSwitches(design, Switches, switches); err != nil {
		return t, err
	}
	for i, on := range []*bool{&t.combine, &t.onChip, &t.hierarchical, &t.twoLevelVersions} {
		v, given := switches[Switches[i]]
		*on = v || !given
	}
	if !t.onChip && p.OnChip() {
		return t, errors.New("the switch onChip is off, but the memory servers hold the locks in their NICs: start them without device memory")
	}
	return t, nil
}

// await posts what is queued and waits, where it may not ride in one list with what comes behind
// it.
func (s *session) await() error {
	if s.t.with.combine {
		return nil
	}
	return op.Failure(s.PS.Post(), false)
}

// wholeLeaf says whether a change of the locked leaf shall write all of it back: without two-level
// versions, as FG does. In a full pool there may be no place for the image of a rewrite. Then the
// entry alone is written, so that deletes, and updates in place, go on.
func (s *session) wholeLeaf(l *slotted.Leaf) bool {
	return !s.t.with.twoLevelVersions && !errors.Is(s.PS.ReserveRewrite(l.Addr, s.lay.NodeBytes), pool.ErrPoolFull)
}

// rewriteWithout replaces the locked leaf by what is left of it, and gives the lock up.
func (s *session) rewriteWithout(l *slotted.Leaf) error {
	p := &s.pairs
	if !l.Collect(p) {
		return s.Unlock(fmt.Errorf("leaf %v does not verify under its lock: %w", l.Addr, index.ErrFormat))
	}
	p.Sort()
	return s.rewrite(l, p)
}
