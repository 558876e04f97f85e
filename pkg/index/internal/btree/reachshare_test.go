package btree

import "testing"

// TestSessionsShareTheirReach: sessions that have met few leaves know how full others found theirs;
// one that has met many goes by its own.
func TestSessionsShareTheirReach(t *testing.T) {
	tree := new(Tree)
	session := func() *Session { return &Session{t: tree, perLeaf: guess} }
	const pairs = 50
	for range 3 * perLeafOf {
		s := session()
		s.countPairs(pairs)
	}
	s := session()
	if s.adoptKnown(); s.perLeaf < 45*perLeafIn || s.perLeaf > pairs*perLeafIn {
		t.Errorf("a new session takes leaves to have %d/%d pairs, others met %d", s.perLeaf, perLeafIn, pairs)
	}
	for range fewLeaves {
		s.countPairs(pairs)
	}
	before := s.perLeaf
	for range fewLeaves {
		session().countPairs(2)
	}
	if s.adoptKnown(); s.perLeaf != before {
		t.Errorf("a session that met %d leaves takes over what others met: %d", fewLeaves, s.perLeaf)
	}
	other := session()
	if other.adoptKnown(); other.perLeaf >= before {
		t.Errorf("a new one does not: %d", other.perLeaf)
	}
}
