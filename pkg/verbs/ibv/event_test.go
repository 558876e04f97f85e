package ibv

import (
	"testing"
	"time"
)

func TestEventKinds(t *testing.T) {
	f := func(k eventKind, name string, ends scope) {
		t.Helper()
		if k.String() != name || k.ends() != ends {
			t.Errorf("event %d is %v and ends %v, want %s and %v", int(k), k, k.ends(), name, ends)
		}
	}
	f(1, "QP_FATAL", endsOwner)
	f(3, "QP_ACCESS_ERR", endsOwner)
	f(8, "DEVICE_FATAL", endsDevice)
	f(10, "PORT_ERR", endsNothing)
	f(18, "GID_CHANGE", endsNothing)
	f(20, "event 20", endsNothing)
	f(-1, "event -1", endsNothing)
	for k := range eventKinds {
		if eventKinds[k].name == "" {
			t.Errorf("event %d has no name", k)
		}
	}
}

// TestNotesAreBounded: of each kind of event one is noted in a minute. All kinds that are not known
// share one.
func TestNotesAreBounded(t *testing.T) {
	var n notes
	start := time.Now()
	f := func(after time.Duration, k eventKind, want bool) {
		t.Helper()
		if due := n.due(k, start.Add(after)); due != want {
			t.Errorf("after %v event %v is noted: %v", after, k, due)
		}
	}
	f(0, 10, true)
	f(0, 9, true)
	f(noteEvery-1, 10, false)
	f(noteEvery, 10, true)
	f(2*noteEvery-1, 10, false)
	f(2*noteEvery-1, 9, true)
	f(5*noteEvery, 99, true)
	f(5*noteEvery, -1, false)
}
