package indexsim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indexsim"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestLoadWhoseSourceWaits: a bulk load takes memory that was used before, whose nodes still say
// that they are dead, and its source waits in the middle. No sweep takes what is not written yet,
// and hands it out a second time; and no memory of anybody waits for the source.
func TestLoadWhoseSourceWaits(t *testing.T) {
	eachDesign(t, func(t *testing.T, d index.Design, _ bool) {
		for _, long := range []bool{false, true} {
			loadWhoseSourceWaits(t, d, long)
		}
	})
}

func loadWhoseSourceWaits(t *testing.T, d index.Design, long bool) {
	const pairs, nodes, nodeBytes = 60, 120, 512
	o := index.Options{Uint64: true, MaxValueBytes: 64, NodeBytes: nodeBytes, CacheBytes: indexsim.RoomyCache}
	if long {
		o.InlineBytes = 1
	}
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 20_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Chunks: 16, RenewEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := func(n int) []byte { return []byte{byte(n), 0, 0, 0, 0, 0, 0, byte(n)} }
	value := func(n int) []byte { return fmt.Appendf(nil, "%040d", n) }
	must(w.Run(func(p *simenv.Process) {
		pl, err := c.Open(p)
		must(err)
		x, err := d.Open(pl, o)
		must(err)
		var sizes []int
		for size := 64; size <= nodeBytes; size += 64 {
			sizes = append(sizes, size)
		}
		must(indexsim.UseMemory(pl, sizes, nodes))
		must(x.BulkLoad(func(yield func(key, value []byte) bool) error {
			for n := range pairs {
				if n == pairs-1 { // it waits for this one
					for range 4 {
						if !indexsim.Garbage(pl, time.Second) {
							t.Error("memory that was given up waits for the source of a bulk load")
						}
					}
				}
				if !yield(key(n), value(n)) {
					break
				}
			}
			return nil
		}, 1))
		// Others use what comes back.
		must(indexsim.UseMemory(pl, sizes, 2*nodes))
		s, err := x.Session()
		must(err)
		lost := 0
		for n := range pairs {
			if v, err := s.Lookup(key(n), nil); err != nil || string(v) != string(value(n)) {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("%d of %d pairs are lost", lost, pairs)
		}
		_, err = x.(index.Checker).Check()
		must(err)
	}))
}
