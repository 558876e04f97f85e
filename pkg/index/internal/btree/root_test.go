package btree

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// oldRoot makes a tree whose root is an inner node, and a session of a client that keeps the leaf
// which was the root before. The operation that read this leaf began later than the one under way
// in s: it read the root word before the tree grew, and kept what it had read afterwards.
func oldRoot(t *testing.T) (s *toySession, kept *rootRef) {
	t.Helper()
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 40, ChunkBytes: 64 << 10})
	open := func() (*toyTree, *toySession) {
		t.Helper()
		tr, err := openToy(c.Open(t), nil)
		fatal(t, err)
		s, err := tr.session()
		fatal(t, err)
		t.Cleanup(func() { fatal(t, errors.Join(s.Close(), tr.Close())) })
		return tr, s
	}
	_, other := open()
	mine, s := open()
	leaf := *mine.root.Load()
	for n := range uint64(30) {
		fatal(t, other.change(number(n), number(n)))
	}
	s.Begin()
	t.Cleanup(s.End)
	leaf.stamp = s.PS.Stamp() + 1
	mine.root.Store(&leaf)
	if root, err := s.root(); err != nil || root.level != 0 {
		t.Fatalf("the root that is kept is %+v, %v", root, err)
	}
	return s, &leaf
}

// TestRootFound lets an operation find, in each of the ways that there are, that the kept root is
// not the root. The operation goes on from the root that it has found, also if an operation that
// began later has kept the old one. Without that it would find the same again, without end.
func TestRootFound(t *testing.T) {
	for _, c := range []struct {
		name string
		find func(s *toySession, kept *rootRef) error
	}{
		{"read anew", func(s *toySession, _ *rootRef) error {
			_, err := s.relearnRoot()
			return err
		}},
		{"met a sibling", func(s *toySession, kept *rootRef) error {
			_, err := s.renewRoot(kept)
			return err
		}},
		{"about to grow", func(s *toySession, kept *rootRef) error {
			done, err := s.growRoot(kept, 1, number(20), kept.addr)
			if done {
				err = errors.New("a root that is old has grown")
			}
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, kept := oldRoot(t)
			fatal(t, c.find(s, kept))
			root, err := s.root()
			fatal(t, err)
			if root.level == 0 {
				t.Fatalf("the operation has found the root, and is led to leaf %v, which was the root before", root.addr)
			}
			p, err := s.descend(number(29), fence.Holding, 0)
			fatal(t, err)
			if p.parent == nil {
				t.Errorf("key 29 is looked for in %v, which no inner node leads to", p.addr)
			}
		})
	}
}

// TestRootMade lets an operation make a new root, after one that began later has kept the old one.
func TestRootMade(t *testing.T) {
	_, x := placed(t, nil)
	for n := range uint64(8) {
		fatal(t, x.change(number(n), number(n)))
	}
	s, tr := x, x.t
	s.Begin()
	defer s.End()
	leaf := *tr.root.Load()
	if leaf.level != 0 {
		t.Fatalf("the tree has %d levels", leaf.level+1)
	}
	leaf.stamp = s.PS.Stamp() + 1
	tr.root.Store(&leaf)
	for n := uint64(8); tr.root.Load().level == 0; n++ {
		fatal(t, s.insert(number(n), number(n)))
	}
	if root := tr.root.Load(); root.level != 1 {
		t.Errorf("the operation has made a root, and what is kept is %+v", root)
	}
}

// TestRootRead keeps the root of the operation that began later where it is not known which of two
// roots is newer, and else the one that was read last.
func TestRootRead(t *testing.T) {
	tr := &Tree{}
	older, newer, none := &rootRef{1, 0, 1}, &rootRef{2, 1, 2}, &rootRef{3, 1, 1}
	tr.noteRoot(newer, nil)
	tr.noteRoot(older, none)
	if got := tr.root.Load(); got != newer {
		t.Errorf("what is kept is %+v", got)
	}
	tr.noteRoot(older, newer)
	if got := tr.root.Load(); got != older {
		t.Errorf("what is kept is %+v, and was known when %+v was read", got, older)
	}
}
