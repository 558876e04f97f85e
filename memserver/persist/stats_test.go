package persist_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestStats: a store says that changes wait while the disk is full, and how much it has written and
// synced otherwise.
func TestStats(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 1_000_000})
	err := w.Run(func(p *simenv.Process) {
		d := newDisk(&simtest.Stage{World: w, Random: rand.New(rand.NewPCG(1, 2))}, noMistake)
		s, err := recovered(p, d, &verbs.Replica{Memory: make([]byte, damageSize)})
		if err == nil {
			err = s.Begin(0, func() verbs.Position { return 0 })
		}
		if err != nil {
			t.Fatal(err)
		}
		const sent = 24
		for _, full := range []bool{true, false} {
			d.full = full
			n, err := s.Send(make([]byte, sent))
			if err != nil || (n == 0) != full {
				t.Fatalf("full %v: %d, %v", full, n, err)
			}
			if st := s.Stats(); st.Waits != full || st.LogBytes != uint64(n) || st.Syncs != 0 {
				t.Errorf("full %v: %+v", full, st)
			}
		}
		if at, err := s.Receive(); at != sent || err != nil {
			t.Fatal(at, err)
		}
		if st := s.Stats(); st.Syncs != 1 || st.SyncTime == 0 {
			t.Errorf("after a sync: %+v", st)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDirectoryIsLocked: a directory that another process has is waited for, since that may be
// dying, but not for ever.
func TestDirectoryIsLocked(t *testing.T) {
	dir := t.TempDir()
	has, err := persist.OpenDirectory(dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := persist.OpenDirectory(dir, 0, nil); !errors.Is(err, persist.ErrInUse) {
		t.Fatalf("a second process: %v", err)
	}
	waited := 0
	next, err := persist.OpenDirectory(dir, time.Minute, func() {
		if waited++; waited > 1 {
			return
		}
		if err := has.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil || waited != 1 {
		t.Fatalf("the next process, which said %d times that it waits: %v", waited, err)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLostAndFound: a directory that is a file system of its own has other directories in it.
func TestLostAndFound(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d, err := persist.OpenDirectory(dir, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := persist.Open(d, persist.Volume{ID: 1, Bytes: damageSize, ChunkBytes: 1, LockBytes: 1}, persist.Options{Env: env.Real()})
		if err == nil {
			err = s.Recover(&verbs.Replica{Memory: make([]byte, damageSize)})
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
