package smart

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestSweepSeesWhereALeafMoved: a client died when it had made a leaf moved, and before it swapped
// the slot. The new leaf is in no slot, and a sweep does not take it for lost. One that nothing
// leads to it gives back.
func TestSweepSeesWhereALeafMoved(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{RenewEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.Run(func(p *simenv.Process) {
		pl, err := c.Open(p)
		must(err)
		x, err := Open(pl, index.Options{MaxKeyBytes: 16, MaxValueBytes: 60})
		must(err)
		tree := x.(*Tree)
		s, err := tree.newSession()
		must(err)
		key, value := []byte("key"), []byte("a value that the cell has no room for")
		must(s.Insert(key, []byte("short")))

		s.Begin()
		_, found, _, err := s.lockLeaf(key)
		if must(err); !found {
			t.Fatal("the leaf is not found")
		}
		l := &s.leaf
		to, lost := coming{s: s, key: key, value: value}, coming{s: s, key: key, value: value}
		_, err = to.Allot(l.at)
		must(err)
		_, err = lost.Allot(l.at)
		must(err)
		must(lost.Queue(l.at))
		must(s.PS.Post())
		must(to.Queue(l.at))
		i := 1 - l.ctl.cell()
		s.PS.Write(pool.Shared, l.at+pool.Addr(l.cellAt(i)), l.putForward(i, to.word))
		s.PS.Write(pool.Shared, l.at+atControl, l.setControl(i, moved))
		must(s.Blocks.Publish(l.at))
		s.Forget()
		s.End()

		n, err := tree.Sweep()
		must(err)
		if n != 1 {
			t.Errorf("a sweep gave back %d leaves, want 1", n)
		}
		for at, want := range map[pool.Addr]pool.NodeState{to.at: pool.NodeInUse, lost.at: pool.NodeAvailable} {
			if got := pl.NodeState(at, to.allocated()); got != want {
				t.Errorf("leaf %v is in state %d, want %d", at, got, want)
			}
		}
		got, err := s.Lookup(key, nil)
		if must(err); string(got) != string(value) {
			t.Errorf("the leaf that moved has %q, want %q", got, value)
		}
		must(s.Close())
		must(x.Close())
		must(pl.Close())
	}))
}
