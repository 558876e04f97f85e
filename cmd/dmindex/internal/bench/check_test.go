package bench

import (
	"errors"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
)

// TestCheckCatches: each of these faults is one change in a thousand, and the check finds it.
func TestCheckCatches(t *testing.T) {
	once := func(do func(f *fakeCluster, key, value string) bool) func(*fakeCluster, string, string) bool {
		return func(f *fakeCluster, key, value string) bool { return f.changes%1000 == 999 && do(f, key, value) }
	}
	for _, c := range []struct {
		name, workload, want string
		fault                func(f *fakeCluster, key, value string) bool
	}{
		{"nothing", "A", "", nil},
		{"insert that is answered and not done", "LOAD", "were loaded or inserted", once(func(*fakeCluster, string, string) bool { return true })},
		{"change that is answered and not done", "A", workload.ErrLost.Error(), func(f *fakeCluster, _, _ string) bool { return f.changes > 1300 }},
		{"value of another item", "C", workload.ErrForeign.Error(), once(func(f *fakeCluster, key, _ string) bool {
			f.content.Set(key, string(workload.AppendValue(nil, 8, 1<<40, 0)))
			return true
		})},
		{"value of nobody", "C", workload.ErrForeign.Error(), once(func(f *fakeCluster, key, value string) bool {
			b := []byte(value)
			b[0]++ // another writer
			f.content.Set(key, string(b))
			return true
		})},
		{"short value", "C", workload.ErrForeign.Error(), once(func(f *fakeCluster, key, value string) bool { f.content.Set(key, value[:7]); return true })},
		{"pair of nobody", "C", "nobody loaded", once(func(f *fakeCluster, key, value string) bool {
			f.content.Set(string(workload.Uint64Keys.Append(nil, 1<<40)), value)
			return false
		})},
		{"key of no item", "C", workload.ErrNoKey.Error(), once(func(f *fakeCluster, key, value string) bool { f.content.Set("x", value); return false })},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := fakeBencher(t, smallRun(t, c.workload, "shm"), &fakeCluster{fault: c.fault})
			_, err := b.all()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestDriverSeesWrongAnswers: a lookup that finds nothing where there must be something ends the
// run at once.
func TestDriverSeesWrongAnswers(t *testing.T) {
	f := &fakeCluster{}
	f.fault = func(f *fakeCluster, key, _ string) bool { return f.changes == 7 } // is never there
	_, err := fakeBencher(t, smallRun(t, "A", "shm"), f).all()
	if err == nil || !strings.Contains(err.Error(), "key not found") && !errors.Is(err, workload.ErrForeign) {
		t.Errorf("one item was not loaded: %v", err)
	}
}

func TestContentOfLongKeysAndValues(t *testing.T) {
	for _, bytes := range [][2]int{{8, 8}, {9, 13}, {15, 64}, {16, 9}, {17, 256}, {32, 64}, {100, 31}} {
		r := smallRun(t, "A", "shm")
		r.Uint64, r.KeyBytes, r.ValueBytes = false, bytes[0], bytes[1]
		f := &fakeCluster{}
		if _, err := fakeBencher(t, r, f).all(); err != nil {
			t.Errorf("keys of %d, values of %d bytes: %v", bytes[0], bytes[1], err)
		}
		f.content.Scan(func(key, value string) bool {
			if len(key) != bytes[0] || len(value) != bytes[1] {
				t.Errorf("key of %d bytes, value of %d, want %v", len(key), len(value), bytes)
				return false
			}
			return true
		})
	}
}
