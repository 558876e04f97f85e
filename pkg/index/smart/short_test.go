package smart

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestLeftLeafThatIsNotTakenOut: memory was short, and a delete left its leaf in the tree. Who
// wants to take it out does not get the leaf's lock. The leaf stays noted until somebody gets it.
func TestLeftLeafThatIsNotTakenOut(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	x, err := Open(c.Open(t), index.Options{MaxKeyBytes: 20, MaxValueBytes: 8})
	if err != nil {
		t.Fatal(err)
	}
	session := func() *Session {
		s, err := x.Session()
		if err != nil {
			t.Fatal(err)
		}
		return s.(*Session)
	}
	s, other := session(), session()
	key := []byte("key")
	if err := s.Insert(key, nil); err != nil {
		t.Fatal(err)
	}
	h := &x.(*Tree).shortage
	s.t.NoteShort(s.Env, index.ErrPoolFull)
	if err := s.Delete(key); err != nil || h.n.Load() != 1 {
		t.Fatalf("%d leaves are left: %v", h.n.Load(), err)
	}
	other.Begin()
	if _, found, _, err := other.lockLeaf(key); !found || err != nil {
		t.Fatal(found, err)
	}
	bury := func() error {
		s.Begin()
		defer s.End()
		return s.burySome(mostLeft)
	}
	s.SetLimit(time.Millisecond)
	if err := bury(); !errors.Is(err, index.ErrTimeout) || h.n.Load() != 1 {
		t.Errorf("%d leaves are noted after one was not taken out: %v", h.n.Load(), err)
	}
	if err := other.Unlock(nil); err != nil {
		t.Fatal(err)
	}
	other.End()
	s.SetLimit(index.DefaultLimit)
	if err := bury(); err != nil || h.n.Load() != 0 || h.mu.out != 0 {
		t.Errorf("%d leaves are noted, %d are taken out: %v", h.n.Load(), h.mu.out, err)
	}
	if found, err := x.(index.Checker).Check(); err != nil || found.Nodes != 1 {
		t.Errorf("%+v: %v", found, err)
	}
}
