package dolphin

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Damage is content that no client writes, as of a program that wrote where it must not. It ends
// the operation that comes to it, with an error that names the leaf. Heads and bounds have sums.
// What a record's state word or a forward word says is checked where it is used.

// damagedLeaf is the error of a leaf that says what no client writes.
func damagedLeaf(a pool.Addr, what string) error {
	return fmt.Errorf("leaf %v has %s; if a check of the index finds it as well, restore a dump: %w", a, what, index.ErrFormat)
}

// damagedRecord is damagedLeaf of a leaf with a record that no client writes, or, where nobody
// WRITEs to it, a cell that does not have its sum.
func damagedRecord(a pool.Addr) error { return damagedLeaf(a, "a record that is none") }

// forwardOf is the forward word of l. An error: it is none that a client writes.
func (t *Tree) forwardOf(l *leaf) (uint64, error) {
	fw := l.forward()
	switch {
	case fw <= shut, fw == gone && len(l.low) == 0 && l.endless, fw == merging && !l.endless:
		return fw, nil
	case fw > merging && fw != uint64(l.at):
		if _, err := t.strips.WordOf(pool.Addr(fw)); err == nil {
			return fw, nil
		}
	}
	return fw, damagedLeaf(l.at, fmt.Sprintf("the forward word %#x, which leads to nothing that there is", fw))
}

// misled is err, of READs of leaves where slots led: damage, if no leaf can lie at one of them.
func (s *Session) misled(err error, at ...pool.Addr) error {
	for _, a := range at {
		if _, no := s.t.strips.WordOf(a); no != nil {
			return damagedLeaf(a, "a slot, and lies in no memory of the index")
		}
	}
	return op.Failure(err, false)
}

// mostStrays is how often an operation comes to one leaf by words that it READ, and in vain.
const mostStrays = 8

// strayed is called where an operation came to the leaf at a by words that it READ, and found
// neither what it looks for nor another leaf in that one's place. It lets others run, and then the
// operation looks again.
//
// Once, or a few times, others changed the tree between two READs. But a leaf is out, or has other
// leaves in its place, only after its slot leads elsewhere, or it says so. And the leaf behind an
// open one has a slot. So an operation that comes to the same one each time meets damage.
func (s *Session) strayed(a pool.Addr) error {
	if a != s.stray {
		s.stray, s.strays = a, 0
	}
	if s.strays++; s.strays > mostStrays {
		return damagedLeaf(a, "a slot, and neither verifies nor leads to the keys that belong there")
	}
	return s.Reread(a)
}

// renew READs the slot of st again, the last step of the way, so that its copy is not older. What
// the operation found in the leaf there showed that the slot leads elsewhere by now. A frozen slot
// never says so: its node is out, or about to be, and the copy of its parent is old as well.
func (s *Session) renew(st *art.Step) error {
	if err := s.strayed(st.Word.Addr()); err != nil {
		return err
	}
	w, err := s.ReadWord(st)
	if err != nil || !w.Frozen() {
		return err
	}
	return s.Replace(s.Level)
}
