package sherman_test

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestReplacedValuesEmptyNoCache: the memory of values that lie in blocks comes back, and no
// client's cache of inner nodes is emptied for it. That of leaves, to which these nodes lead,
// empties them.
func TestReplacedValuesEmptyNoCache(t *testing.T) {
	const keys = 400
	c := pooltest.New(t, pooltest.Options{Chunks: 32, RenewEvery: time.Millisecond})
	o := index.Options{Uint64: true, MaxValueBytes: 500, InlineBytes: 16}
	owner, other := c.Open(t), c.Open(t)
	var sessions []index.Session
	var indexes []index.Index
	for _, p := range []func() (index.Index, error){
		func() (index.Index, error) { return sherman.Open(owner, o) },
		func() (index.Index, error) { return sherman.Open(other, o) },
	} {
		x, err := p()
		must(t, err)
		s, err := x.Session()
		must(t, err)
		t.Cleanup(func() { s.Close(); x.Close() })
		indexes, sessions = append(indexes, x), append(sessions, s)
	}
	value := make([]byte, 500)
	for i := range keys {
		must(t, sessions[0].Insert(key(i), value))
	}
	floors := [2]uint64{owner.Floor(), other.Floor()}
	// Both replace values: blocks of the first one's chunks are found by its sweep, too.
	deadline := time.Now().Add(time.Minute)
	for n := 0; owner.Reclaimed() < 3*keys || other.Reclaimed() == 0; n++ {
		must(t, sessions[n%2].Update(key(n*7%keys), value[:400+n%100]))
		if time.Now().After(deadline) {
			t.Fatalf("%d and %d blocks came back", owner.Reclaimed(), other.Reclaimed())
		}
	}
	if now := [2]uint64{owner.Floor(), other.Floor()}; now != floors {
		t.Errorf("floors were %v, and are %v when %d and %d blocks had come back", floors, now, owner.Reclaimed(), other.Reclaimed())
	}
	for i := range keys {
		must(t, sessions[0].Delete(key(i)))
	}
	for other.Floor() == floors[1] {
		if _, err := sessions[1].Lookup(key(0), nil); err != index.ErrNotFound {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("leaves were merged, and the floor stays")
		}
	}
	if _, err := indexes[1].(index.Checker).Check(); err != nil {
		t.Error(err)
	}
}
