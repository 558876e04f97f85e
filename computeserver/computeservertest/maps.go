package computeservertest

import (
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/partition"
)

// Maps is a map source whose map the test sets.
type Maps struct {
	mu      sync.Mutex
	data    []byte
	gen     uint64
	changed chan struct{}
}

// NewMaps has no map yet.
func NewMaps() *Maps { return &Maps{changed: make(chan struct{})} }

// Set publishes a map.
func (f *Maps) Set(t testing.TB, m *partition.Map) {
	t.Helper()
	data, err := m.Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data, f.gen = data, m.Generation
	close(f.changed)
	f.changed = make(chan struct{})
}

// Map implements engine.MapSource.
func (f *Maps) Map(newerThan uint64, wait time.Duration) ([]byte, error) {
	f.mu.Lock()
	data, gen, changed := f.data, f.gen, f.changed
	f.mu.Unlock()
	if gen > newerThan {
		return data, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.data, nil
}

// Close ends the calls of Map that wait.
func (f *Maps) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
}
