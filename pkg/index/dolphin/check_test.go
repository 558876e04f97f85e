package dolphin

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestCheckOfHiddenBits: a check finds a slot that says another place than its leaf has.
func TestCheckOfHiddenBits(t *testing.T) {
	x, err := open(pooltest.New(t, pooltest.Options{}).Open(t), index.Options{MaxKeyBytes: 8, MaxValueBytes: 8})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.newSession()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"ab", "cd"} {
		if err := s.Insert([]byte(k), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := x.Check(); err != nil {
		t.Fatal(err)
	}
	s.Begin()
	if _, err := s.Seek(nil); err != nil {
		t.Fatal(err)
	}
	st := s.Last()
	s.QueueSwap(st, st.Word^1<<48)
	if err := s.PS.Post(); err != nil {
		t.Fatal(err)
	}
	if _, won := s.Swapped(st, st.Word^1<<48); !won {
		t.Fatal("the slot has another word")
	}
	s.End()
	if _, err := x.Check(); err == nil {
		t.Error("a check finds nothing")
	}
}

// TestLoneLeaves: the search for the place of a right half relies on words of slots that do not
// come back (replace.go).
func TestLoneLeaves(t *testing.T) {
	l, err := newLayout(index.Options{Uint64: true, MaxValueBytes: 8})
	if err != nil || !l.LoneLeaves {
		t.Errorf("leaves that are left alone take the place of their node: %v", err)
	}
}
