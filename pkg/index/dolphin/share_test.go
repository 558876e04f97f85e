package dolphin

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

var sharedOptions = index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256}

// openShared opens an index with some keys, in a few leaves, from a client of its own.
func openShared(t *testing.T, c *pooltest.Cluster, keys int) (*Tree, *Session) {
	t.Helper()
	x, err := open(c.Open(t), sharedOptions)
	must(t, err)
	s := sharing(t, x)
	for i := range keys {
		must(t, s.Insert(sharedKey(i), sharedValue(i)))
	}
	return x, s
}

func sharing(t *testing.T, x *Tree) *Session {
	t.Helper()
	s, err := x.newSession()
	must(t, err)
	return s
}

func sharedKey(i int) []byte   { return fmt.Appendf(nil, "key%05d", i) }
func sharedValue(i int) []byte { return fmt.Appendf(nil, "val%05d", i) }

// leafOf is where the leaf of a key lies, and what its forward word says.
func leafOf(t *testing.T, s *Session, key []byte) (a pool.Addr, forward uint64) {
	t.Helper()
	s.Begin()
	defer s.End()
	there, err := s.find(key, false)
	must(t, err)
	if !there {
		t.Fatal("there is no leaf")
	}
	return s.leaf.at, s.leaf.forward()
}

// stays makes a session share the leaf of a key, with an update that is under way.
func stays(t *testing.T, s *Session, key []byte) (leave func(value []byte)) {
	t.Helper()
	a, _ := leafOf(t, s, key)
	s.Begin()
	r, f, err := s.enter(a, key, 8)
	must(t, err)
	if r != right || !f.is {
		t.Fatalf("leaf %v is %d for a shared update: %+v", a, r, f)
	}
	return func(value []byte) {
		t.Helper()
		must(t, s.leave(true, &f, value))
		s.End()
	}
}

// TestSharersAreWaitedFor: what needs a leaf to itself waits for an update that shares it, and
// opens the leaf again where it waits in vain. Afterwards it finds the update's value.
func TestSharersAreWaitedFor(t *testing.T) {
	const keys, shared = 40, 20
	beside := shared + 1 // a key of the same leaf
	fill := func(s *Session) error {
		for i := range 12 { // each time the value has another length, and takes a record
			if err := s.Update(sharedKey(beside), sharedValue(beside)[:1+i%8]); err != nil {
				return err
			}
		}
		return s.Update(sharedKey(beside), sharedValue(beside))
	}
	merge := func(s *Session, key []byte) error { // the leaf of a key with the one behind it
		there, err := s.lock(key, true)
		if err != nil || !there {
			return err
		}
		return s.mergeRight()
	}
	for name, c := range map[string]struct {
		dies bool // the holder of the leaf's lock word
		do   func(s *Session) error
	}{
		"replaced":              {do: fill},
		"replaced after deaths": {dies: true, do: func(s *Session) error { return s.Delete(sharedKey(beside)) }},
		"merged":                {do: func(s *Session) error { return merge(s, sharedKey(shared)) }},
		"merged with what is before it": {do: func(s *Session) error {
			there, err := s.find(sharedKey(shared), true)
			if err != nil || !there {
				return err
			}
			low := bytes.Clone(s.leaf.low)
			if _, err := s.SeekBound(low, true); err != nil {
				return err
			}
			if _, err := s.SeekBefore(low, true); err != nil {
				return err
			}
			if err := s.Read(s.Last().Word.Addr(), s.room); err != nil {
				return err
			}
			if !s.leaf.open(s.room, s.Last().Word.Addr()) {
				return errors.New("no leaf lies before it")
			}
			return merge(s, bytes.Clone(s.leaf.low))
		}},
		"modified": {do: func(s *Session) error {
			return s.Modify(sharedKey(shared), func(old []byte, exists bool) ([]byte, index.Action) {
				if !exists || string(old) != "VAL 0001" {
					return nil, index.Remove
				}
				return old, index.Put
			})
		}},
	} {
		for _, inVain := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/in vain=%v", name, inVain), func(t *testing.T) {
				cluster := pooltest.New(t, pooltest.Options{Servers: 1})
				x, s := openShared(t, cluster, keys)
				sharer, other := sharing(t, x), sharing(t, x)
				at, _ := leafOf(t, s, sharedKey(shared))
				beside = shared + 1
				if a, _ := leafOf(t, s, sharedKey(beside)); a != at {
					beside = shared - 1
				}
				leave := stays(t, sharer, sharedKey(shared))
				want := uint64(0)
				if c.dies {
					y, err := open(cluster.Open(t), sharedOptions)
					must(t, err)
					dead := sharing(t, y)
					dead.Begin()
					_, err = dead.lockAt(at, sharedKey(shared), true, nil)
					must(t, err)
					must(t, cluster.Fence(y.Pool.Client()))
					want = shut
				}
				do := func() error {
					other.Begin()
					defer other.End()
					return c.do(other)
				}
				forward := func() uint64 { _, fw := leafOf(t, s, sharedKey(shared)); return fw }
				if inVain {
					other.PS.SetLimit(20 * time.Millisecond)
					if err := do(); !errors.Is(err, pool.ErrTimeout) {
						t.Fatalf("beside an update that shares the leaf: %v", err)
					}
					if fw := forward(); fw != want {
						t.Errorf("its forward word is %#x afterwards, want %d", fw, want)
					}
					leave([]byte("VAL 0001"))
					other.PS.SetLimit(verbs.DefaultLimit)
					must(t, do())
				} else {
					done := make(chan error)
					go func() { done <- do() }()
					for start := time.Now(); forward() != shut; runtime.Gosched() {
						if time.Since(start) > 5*time.Second {
							t.Fatal("the leaf is not shut")
						}
					}
					leave([]byte("VAL 0001"))
					must(t, <-done)
				}
				got, err := s.Lookup(sharedKey(shared), nil)
				must(t, err)
				if string(got) != "VAL 0001" {
					t.Errorf("the value is %q, the update's is lost", got)
				}
				for i := range keys {
					if i != shared && !(c.dies && i == beside) {
						if got, err := s.Lookup(sharedKey(i), nil); err != nil || !bytes.Equal(got, sharedValue(i)) {
							t.Errorf("%s is %q, %v", sharedKey(i), got, err)
						}
					}
				}
				_, err = x.Check()
				must(t, err)
			})
		}
	}
}

// TestLateSharers: an update that has shared a leaf for longer than it may take changes nothing,
// and says so.
func TestLateSharers(t *testing.T) {
	x, s := openShared(t, pooltest.New(t, pooltest.Options{Servers: 1}), 5)
	a, _ := leafOf(t, s, sharedKey(3))
	late := sharing(t, x)
	must(t, late.Update(sharedKey(2), sharedValue(2))) // it has an intent slot
	late.PS.SetLimit(50 * time.Millisecond)
	late.Begin()
	_, f, err := late.enter(a, sharedKey(3), 8)
	must(t, err)
	for late.PS.Late() == nil {
		runtime.Gosched()
	}
	if err := late.leave(true, &f, sharedValue(4)); !errors.Is(err, pool.ErrTimeout) {
		t.Errorf("the late update ends with %v", err)
	}
	late.End()
	got, err := s.Lookup(sharedKey(3), nil)
	must(t, err)
	if !bytes.Equal(got, sharedValue(3)) {
		t.Errorf("the value is %q", got)
	}
	late.PS.SetLimit(verbs.DefaultLimit)
	must(t, late.Update(sharedKey(3), sharedValue(4)))
}

// TestUpdatesBesideALock: updates of words do not wait for the lock word of their leaf; others do,
// and so does each where servers have no presence words, or with the switch off.
func TestUpdatesBesideALock(t *testing.T) {
	for name, c := range map[string]struct {
		o      pooltest.Options
		off    bool
		update func(s *Session) error
		waits  bool
	}{
		"update":                  {update: func(s *Session) error { return s.Update(sharedKey(3), sharedValue(4)) }},
		"upsert of what is there": {update: func(s *Session) error { return s.Upsert(sharedKey(3), sharedValue(4)) }},
		"update of what is not there": {update: func(s *Session) error {
			if err := s.Update([]byte("key0000a"), sharedValue(4)); err != index.ErrNotFound {
				return fmt.Errorf("the update ends with %w", err)
			}
			return nil
		}},
		"value of another length": {waits: true, update: func(s *Session) error { return s.Update(sharedKey(3), []byte("short")) }},
		"no presence words":       {o: pooltest.Options{NoPresence: true}, waits: true, update: func(s *Session) error { return s.Update(sharedKey(3), sharedValue(4)) }},
		"switch off":              {off: true, waits: true, update: func(s *Session) error { return s.Update(sharedKey(3), sharedValue(4)) }},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Servers = 1
			x, s := openShared(t, pooltest.New(t, c.o), 5)
			x.with.ternaryLock = !c.off
			holder := sharing(t, x)
			a, _ := leafOf(t, s, sharedKey(3))
			must(t, s.Upsert(sharedKey(2), sharedValue(2)))
			holder.Begin()
			_, err := holder.lockAt(a, sharedKey(3), true, nil)
			must(t, err)
			if c.waits { // else it takes as long as it takes on a busy machine
				s.PS.SetLimit(30 * time.Millisecond)
			}
			switch err := c.update(s); {
			case c.waits && !errors.Is(err, pool.ErrTimeout):
				t.Errorf("beside the lock word's holder: %v", err)
			case !c.waits:
				must(t, err)
			}
			s.PS.SetLimit(pool.DefaultLimit)
			must(t, holder.Unlock(nil))
			holder.End()
			must(t, c.update(s))
		})
	}
}

// TestForwardWordsAreNotShared: no update shares a leaf whose forward word says anything.
func TestForwardWordsAreNotShared(t *testing.T) {
	x, s := openShared(t, pooltest.New(t, pooltest.Options{Servers: 1}), 5)
	other := sharing(t, x)
	a, _ := leafOf(t, s, sharedKey(3))
	for _, fw := range []uint64{shut, gone, merging, uint64(a)} {
		other.Begin()
		_, err := other.lockAt(a, sharedKey(3), true, nil)
		must(t, err)
		other.setForward(fw)
		must(t, other.PS.Post())
		s.Begin()
		r, f, err := s.enter(a, sharedKey(3), 8)
		must(t, err)
		if r == right {
			t.Errorf("a leaf with forward word %#x is shared", fw)
		}
		must(t, s.leave(false, &f, nil))
		s.End()
		other.setForward(0)
		must(t, other.publish())
		other.End()
	}
	got, err := s.Lookup(sharedKey(3), nil)
	must(t, err)
	if !bytes.Equal(got, sharedValue(3)) {
		t.Errorf("the value is %q", got)
	}
}

// TestModifyWithoutPresenceWords: a modification tells of the value where no leaf is shared.
func TestModifyWithoutPresenceWords(t *testing.T) {
	_, s := openShared(t, pooltest.New(t, pooltest.Options{NoPresence: true}), 5)
	must(t, s.Modify(sharedKey(3), func(old []byte, exists bool) ([]byte, index.Action) {
		if !exists || !bytes.Equal(old, sharedValue(3)) {
			t.Errorf("the value is %q, %v", old, exists)
		}
		return nil, index.Keep
	}))
}

// keepsSlots is of clients that give no idle intent slot back, however long a test takes.
var keepsSlots = pooltest.Options{Servers: 1, RenewEvery: time.Minute}

// TestSharersWithoutIntentSlots: a session that gets no intent slot updates under the lock word.
func TestSharersWithoutIntentSlots(t *testing.T) {
	x, s := openShared(t, pooltest.New(t, keepsSlots), 5)
	must(t, s.Update(sharedKey(3), sharedValue(4)))
	for range 300 {
		s := sharing(t, x)
		must(t, s.Update(sharedKey(3), sharedValue(5)))
		if s.noIntent > 0 {
			before := s.PS.Counters()
			must(t, s.Update(sharedKey(3), sharedValue(6)))
			d := s.PS.Counters().Sub(&before)
			if d.RoundTrips != 2 || d.Atomics() != 2 {
				t.Errorf("an update costs %+v", d)
			}
			return
		}
	}
	t.Error("every session has an intent slot")
}

// TestUpsertsThatArePredicted: an upsert takes two round trips where it is as the one before, and
// one more where a key is missing that was expected.
func TestUpsertsThatArePredicted(t *testing.T) {
	_, s := openShared(t, pooltest.New(t, keepsSlots), 5)
	must(t, s.Update(sharedKey(1), sharedValue(9))) // the session gets an intent slot
	for _, u := range []struct {
		key     int
		trips   uint64
		atomics uint64
	}{{1, 2, 2}, {2, 2, 0}, {1, 2, 0}, {7, 4, 2}, {8, 2, 2}, {8, 2, 2}, {7, 2, 0}} {
		before := s.PS.Counters()
		must(t, s.Upsert(sharedKey(u.key), sharedValue(9)))
		d := s.PS.Counters().Sub(&before)
		if d.RoundTrips != u.trips || d.Atomics() != u.atomics {
			t.Errorf("upsert of key %d: %d round trips and %d atomics, want %d and %d", u.key, d.RoundTrips, d.Atomics(), u.trips, u.atomics)
		}
		got, err := s.Lookup(sharedKey(u.key), nil)
		must(t, err)
		if !bytes.Equal(got, sharedValue(9)) {
			t.Errorf("the value is %q", got)
		}
	}
}
