package ibv

import "testing"

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
