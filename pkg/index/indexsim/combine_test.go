package indexsim_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// together are changes that sessions of one client wait to make while another one has the lock: the
// first of them carries out all. Some are of the same key.
var together = []struct {
	verb string
	n    int    // of the key
	old  string // "" = it is not there
	new  string // in the end; "" = it is not there
	also []string
}{
	{"upsert", 3, "old 3", "one, of the key's two", []string{"two"}},
	{"update", 4, "old 4", "new 4", nil},
	{"insert", 5, "", "new 5", nil},
	{"delete", 6, "old 6", "", nil},
	{"upsert", 3, "old 3", "two", []string{"one, of the key's two"}},
	{"delete", 7, "old 7", "", []string{"again"}},
	{"insert", 7, "old 7", "again", []string{""}},
	{"insert", 8, "", "new 8, inserted and removed", []string{""}},
	{"delete", 8, "", "", []string{"new 8, inserted and removed"}},
}

// TestCrashWhileCombining kills a client after every part of every request of a list that carries
// out the changes of many sessions. Each key has a value that its operations may have left, the
// last one where all were answered, and the structure is whole.
func TestCrashWhileCombining(t *testing.T) {
	d, err := index.Lookup("sherman")
	if err != nil {
		t.Fatal(err)
	}
	crashes := 0
	for seed := range uint64(12) {
		for part := 1; ; part++ {
			if crashTogether(t, d, seed, part) {
				break
			}
			crashes++
		}
	}
	t.Logf("%d crashes", crashes)
}

// crashTogether does one run and reports whether the client had ended before its time to die.
func crashTogether(t *testing.T, d index.Design, seed uint64, part int) (ended bool) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 5_000_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: seed%2 == 0, WholeWrite: 8}, Tear: 1 + int(seed)%4, Reorder: true, Delay: 100, Gap: 100,
		Faults: []sim.Fault{{Kind: sim.Crash, Process: "victim", Part: part}},
	}
	cl, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 16, Lease: crashLease, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		t.Fatal(err)
	}
	answered := make([]bool, len(together))
	open := func(p *simenv.Process) (index.Index, error) {
		pl, err := cl.Open(p)
		if err != nil {
			return nil, err
		}
		// one leaf has all
		return d.Open(pl, index.Options{MaxKeyBytes: 16, MaxValueBytes: 40, NodeBytes: 2048})
	}
	err = w.Run(func(p *simenv.Process) {
		x, err := open(p)
		if err == nil {
			err = fillTogether(x)
		}
		if err != nil {
			w.Fail(fmt.Errorf("prepare: %w", err))
			return
		}
		victim, over := w.NewProcess("victim"), p.NewEvent()
		victim.Go("main", func() {
			defer over.Set()
			x, err := open(victim)
			if err == nil {
				err = changeTogether(victim, x, answered)
			}
			if err == nil && x.Stats().Combined < uint64(len(together))/2 {
				err = fmt.Errorf("only %d changes were carried out for others", x.Stats().Combined)
			}
			if err != nil {
				w.Fail(fmt.Errorf("the victim, alive: %w", err))
			}
		})
		over.Wait(env.Forever)
		ended = !victim.Dead()
		p.Sleep(2 * crashLease)
		if x, err = open(p); err == nil {
			err = judgeTogether(x, answered)
		}
		if err != nil {
			w.Fail(err)
		}
	})
	if err != nil {
		t.Fatalf("seed %d, dead after part %d: %v", seed, part, err)
	}
	return ended
}

// fillTogether inserts what is there before.
func fillTogether(x index.Index) error {
	s, err := x.Session()
	if err != nil {
		return err
	}
	for _, c := range together {
		if c.old != "" {
			err = errors.Join(err, s.Upsert([]byte(crashKey(c.n)), []byte(c.old)))
		}
	}
	return errors.Join(err, s.Upsert([]byte(crashKey(0)), []byte("held")))
}

// changeTogether makes all changes, while a session has the lock that they need until they wait.
func changeTogether(p *simenv.Process, x index.Index, answered []bool) error {
	holder, err := x.Session()
	if err != nil {
		return err
	}
	g := env.NewWaitGroup(p)
	errs := make([]error, len(together))
	sessions := make([]index.Session, len(together))
	for i := range sessions {
		if sessions[i], err = x.Session(); err != nil {
			return err
		}
	}
	err = holder.Modify([]byte(crashKey(0)), func([]byte, bool) ([]byte, index.Action) {
		for i, c := range together {
			g.Go("waiter", func() {
				s, key, value := sessions[i], []byte(crashKey(c.n)), []byte(c.new)
				switch c.verb {
				case "upsert":
					errs[i] = s.Upsert(key, value)
				case "update":
					errs[i] = s.Update(key, value)
				case "insert":
					errs[i] = s.Insert(key, value)
				case "delete":
					errs[i] = s.Delete(key)
				}
				answered[i] = true
			})
			p.Sleep(50 * time.Microsecond) // until it waits
		}
		return nil, index.Keep
	})
	g.Wait(env.Forever)
	return errors.Join(append(errs, err)...)
}

// judgeTogether looks at what is left.
func judgeTogether(x index.Index, answered []bool) error {
	s, err := x.Session()
	if err != nil {
		return err
	}
	for i, c := range together {
		got, err := s.Lookup([]byte(crashKey(c.n)), nil)
		if err != nil && !errors.Is(err, index.ErrNotFound) {
			return err
		}
		may := append([]string{c.new}, c.also...)
		if !answered[i] {
			may = append(may, c.old)
		}
		if !slices.Contains(may, string(got)) {
			return fmt.Errorf("%s is %q after %s, answered %v; it may be one of %q", crashKey(c.n), got, c.verb, answered[i], may)
		}
	}
	for _, c := range together {
		if err := s.Upsert([]byte(crashKey(c.n)), []byte("after")); err != nil {
			return err
		}
	}
	_, err = x.(index.Checker).Check()
	return err
}
