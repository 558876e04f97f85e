package simtest

import (
	"strings"
	"sync"
	"testing"
)

// TestRead: the environment says which seeds are run, and a message says how to run one again.
func TestRead(t *testing.T) {
	f := func(first, count string, wantFirst, wantCount uint64) {
		t.Helper()
		t.Setenv(seedVariable, first)
		t.Setenv(seedsVariable, count)
		s := Read(t, "fence", "memserver", 30)
		if s.First != wantFirst || s.Count != wantCount {
			t.Errorf("%q, %q: %d seeds from %d", first, count, s.Count, s.First)
		}
		if r := s.Replay(77); !strings.Contains(r, seedVariable+"=77 ") || !strings.Contains(r, "fence") && !strings.Contains(r, "./memserver") {
			t.Errorf("replay: %s", r)
		}
	}
	f("", "", 1, 30)
	f("5", "", 5, 1)
	f("5", "7", 5, 7)
	f("", "0x10", 1, 16)
}

// TestEach: every seed is run once, and none is begun after some that failed.
func TestEach(t *testing.T) {
	var mu sync.Mutex
	runs := map[uint64]int{}
	s := Seeds{First: 10, Count: 50}
	done, failed := s.Each(func(seed uint64) bool {
		mu.Lock()
		defer mu.Unlock()
		runs[seed]++
		return seed != 20
	})
	if done != 50 || failed != 1 || len(runs) != 50 || runs[10] != 1 || runs[59] != 1 {
		t.Errorf("%d done, %d failed, %d different", done, failed, len(runs))
	}
	if done, failed := s.Each(func(uint64) bool { return false }); failed < mostFailures || done > 40 {
		t.Errorf("%d done, %d failed", done, failed)
	}
}
