package deviceplugin

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"

	"github.com/dmindex/dmindex/deviceplugin/hca/sysfstest"
)

// seedVariable replays a run of TestRandom.
const seedVariable = "DMINDEX_TEST_SEED"

// world is what the kubelet should see: the model that TestRandom compares with.
type world struct {
	n     *node
	rnd   *rand.Rand
	up    map[string]bool // HCA -> its port is active
	taken map[string]bool // HCA -> another plugin advertises it
	slots int
	made  int
}

func (w *world) pick() string {
	names := make([]string, 0, len(w.up))
	for i := range w.made {
		if _, ok := w.up[fmt.Sprintf("mlx5_%d", i)]; ok {
			names = append(names, fmt.Sprintf("mlx5_%d", i))
		}
	}
	return names[w.rnd.IntN(len(names))]
}

func pciOf(name string) string { return "0000:" + name[len("mlx5_"):] + ":00.0" }

// step changes something and says what.
func (w *world) step() string {
	switch k := w.rnd.IntN(10); {
	case k == 0 || len(w.up) == 0:
		name := fmt.Sprintf("mlx5_%d", w.made)
		w.made++
		w.up[name] = true
		w.n.sysfs.Add(sysfstest.Device{Name: name, PCI: pciOf(name), NUMANode: w.rnd.IntN(2)})
		return "plug in " + name
	case k == 1:
		name := w.pick()
		delete(w.up, name)
		w.n.sysfs.Remove(name)
		return "unplug " + name
	case k < 5:
		name, state := w.pick(), "4: ACTIVE"
		if w.up[name] = !w.up[name]; !w.up[name] {
			state = "1: DOWN"
		}
		w.n.sysfs.SetState(name, 1, state)
		return name + " is " + state
	case k == 5:
		w.slots = 1 + w.rnd.IntN(4)
		w.n.settings(fmt.Sprintf("resources: [{name: dmindex.io/rdma, slots: %d}]", w.slots))
		return fmt.Sprintf("%d slots", w.slots)
	case k == 6:
		w.n.looks(2) // else it would never see right ones from just before
		w.n.settings("resources: [{name: nonsense}]")
		return "wrong settings"
	case k == 7:
		w.n.kubelet.Down()
		w.n.kubelet.Up()
		return "the kubelet restarts"
	case k == 8:
		if err := w.n.end(); err != nil {
			w.n.Fatal(err)
		}
		// With wrong settings it would not start.
		w.n.settings(fmt.Sprintf("resources: [{name: dmindex.io/rdma, slots: %d}]", w.slots))
		w.n.start()
		return "the plugin restarts"
	default:
		name := w.pick()
		w.taken[name] = true // and stays so
		var ids []string
		for name := range w.taken {
			ids = append(ids, pciOf(name))
		}
		w.n.kubelet.Other("intel.com/vf", ids...)
		return "another plugin takes " + name
	}
}

// wants is each slot that the kubelet should have, and whether it is healthy.
func (w *world) wants() map[string]string {
	slots := map[string]string{}
	for name, up := range w.up {
		for i := range w.slots {
			if w.taken[name] {
				continue
			}
			slots[name+"/"+strconv.Itoa(i)] = "Unhealthy"
			if up {
				slots[name+"/"+strconv.Itoa(i)] = "Healthy"
			}
		}
	}
	return slots
}

// TestRandom changes one thing after the other, some before the plugin has seen the last, and
// compares what the kubelet has with what it should have.
func TestRandom(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("replay with %s=%d go test -run '^TestRandom$' ./deviceplugin", seedVariable, seed)
	n := newNode(t)
	w := &world{n: n, rnd: rand.New(rand.NewPCG(seed, 0)), up: map[string]bool{}, taken: map[string]bool{}, slots: 2}
	n.sysfs.Remove("mlx5_0")
	n.sysfs.Remove("mlx5_1")
	w.made = 2
	n.settings("resources: [{name: dmindex.io/rdma, slots: 2}]")
	n.start()
	for i := range 60 {
		what := w.step()
		t.Logf("%d: %s", i, what)
		if w.rnd.IntN(3) == 0 {
			continue // the next one comes at once
		}
		want := w.wants()
		n.kubelet.Await(rdma, fmt.Sprintf("after %d: %s: it has %v", i, what, want), func(s State) bool {
			return len(want) == 0 && s.Capacity == 0 || reflect.DeepEqual(want, n.health())
		})
	}
}

// health is what the kubelet has.
func (n *node) health() map[string]string {
	has := map[string]string{}
	for id, d := range n.kubelet.Devices(rdma) {
		has[id] = d.Health
	}
	return has
}
