package persist_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

const damageSize = 64 << 10

// written makes a directory with n changes of one word, each synced, whose last process was killed,
// and calls f with it.
func written(t *testing.T, n uint64, f func(p *simenv.Process, d *disk)) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 50_000_000})
	err := w.Run(func(p *simenv.Process) {
		d := newDisk(&simtest.Stage{World: w, Random: rand.New(rand.NewPCG(1, 2))}, noMistake)
		r := verbs.Replica{Memory: make([]byte, damageSize)}
		s, err := recovered(p, d, &r)
		if err != nil {
			t.Fatal(err)
		}
		j := verbs.NewJournal(p, nil)
		feed, err := j.Feed(func() error { return nil }, nil)
		if err == nil {
			err = s.Begin(feed.Start(), j.Ledger)
		}
		if err == nil {
			err = feed.Connect(s, feed.Start())
		}
		if err == nil {
			err = feed.Await()
		}
		for v := uint64(1); v <= n && err == nil; v++ {
			if err = j.Begin(nil, verbs.ItemBytes(8)); err == nil {
				at := j.Record(0, binary.LittleEndian.AppendUint64(nil, v))
				j.Done()
				err = j.Wait(nil, at)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		f(p, d)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func recovered(p env.Env, d *disk, r *verbs.Replica) (*persist.Store, error) {
	s, err := persist.Open(&mount{d, p.(*simenv.Process)}, persist.Volume{ID: 1, Bytes: uint64(len(r.Memory)), ChunkBytes: 1, LockBytes: 1}, persist.Options{Env: p})
	if err == nil {
		err = s.Recover(r)
	}
	return s, err
}

// TestDamage: whichever byte is another one, and wherever a file ends, the directory is refused, or
// what is found is what was there behind some change. The log's last change alone may be missing:
// of all others its frames say that they were on disk.
func TestDamage(t *testing.T) {
	const n = 6
	written(t, n, func(p *simenv.Process, d *disk) {
		names := []string{}
		for name := range d.now {
			names = append(names, name)
		}
		slices.Sort(names)
		refused, cut := 0, 0
		try := func(what string, name string, at int) {
			r := verbs.Replica{Memory: make([]byte, damageSize)}
			_, err := recovered(p, d, &r)
			v := binary.LittleEndian.Uint64(r.Memory)
			switch {
			case err != nil && !strings.Contains(err.Error(), "directory"):
				t.Errorf("%s at %d of %s: the error does not say what to do: %v", what, at, name, err)
			case err != nil:
				refused++
			case v == n-1 && what == "flip":
				cut++
			case v > n || v < n && what == "flip":
				t.Errorf("%s at %d of %s: finds %d", what, at, name, v)
			}
		}
		for _, name := range names {
			file := d.now[name]
			whole := file.content
			for at := 0; at < len(whole); at += 3 {
				file.content = slices.Clone(whole)
				file.content[at] ^= 0x10
				try("flip", name, at)
				file.content = slices.Clone(whole[:at])
				try("end", name, at)
			}
			file.content = whole
		}
		if refused < 150 || cut == 0 {
			t.Errorf("%d were refused, %d lack the last change", refused, cut)
		}
	})
}

// FuzzRecover: no log makes a process crash.
func FuzzRecover(f *testing.F) {
	f.Add([]byte("dmPerLog"), 0)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		written(t, 2, func(p *simenv.Process, d *disk) {
			for name, file := range d.now {
				if strings.HasPrefix(name, "log.") && at >= 0 && at < len(file.content) {
					file.content = put(slices.Clone(file.content), at, b)
				}
			}
			_, _ = recovered(p, d, &verbs.Replica{Memory: make([]byte, damageSize)})
		})
	})
}

// TestLedgerIsSynced: a change of the ledger is on disk before it is acknowledged, in each mode,
// also where a later one is recorded that is not written yet.
func TestLedgerIsSynced(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 1_000_000})
	err := w.Run(func(p *simenv.Process) {
		d := newDisk(&simtest.Stage{World: w, Random: rand.New(rand.NewPCG(1, 2))}, noMistake)
		s, err := persist.Open(&mount{d, p}, persist.Volume{ID: 1, Bytes: damageSize, ChunkBytes: 1, LockBytes: 1}, persist.Options{Env: p, Sync: persist.Off})
		if err == nil {
			err = s.Recover(&verbs.Replica{Memory: make([]byte, damageSize)})
		}
		const first, second = 16, 24 // where two changes of the ledger end
		if err == nil {
			err = s.Begin(0, func() verbs.Position { return second })
		}
		if err != nil {
			t.Fatal(err)
		}
		synced := d.counts["sync"]
		if n, err := s.Send(make([]byte, first)); n != first || err != nil {
			t.Fatal(n, err)
		}
		if at, err := s.Receive(); at != first || err != nil {
			t.Fatal(at, err)
		}
		if d.counts["sync"] == synced {
			t.Error("a change of the ledger was acknowledged, and nothing was synced")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
