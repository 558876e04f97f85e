package dolphin

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestCellInPart: a cell of which any words are those of another value is not taken for any value,
// and its key is neither there nor missing: the leaf has to be READ again.
func TestCellInPart(t *testing.T) {
	key := "ccc and more than"
	before, _ := newLeaf(t, leafOptions[1], "bbb", key, "ddd")
	tag := before.lay.tagOf([]byte(key))
	f, _ := before.find([]byte(key), tag)
	after, _ := newLeaf(t, leafOptions[1], "bbb", key, "ddd")
	after.putCell(f.cursor, f.w, []byte("abc"), false)
	at, n := after.cellAt(f.cursor, f.w), f.w.room()
	if n != 2 {
		t.Fatal(n, "words of a cell")
	}
	for there := range 1 << n {
		mixed, _ := newLeaf(t, leafOptions[1], "bbb", key, "ddd")
		for i := range n {
			if there>>i&1 != 0 {
				mixed.setWord(at+i*wordBytes, after.word(at+i*wordBytes))
			}
		}
		whole := there == 0 || there == 1<<n-1
		if f, damaged := mixed.find([]byte(key), tag); damaged || f.is != whole || f.again == whole {
			t.Errorf("%b of the words: %+v, damaged %v", there, f, damaged)
		}
		s := Session{lay: mixed.lay}
		if again, damaged := s.gatherAlive(mixed); damaged || again == whole || len(s.pairs) == 3 != whole {
			t.Errorf("%b of the words: %d pairs, again %v, damaged %v", there, len(s.pairs), again, damaged)
		}
		for state, is := range map[int]bool{dead: false, moved: true} { // whatever its cell is
			mixed.setWord(f.at, uint64(f.w.withState(state)))
			if f, _ := mixed.find([]byte(key), tag); f.is || f.again != is {
				t.Errorf("state %d: %+v", state, f)
			}
		}
	}
}

// TestCellThatStaysInPart: a cell that has no sum under the lock word is damage, and the leaf is
// named. It is not taken for a key that is missing, and other keys of the leaf are served on.
func TestCellThatStaysInPart(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	x, err := open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 40, NodeBytes: 512})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	s, err := x.newSession()
	must(err)
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	for n := range uint64(4) {
		must(s.Insert(key(n), []byte("a value")))
	}
	s.Begin()
	_, err = s.find(key(1), false)
	must(err)
	f, _ := s.leaf.find(key(1), s.lay.tagOf(key(1)))
	a := s.leaf.at
	s.End()
	word := family{t, c}.memory(a)[s.leaf.cellAt(f.cursor, f.w)+cellHead:]
	word[0]++
	must(s.Update(key(2), []byte("another")))
	if _, err := x.Check(); err == nil || !strings.Contains(err.Error(), a.String()) {
		t.Errorf("check: %v", err)
	}
	for what, do := range map[string]func() error{
		"insert": func() error { return s.Insert(key(1), nil) },
		"upsert": func() error { return s.Upsert(key(1), nil) },
		"update": func() error { return s.Update(key(1), nil) },
		"delete": func() error { return s.Delete(key(1)) },
		"modify": func() error {
			return s.Modify(key(1), func([]byte, bool) ([]byte, index.Action) { return nil, index.Put })
		},
		"split": func() error {
			for n := uint64(10); n < 30; n++ {
				if err := s.Insert(key(n), make([]byte, 40)); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		if err := do(); !errors.Is(err, index.ErrFormat) || !strings.Contains(err.Error(), a.String()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.SetLimit(10 * time.Millisecond)
	if _, err := s.Lookup(key(1), nil); !errors.Is(err, index.ErrTimeout) || !strings.Contains(err.Error(), a.String()) {
		t.Errorf("lookup: %v", err)
	}
	word[0]--
	if v, err := s.Lookup(key(1), nil); err != nil || string(v) != "a value" {
		t.Errorf("%q, %v", v, err)
	}
}

// TestOfferOfAnotherLeaf: an old copy may lead a session to a leaf that its key does not belong to.
// Whoever has that leaf's lock word does not make the change.
func TestOfferOfAnotherLeaf(t *testing.T) {
	l, _ := newLeaf(t, leafOptions[1], "bbb") // from "a" on, and below "x"
	s := Session{lay: l.lay, leaf: *l}
	g := group{s: &s}
	for key, want := range map[string]bool{"Z": false, "a": true, "bbb": true, "w": true, "x": false, "y": false} {
		if _, is, ok := g.Find([]byte(key)); ok != want || is != (key == "bbb") {
			t.Errorf("%q: is there %v, may be changed %v", key, is, ok)
		}
	}
}

// TestNoMemoryTakesNoOffers: a session that changes a leaf where it is, as there is no memory for
// others in its place, makes no change but its own: the leaf may be shut.
func TestNoMemoryTakesNoOffers(t *testing.T) {
	s := Session{inPlace: index.ErrPoolFull} // it would ask who waits
	if done, err := s.combine(&combine.Change{}); done || err != nil {
		t.Error(done, err)
	}
}

// TestRecordCutShort: a client dies after every part of an insert whose WRITE can be cut short.
// Once it is fenced the key is there as a whole or not at all, though nobody changes the leaf.
func TestRecordCutShort(t *testing.T) {
	died := 0
	for seed := range uint64(3) {
		for part := 1; cutShort(t, seed, part); part++ {
			died++
		}
	}
	if died < 40 {
		t.Errorf("clients died after %d parts", died)
	}
}

// cutShort reports whether the client died before its insert had ended.
func cutShort(t *testing.T, seed uint64, part int) (died bool) {
	key, value := []byte("c"), []byte("a value of several words, of which some are there")
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 200_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: true, WholeWrite: 8}, Tear: 8, Reorder: true, Delay: 100, Gap: 100, HoldFrozen: true,
		Faults: []sim.Fault{{Kind: sim.Crash, Process: "victim", Part: part}},
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 64, Lease: shareLease, Fabric: sim.Options{Plan: plan}})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("seed %d, part %d: %v", seed, part, err)
		}
	}
	must(err)
	open := func(p *simenv.Process) *Session {
		pl, err := c.Open(p)
		must(err)
		x, err := open(pl, index.Options{MaxKeyBytes: 8, MaxValueBytes: 60, CacheBytes: 64 << 10})
		must(err)
		s, err := x.newSession()
		must(err)
		return s
	}
	must(w.Run(func(p *simenv.Process) {
		s := open(p)
		must(s.Insert([]byte("b"), value))
		victim, over := w.NewProcess("victim"), p.NewEvent()
		victim.Go("main", func() {
			defer over.Set()
			must(open(victim).Insert(key, value))
		})
		over.Wait(env.Forever)
		died = victim.Dead()
		p.Sleep(3 * shareLease)
		s.SetLimit(shareLease)
		got, err := s.Lookup(key, nil)
		if errors.Is(err, index.ErrNotFound) && died {
			err, got = nil, value
		}
		if must(err); string(got) != string(value) {
			t.Errorf("seed %d, part %d: %q", seed, part, got)
		}
	}))
	return died
}
