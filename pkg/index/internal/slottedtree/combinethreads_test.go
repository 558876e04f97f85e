package slottedtree

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestCombinedOnThreads: on real threads, where any two instructions may interleave. Each session
// has keys that nobody else changes, all in a few leaves, so it knows each answer. The buffers of
// keys and values are used again as soon as an operation has ended. Leaves are split and merged
// meanwhile, and some changes take the lock themselves (Modify).
func TestCombinedOnThreads(t *testing.T) {
	const sessions, keys, each = 12, 6, 2500
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 8, ChunkBytes: 1 << 20})
	x, err := Open(c.Open(t), Config{Options: index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 512, InlineBytes: 20}, Design: index.Design{Name: "test"}, Combine: true})
	fatal(t, err)
	g := env.NewWaitGroup(env.Real())
	pairs := make([]int, sessions)
	for i := range sessions {
		s, err := x.NewSession()
		fatal(t, err)
		g.Go("session", func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			model, key, room := map[string]string{}, number(0), make([]byte, 24)
			for range each {
				copy(key, number(uint64(r.IntN(keys)*sessions+i)))
				value := room[:1+r.IntN(len(room))>>r.IntN(3)]
				for j := range value {
					value[j] = byte(r.Uint32())
				}
				var err, want error
				if r.IntN(16) == 0 {
					err = s.Modify(key, func(old []byte, found bool) ([]byte, index.Action) {
						if had, is := model[string(key)]; is != found || had != string(old) {
							t.Errorf("key %x has %x, want %x", key, old, had)
						}
						return value, index.Put
					})
					model[string(key)] = string(value)
				} else {
					err, want = perform(s, mode(r.IntN(int(remove)+1)), key, value, model)
				}
				if !errors.Is(err, want) || want == nil && err != nil {
					t.Errorf("session %d, key %x: %v, want %v", i, key, err, want)
					return
				}
				for j := range room {
					room[j] = 0xee
				}
				if r.IntN(8) == 0 {
					got, err := s.Lookup(key, nil)
					if want, is := model[string(key)]; is != (err == nil) || is && !bytes.Equal(got, []byte(want)) {
						t.Errorf("session %d, key %x is %x, want %x: %v", i, key, got, want, err)
					}
				}
			}
			pairs[i] = len(model)
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
	if found, err := x.Check(); !t.Failed() && (err != nil || int(found.Pairs) != want) {
		t.Errorf("%d pairs, want %d: %v", found.Pairs, want, err)
	}
	if n := x.Stats().Combined; n == 0 {
		t.Error("no session has carried out the change of another one")
	}
	t.Log(fmt.Sprint(x.Stats().Combined), "changes were carried out for others")
	fatal(t, x.Close())
}
