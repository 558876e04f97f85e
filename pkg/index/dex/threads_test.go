package dex

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestOnThreads: sessions on real threads, where any two instructions may interleave, with a cache
// that is too small, of the paper's policy. Each session has keys that nobody else changes, between
// those of the others, so it knows each answer. It uses its buffers again as soon as an operation
// has ended.
func TestOnThreads(t *testing.T) {
	for _, c := range []struct {
		name     string
		provider string
		off      []string
		keys     int // of each session
	}{
		{"paper", "shm", []string{"frequencies", "entries"}, 400},
		{"oneQueue", "shm", []string{"frequencies", "entries", "coolingMap", "offloading"}, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			switches := map[string]bool{}
			for _, name := range c.off {
				switches[name] = false
			}
			onThreads(t, c.provider, switches, c.keys)
		})
	}
}

func onThreads(t *testing.T, provider string, switches map[string]bool, keys int) {
	const sessions, each = 12, 2000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	x, _ := openedBy(t, provider, index.Options{Uint64: true, MaxValueBytes: 60, InlineBytes: 24, NodeBytes: 512, CacheBytes: 48 << 10, Switches: switches})
	g, pairs := env.NewWaitGroup(env.Real()), make([]int, sessions)
	for i := range sessions {
		s, err := x.Session()
		mustDo(t, err)
		g.Go("session", func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			model, room := map[string]string{}, make([]byte, 60)
			for range each {
				key := scanKey(uint64(r.IntN(keys)*sessions + i))
				value := room[:1+r.IntN(len(room))>>r.IntN(3)]
				for j := range value {
					value[j] = byte(r.Uint32())
				}
				had, is := model[string(key)]
				var err, want error
				switch r.IntN(6) {
				case 0:
					if err = s.Insert(key, value); is {
						want = index.ErrExists
					}
				case 1:
					if err = s.Update(key, value); !is {
						want = index.ErrNotFound
					}
				case 2:
					if err, value = s.Delete(key), nil; !is {
						want = index.ErrNotFound
					}
				case 3:
					err = s.Modify(key, func(old []byte, found bool) ([]byte, index.Action) {
						if is != found || had != string(old) {
							t.Errorf("key %x has %x, want %x", key, old, had)
						}
						return value, index.Put
					})
				case 4:
					err = s.Upsert(key, value)
				default:
					got, e := s.Lookup(key, nil)
					if is != (e == nil) || is && !bytes.Equal(got, []byte(had)) {
						t.Errorf("session %d, key %x is %x, want %x: %v", i, key, got, had, e)
					}
					continue
				}
				if !errors.Is(err, want) || want == nil && err != nil {
					t.Errorf("session %d, key %x: %v, want %v", i, key, err, want)
					return
				}
				switch {
				case err != nil:
				case value == nil:
					delete(model, string(key))
				default:
					model[string(key)] = string(value)
				}
				for j := range room {
					room[j] = 0xee
				}
			}
			pairs[i] = len(model)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait(env.Forever)
	if n := x.cache.Forgotten(); !x.with.frequencies && n != 0 {
		t.Errorf("%d leaves are cooled, and the cooling map does not have them", n)
	}
	mustDo(t, x.flushAll(false))
	want := 0
	for _, n := range pairs {
		want += n
	}
	if found, err := x.Check(); !t.Failed() && (err != nil || int(found.Pairs) != want) {
		t.Errorf("%d pairs, want %d: %v", found.Pairs, want, err)
	}
}
