package ownership

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestTables: who came in by an old table is waited for, and nobody else.
func TestTables(t *testing.T) {
	err := simenv.New(simenv.Options{Seed: 1}).Run(func(p *simenv.Process) {
		ts := NewTables(p)
		never := func() bool { return false }
		first := ts.Enter()
		ts.Replace(nil, nil)
		second := ts.Enter()
		if ts.awaitQuiet(time.Second, never) || !first.old.Load() || second.old.Load() {
			t.Error("somebody is in by the first table")
		}
		p.Go("leave", func() { p.Sleep(time.Second); ts.Leave(first) })
		if begun := p.Now(); !ts.awaitQuiet(time.Minute, never) || p.Now()-begun > 2*time.Second {
			t.Error("nobody is any more")
		}
		ts.Leave(second)
		if !ts.awaitQuiet(0, never) || len(ts.older) != 0 {
			t.Errorf("%d old tables are kept", len(ts.older))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	spans := &Table{spans: []partition.Span{{Start: []byte("b"), End: []byte("d")}, {Start: []byte("m")}}}
	f := func(key string, below, want bool) {
		t.Helper()
		if _, got := spans.spanOf([]byte(key), below); got != want {
			t.Errorf("%q, below %v: %v", key, below, got)
		}
	}
	f("", false, false)
	f("a", false, false)
	f("b", false, true)
	f("b", true, false)
	f("c", true, true)
	f("d", false, false)
	f("d", true, true)
	f("e", true, false)
	f("m", true, false)
	f("m", false, true)
	f("zz", true, true)
	f("", true, true)
}
