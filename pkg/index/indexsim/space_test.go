package indexsim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestSpaceComesBack: of an index that was loaded by one client, and emptied by another one, no
// more is left than the one chunk on each server that either keeps for its next nodes, though a
// reader stood still in the middle of a scan: until it is fenced nothing that it might look at is
// used again, and then everything is.
func TestSpaceComesBack(t *testing.T) {
	eachDesign(t, func(t *testing.T, d index.Design, _ bool) { spaceComesBack(t, d) })
}

func spaceComesBack(t *testing.T, d index.Design) {
	const (
		keys, lease = 20_000, time.Second
		servers     = 2
	)
	kept := 2 * servers // chunks that loader and deleter keep
	if d.Name == "dolphin" {
		kept += 2 // of the root, and of a leaf that took the place of others, which lie elsewhere
	}
	w := simenv.New(simenv.Options{Seed: 3, MaxEvents: 200_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: servers, ChunkBytes: 64 << 10, Chunks: 200, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	key := func(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)*0x9E3779B97F4A7C15) }
	open := func(p *simenv.Process) (index.Index, index.Session) {
		pl, err := c.Open(p)
		if err != nil {
			w.Fail(err)
		}
		x, err := d.Open(pl, index.Options{Uint64: true, MaxValueBytes: 8})
		if err != nil {
			w.Fail(err)
		}
		s, err := x.Session()
		if err != nil {
			w.Fail(err)
		}
		s.SetLimit(time.Minute)
		return x, s
	}
	var loaded, stuck, deleted, after int
	err = w.Run(func(p *simenv.Process) {
		x, loader := open(p)
		fail := func(err error) {
			if err != nil {
				w.Fail(err)
			}
		}
		fail(loader.Insert(key(keys), nil))
		for n := range keys {
			fail(loader.Insert(key(n), key(n)))
		}
		loaded = c.UsedChunks()

		frozen, reads := w.NewProcess("reader"), p.NewEvent()
		frozen.Go("main", func() {
			_, s := open(frozen)
			_ = s.Scan(nil, keys, false, func(_, _ []byte) bool {
				reads.Set()
				frozen.Sleep(time.Microsecond) // it is frozen meanwhile
				return true
			})
		})
		reads.Wait(env.Forever)
		frozen.Freeze()
		since := w.Now()

		deleter, done := w.NewProcess("deleter"), p.NewEvent()
		deleter.Go("main", func() {
			_, s := open(deleter)
			for n := range keys {
				fail(s.Delete(key(n)))
				if n%64 == 0 && w.Now() < since+lease*3/4 { // then it may be fenced
					stuck, deleted = c.UsedChunks(), n
				}
			}
			done.Set()
			deleter.Sleep(time.Hour) // it owns nothing, but has a part in the epochs
		})
		done.Wait(env.Forever)
		for range 200 {
			p.Sleep(lease)
			if after = c.UsedChunks(); after <= kept {
				break
			}
		}
		if _, err := loader.Lookup(key(1), nil); !errors.Is(err, index.ErrNotFound) {
			fail(fmt.Errorf("a deleted key: %w", err))
		}
		found, err := x.(index.Checker).Check()
		fail(err)
		if found.Pairs != 1 || found.Nodes > 2 {
			fail(fmt.Errorf("what is left: %+v", found))
		}
		// Memory that was given back can be used again.
		for n := range keys {
			fail(loader.Insert(key(n), key(n)))
		}
		if again := c.UsedChunks(); again > loaded+kept {
			fail(fmt.Errorf("loaded again it takes %d chunks, at first %d", again, loaded))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d chunks loaded, %d with a frozen reader when %d keys were deleted, %d in the end", loaded, stuck, deleted, after)
	if stuck < loaded || deleted < keys*9/10 || after > kept {
		t.Errorf("%d chunks loaded, %d with a frozen reader, %d in the end; want at most %d", loaded, stuck, after, kept)
	}
}
