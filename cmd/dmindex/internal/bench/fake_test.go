package bench

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/btree"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// fakeCluster is one index in this process. With a fault it does not do what it says.
type fakeCluster struct {
	mu      sync.Mutex
	content btree.Map[string, string]
	changes int

	sessions int // that were made
	takers   []*fakeIndex
	// of every change; done: it is not made any more
	fault func(f *fakeCluster, key, value string) (done bool)
	began time.Time
}

func (f *fakeCluster) run(do func() error) error { f.began = time.Now(); return do() }
func (f *fakeCluster) env(int) env.Env           { return env.Real() }
func (f *fakeCluster) now() time.Duration        { return time.Since(f.began) }
func (f *fakeCluster) processor() *processor     { return nil }
func (f *fakeCluster) chunks() (uint64, error)   { return 1, nil }
func (f *fakeCluster) close() error              { return nil }

func (f *fakeCluster) open(int, index.Options) (member, error) {
	return member{Index: &fakeIndex{f: f}, close: func() error { return nil }}, nil
}

type fakeIndex struct {
	index.Index // what bench does not use
	f           *fakeCluster

	takes     bool // keys from low up to high
	low, high string
}

func (x *fakeIndex) Session() (index.Session, error) {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	x.f.sessions++
	return &fakeSession{f: x.f, x: x}, nil
}
func (x *fakeIndex) Stats() index.Stats { return index.Stats{} }
func (x *fakeIndex) Close() error       { return nil }

type fakeSession struct {
	f *fakeCluster
	x *fakeIndex
}

func (s *fakeSession) Lookup(key, dst []byte) ([]byte, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if !s.x.has(string(key)) {
		return dst, index.ErrNotOwner
	}
	v, ok := s.f.content.Get(string(key))
	if !ok {
		return dst, index.ErrNotFound
	}
	return append(dst, v...), nil
}

// change changes a pair: must reports whether it has to be there before.
func (s *fakeSession) change(key, value []byte, must func(there bool) error) error {
	f := s.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if !s.x.has(string(key)) {
		return index.ErrNotOwner
	}
	_, there := f.content.Get(string(key))
	if err := must(there); err != nil {
		return err
	}
	f.changes++
	if f.fault == nil || !f.fault(f, string(key), string(value)) {
		f.content.Set(string(key), string(value))
	}
	return nil
}

func (s *fakeSession) Insert(key, value []byte) error {
	return s.change(key, value, func(there bool) error {
		if there {
			return index.ErrExists
		}
		return nil
	})
}

func (s *fakeSession) Update(key, value []byte) error {
	return s.change(key, value, func(there bool) error {
		if !there {
			return index.ErrNotFound
		}
		return nil
	})
}

func (s *fakeSession) Upsert(key, value []byte) error {
	return s.change(key, value, func(bool) error { return nil })
}

func (s *fakeSession) Delete([]byte) error { panic("bench deletes nothing") }

func (s *fakeSession) Defer(bool)           {}
func (s *fakeSession) Position() uint64     { return 0 }
func (s *fakeSession) Durable(uint64) error { return nil }

func (s *fakeSession) LookupBatch([][]byte, func(int, []byte, error)) error {
	panic("bench looks keys up one by one")
}

func (s *fakeSession) Prepare(_, _ [][]byte) error { return nil }

func (s *fakeSession) Modify([]byte, index.Change) error { panic("bench modifies nothing") }

func (s *fakeSession) Scan(start []byte, limit int, _ bool, visit func(key, value []byte) bool) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if !s.x.has(string(start)) {
		return index.ErrNotOwner
	}
	s.f.content.Ascend(string(start), func(key, value string) bool {
		if !s.x.has(key) {
			return false
		}
		limit--
		return visit([]byte(key), []byte(value)) && limit > 0
	})
	return nil
}

func (s *fakeSession) SetLimit(time.Duration)   {}
func (s *fakeSession) Counters() verbs.Counters { return verbs.Counters{} }
func (s *fakeSession) Close() error             { return nil }

// smallRun is a run that takes milliseconds.
func smallRun(t testing.TB, name, transport string) *Run {
	t.Helper()
	w, err := workload.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := workload.ParseDistribution(w.DistributionOr(""))
	if err != nil {
		t.Fatal(err)
	}
	return &Run{Design: "sherman", Transport: transport, Workload: w, Distribution: d, Records: 1000, Ops: 1500, Warmup: 200, Clients: 4,
		MemoryServers: 2, ComputeServers: 2, Uint64: true, KeyBytes: 8, ValueBytes: 8, ScanFrom: 1, ScanTo: 100, Seed: 1, Progress: io.Discard}
}

// fakeBencher is a bencher of a run on a fake cluster.
func fakeBencher(t testing.TB, r *Run, f *fakeCluster) *bencher {
	t.Helper()
	k, err := workload.NewKeys(r.KeyBytes)
	if err != nil {
		t.Fatal(err)
	}
	b := newBencher(context.Background(), r, k)
	b.cluster = f
	return b
}
