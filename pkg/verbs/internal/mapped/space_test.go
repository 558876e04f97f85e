package mapped

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestNewSpace(t *testing.T) {
	mem := words(64)
	f := func(ok bool, list ...verbs.Memory) {
		t.Helper()
		if _, err := NewSpace(list); (err == nil) != ok {
			t.Errorf("%d regions: %v", len(list), err)
		}
	}
	f(true)
	f(true, verbs.Memory{ID: verbs.RegionData, Bytes: mem})
	f(true, verbs.Memory{ID: verbs.RegionLocks, Bytes: mem[:8]}, verbs.Memory{ID: verbs.RegionData, Bytes: mem[8:]})
	f(false, verbs.Memory{ID: verbs.RegionData, Bytes: mem}, verbs.Memory{ID: verbs.RegionData, Bytes: mem})
	f(false, verbs.Memory{ID: verbs.RegionData})
	f(false, verbs.Memory{ID: verbs.RegionLocks + 1, Bytes: mem})
	f(false, verbs.Memory{ID: verbs.RegionData, Bytes: mem[1:]})
}

func TestInRangeOfAbsentRegion(t *testing.T) {
	s, err := NewSpace([]verbs.Memory{{ID: verbs.RegionData, Bytes: words(64)}})
	if err != nil {
		t.Fatal(err)
	}
	r := verbs.Request{Region: verbs.RegionLocks, Local: make([]byte, 1)}
	if s.InRange(&r) {
		t.Error("a byte of a region that is not there is in range")
	}
	r.Region = verbs.RegionData
	if !s.InRange(&r) {
		t.Error("the first byte is out of range")
	}
}

// TestPending: Apply says when a barrier is due, so that a completion is never reported without
// one.
func TestPending(t *testing.T) {
	s, err := NewSpace([]verbs.Memory{{ID: verbs.RegionData, Bytes: words(64)}})
	if err != nil {
		t.Fatal(err)
	}
	for op := verbs.Read; op <= verbs.MaskedFetchAdd; op++ {
		for _, before := range []bool{false, true} {
			_, pending := s.Apply(&verbs.Request{Op: op, Local: words(8)}, before)
			if want := weakOrder || op == verbs.Write; pending != want {
				t.Errorf("%v after pending %v: pending %v, want %v", op, before, pending, want)
			}
		}
	}
}
