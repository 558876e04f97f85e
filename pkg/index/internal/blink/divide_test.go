package blink

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestDivideOnce divides a nearly full leaf at a low that is too long for its left half. One call
// changes one leaf: a caller that keeps leaves stands for no other. The leaf that holds the low
// then is a new one, and the next call divides that.
func TestDivideOnce(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 10})
	x, err := Open(c.Open(t), index.Options{MaxKeyBytes: 150, MaxValueBytes: 8, NodeBytes: 1024}, index.Design{Name: "test"}, keepsNothing{})
	fatal(t, err)
	s, err := x.NewSession()
	fatal(t, err)
	t.Cleanup(func() { fatal(t, errors.Join(s.Close(), x.Close())) })
	pairs := 0
	for used := 0; used < 900; pairs++ {
		fatal(t, s.Insert(fmt.Appendf(nil, "k%02d", pairs), []byte("12345678")))
		var l slotted.Leaf
		if fatal(t, s.Read(x.root.Load().addr, s.node)); !l.Open(s.lay, x.root.Load().addr, s.node) {
			t.Fatalf("the root is no leaf any more with %d pairs", pairs+1)
		}
		d := l.Load()
		used = d.Used()
	}
	low := []byte(fmt.Sprintf("k%02d", pairs-2) + strings.Repeat("f", 140))
	holder := func() path {
		t.Helper()
		s.Begin()
		defer s.End()
		p, err := s.descend(low, fence.Holding, 0)
		fatal(t, err)
		return p
	}
	first := holder()
	if first.parent != nil {
		t.Fatal("there is more than one leaf before")
	}
	for call, want := range []bool{false, true, true} {
		s.Begin()
		done, err := s.DivideOnce(low)
		s.End()
		fatal(t, err)
		divided, err := s.IsDivided(low)
		fatal(t, err)
		if done != want || divided != want {
			t.Errorf("call %d: done %v, divided %v, want %v", call+1, done, divided, want)
		}
		if call == 0 && holder().addr == first.addr {
			t.Error("the low lies in the old leaf after the first call: this tests nothing")
		}
	}
	_, err = x.Check()
	fatal(t, err)
}
