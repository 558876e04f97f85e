package combinetest

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
)

// mostValue is how long values are that OnThreads writes.
const mostValue = 24

// OnThreads runs sessions of x, which is empty, on real threads, where any two instructions may
// interleave. Each has keys that nobody else changes, all in a few leaves, so it knows each answer.
// The buffers of keys and values are used again as soon as an operation has ended. Leaves are split
// and merged meanwhile, and some changes acquire the lock themselves (Modify). Each session does so
// many operations, and more while none was made for another session.
func OnThreads(t *testing.T, x index.Index, each int, keyOf func(n int) []byte) {
	const sessions, keys = 12, 6
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g := env.NewWaitGroup(env.Real())
	pairs := make([]int, sessions)
	for i := range sessions {
		s, err := x.Session()
		if err != nil {
			t.Fatal(err)
		}
		g.Go("session", func() {
			w := thread{t: t, s: s, n: i, random: rand.New(rand.NewPCG(seed, uint64(i))), model: map[string]string{}, key: keyOf(0)}
			for n := 0; n < each || n < 20*each && x.Stats().Combined == 0; n++ {
				copy(w.key, keyOf(w.random.IntN(keys)*sessions+i))
				if !w.change() {
					return
				}
				if w.random.IntN(8) == 0 {
					w.lookUp()
				}
			}
			pairs[i] = len(w.model)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait(env.Forever)
	want := 0
	for _, n := range pairs {
		want += n
	}
	if found, err := x.(index.Checker).Check(); !t.Failed() && (err != nil || int(found.Pairs) != want) {
		t.Errorf("%d pairs, want %d: %v", found.Pairs, want, err)
	}
	if n := x.Stats().Combined; n == 0 {
		t.Error("no session has carried out the change of another one")
	}
	t.Log(x.Stats().Combined, "changes were carried out for others")
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

// thread is one session of OnThreads.
type thread struct {
	t      *testing.T
	s      index.Session
	n      int
	random *rand.Rand
	model  map[string]string
	key    []byte
	room   [mostValue]byte
}

// change makes a change of the key, and reports whether its answer is right.
func (w *thread) change() bool {
	o := Operation{combine.Mode(w.random.IntN(int(combine.Delete) + 1)), w.key, w.room[:1+w.random.IntN(mostValue)>>w.random.IntN(3)]}
	for j := range o.Value {
		o.Value[j] = byte(w.random.Uint32())
	}
	var err, want error
	if w.random.IntN(16) == 0 {
		err = w.s.Modify(o.Key, func(old []byte, found bool) ([]byte, index.Action) {
			if had, is := w.model[string(o.Key)]; is != found || had != string(old) {
				w.t.Errorf("key %x has %x, want %x", o.Key, old, had)
			}
			return o.Value, index.Put
		})
		w.model[string(o.Key)] = string(o.Value)
	} else {
		err, want = o.perform(w.s, w.model)
	}
	for j := range w.room {
		w.room[j] = 0xee
	}
	if !errors.Is(err, want) || want == nil && err != nil {
		w.t.Errorf("session %d, key %x: %v, want %v", w.n, o.Key, err, want)
		return false
	}
	return true
}

func (w *thread) lookUp() {
	got, err := w.s.Lookup(w.key, nil)
	if want, is := w.model[string(w.key)]; is != (err == nil) || is && string(got) != want {
		w.t.Errorf("session %d, key %x is %x, want %x: %v", w.n, w.key, got, want, err)
	}
}
