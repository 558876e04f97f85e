package pool

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

type nic struct{ verbs.Device }

func (*nic) Provider() string { return "nic" }

type wire struct{ verbs.Device }

func (*wire) Provider() string { return "wire" }
func (*wire) TakesAnyArena()   {}

// TestArenasOf: among servers of several providers arenas are of the one that registers them, in
// whatever order the servers stand.
func TestArenasOf(t *testing.T) {
	a, b, tcp, shm := &nic{}, &nic{}, &wire{}, &wire{}
	f := func(name string, want verbs.Device, devices ...verbs.Device) {
		t.Helper()
		var d verbs.Device
		var err error
		for _, next := range devices {
			if d, err = arenasOf(d, next); err != nil {
				break
			}
		}
		if err == nil && d != want || (err != nil) != (want == nil) {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
	f("one", a, a, a)
	f("the NIC first", a, a, tcp, tcp, a)
	f("the NIC last", a, tcp, shm, a)
	f("none with registration", shm, tcp, shm)
	f("two NICs", nil, a, tcp, b)
}
