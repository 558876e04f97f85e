package slottedtree

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestDivideOnce divides a nearly full leaf at a low that is too long for its left half. One call
// changes one leaf: a caller that keeps leaves stands for no other. The leaf that holds the low
// then is a new one, and the next call divides that.
func TestDivideOnce(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 10})
	x, err := Open(c.Open(t), Config{Options: index.Options{MaxKeyBytes: 150, MaxValueBytes: 8, NodeBytes: 1024}, Design: index.Design{Name: "test"}})
	fatal(t, err)
	s, err := x.NewSession()
	fatal(t, err)
	t.Cleanup(func() { fatal(t, errors.Join(s.Close(), x.Close())) })
	pairs := 0
	for used := 0; used < 900; pairs++ {
		fatal(t, s.Insert(fmt.Appendf(nil, "k%02d", pairs), []byte("12345678")))
		var l slotted.Leaf
		s.Begin()
		p, err := s.Seek(nil, fence.Ending, 0)
		fatal(t, err)
		if fatal(t, s.Read(p.Addr(), s.Node)); !l.Open(s.Lay, p.Addr(), s.Node) || !bytes.Equal(l.Low, s.Lay.Bottom) {
			t.Fatalf("there is more than one leaf with %d pairs", pairs+1)
		}
		s.End()
		d := l.Load()
		used = d.Used()
	}
	low := []byte(fmt.Sprintf("k%02d", pairs-2) + strings.Repeat("f", 140))
	holder := func() pool.Addr {
		t.Helper()
		s.Begin()
		defer s.End()
		p, err := s.Seek(low, fence.Holding, 0)
		fatal(t, err)
		return p.Addr()
	}
	first := holder()
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
		if call == 0 && holder() == first {
			t.Error("the low lies in the old leaf after the first call: this tests nothing")
		}
	}
	_, err = x.Check()
	fatal(t, err)
}
