package memserver

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// TestWideLedger: a ledger of several megabytes changes while there is a copy, at both ends, all
// over, and by more than one item holds. Then the copy is given up, and another one gets it.
func TestWideLedger(t *testing.T) {
	const chunks, client = 500_000, 60_000
	l := must(ledger.New(ledger.Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: chunks, Slots: 4, Locks: 64}))
	for _, index := range []string{"rare", "even", "odd"} {
		must(l.Admit(index, chunks/3, 16))
	}
	for n := range chunks / 3 * 2 {
		index := []string{"even", "odd"}[n%2]
		if n%40_000 == 25_000 {
			must(l.Allocate("rare", client, 1<<20))
		}
		must(l.Allocate(index, client, 1<<20))
	}
	j := verbs.NewJournal(env.Real(), nil)
	s := &journaled{journal: j, last: l.Append(nil)}
	if len(s.last) < 5*verbs.MaxItem/4 {
		t.Fatalf("the ledger has %d bytes: the test is of nothing", len(s.last))
	}
	c := verbstest.NewCopy(env.Real(), make([]byte, 4096))
	f := c.Join(j)
	send := func() {
		for at := 0; at < len(s.last); at += verbs.MaxItem {
			part := s.last[at:min(at+verbs.MaxItem, len(s.last))]
			if err := j.Begin(nil, verbs.ItemBytes(len(part))); err != nil {
				t.Fatal(err)
			}
			j.Splice(at, 0, part)
			j.Done()
		}
	}
	equal := func(what string, most int, stored []byte) {
		t.Helper()
		before := j.Last()
		if err := s.Save(stored); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if grown := int(j.Last() - before); grown > most {
			t.Errorf("%s takes %d bytes of the stream", what, grown)
		}
		if err := j.Wait(nil, j.Ledger()); err != nil || !bytes.Equal(c.Ledger(), stored) {
			t.Fatalf("%s: the copy has %d bytes of %d, %v", what, len(c.Ledger()), len(stored), err)
		}
	}
	send()
	changes := func(what string, most int, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		equal(what, most, l.Append(nil))
	}
	changes("the first chunk", 128, l.Free("even", client, 1))
	_, err := l.Allocate("even", client, 4096)
	changes("the last one", 128, err)
	changes("a map", ledger.MaxMap+512, l.SwapMap("rare", 0, 1, make([]byte, ledger.MaxMap)))
	_, err = l.Fence("odd", client)
	changes("a fence", 256, err)
	l.Evict("rare")
	changes("what is everywhere", 1024, nil)
	random := rand.NewChaCha8([32]byte{})
	for _, index := range []string{"even", "odd"} { // in one change, which no call makes
		b := make([]byte, ledger.MaxMap)
		random.Read(b)
		if err := l.SwapMap(index, 0, 1, b); err != nil {
			t.Fatal(err)
		}
	}
	next := l.Append(nil)
	if err := s.Save(next); err != nil {
		t.Fatalf("what is never refused is: %v", err)
	}
	if f.Err() == nil || j.Ready(j.Ledger()) {
		t.Error("the copy of before lacks a change, and counts")
	}
	f.Drop()
	c = verbstest.NewCopy(env.Real(), make([]byte, 4096))
	c.From(j.Last())
	c.Join(j)
	send()
	equal("behind it", 128, next)
}
