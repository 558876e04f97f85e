package smart

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// clientOf is a client of a simulated cluster, with one session.
type clientOf struct {
	*Tree
	*Session
	late *poolsim.Late
}

func openIn(t *testing.T, c *poolsim.Cluster, p *simenv.Process, renew time.Duration) *clientOf {
	t.Helper()
	late := c.NewLate(p)
	pl, err := c.OpenWith(p, late, renew)
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(pl, index.Options{Uint64: true, MaxValueBytes: 64})
	if err != nil {
		t.Fatal(err)
	}
	return &clientOf{x.(*Tree), sessionOf(t, x.(*Tree)), late}
}

func sessionOf(t *testing.T, tree *Tree) *Session {
	t.Helper()
	s, err := tree.newSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// until waits for something that epochs bring.
func until(t *testing.T, p *simenv.Process, what string, is func() bool) {
	t.Helper()
	for n := 0; !is(); n++ {
		if n == 10_000 {
			t.Fatalf("in vain: %s", what)
		}
		p.Sleep(100 * time.Microsecond)
	}
}

// TestOldWordsInNewCopy: a scan READs the slots of the root and stands still. Its client hears of
// an epoch, and another session makes a copy of the root with the new stamp. The scan goes on. What
// it READ may be older than the stamp says, so it is not stored there: the words would lead to a
// node whose memory is used again before the floor rises above the stamp.
func TestOldWordsInNewCopy(t *testing.T) {
	if !invariants.Enabled {
		t.Fatal("the stop is in Pause: -tags invariants")
	}
	const renew = time.Millisecond
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 10_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, RenewEvery: renew})
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
		key := func(first, last byte) []byte { return []byte{first, 0, 0, 0, 0, 0, 0, last} }
		b, a := openIn(t, c, p, renew), openIn(t, c, p, renew)
		scan, look := a.Session, sessionOf(t, a.Tree)
		// the node below slot 7 of the root is full: it is replaced when a key more comes
		for last := range byte(art.FirstType.Slots()) {
			must(b.Insert(key(7, last), key(7, last)))
		}
		must(b.Insert(key(5, 0), nil))
		must(b.Insert(key(6, 0), nil))
		must(look.Insert(key(1, 0), nil))
		lookup := func() {
			t.Helper()
			_, err := look.Lookup(key(7, 3), nil)
			must(err)
		}
		lookup()

		floor := func() uint64 { return a.Pool.Floor() }
		p.Sleep(100 * renew) // epochs come to rest
		// the client of the scan hears of an epoch, and the other one does not yet
		b.late.All = true
		p.Sleep(5 * renew)
		before := floor()
		must(look.Delete(key(1, 0))) // it retires the leaf, and wants an epoch
		until(t, p, "an epoch", func() bool { return floor() != before })
		p.Sleep(5 * renew) // and says that it passed the epoch
		lookup()
		stop := poolsim.NewStop(p, 0)
		scan.Env = stop
		over := p.NewEvent()
		p.Go("scan", func() {
			must(scan.Scan(key(0, 0), 100, false, func(_, _ []byte) bool { return true }))
			over.Set()
		})
		stop.Await()

		// The other one, which knows of the epoch before, replaces the node.
		must(b.Insert(key(7, 100), nil))
		must(b.Delete(key(5, 0)))
		must(b.Delete(key(6, 0)))
		b.late.All = false
		now := floor()
		until(t, p, "a second epoch", func() bool { return floor() != now })
		lookup()
		made, word := a.Root.Load(), a.Root.Load().Word(7)
		stop.GoOn()
		over.Wait(env.Forever)
		if a.Root.Load() != made || made.Word(7) != word {
			t.Errorf("the copy of stamp %d leads to %v, and a scan that began before makes it lead to %v", made.Stamp, word.Addr(), a.Root.Load().Word(7).Addr())
		}

		reclaimed := b.Pool.Reclaimed()
		until(t, p, "memory that comes back", func() bool { return b.Pool.Reclaimed() >= reclaimed+3 })
		// the memory of the node is used again, for one below another slot
		must(b.Insert(key(9, 1), nil))
		must(b.Insert(key(9, 3), nil))
		lookup()
		must(look.Insert(key(7, 77), []byte("mine")))
		if _, err := b.Lookup(key(7, 77), nil); errors.Is(err, index.ErrNotFound) {
			t.Errorf("what was inserted where an old word led: %v", err)
		}
		_, err := b.Check()
		must(err)
	}))
}
