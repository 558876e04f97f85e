package deviceplugin

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/dmindex/dmindex/deviceplugin/hca/sysfstest"
	"github.com/dmindex/dmindex/deviceplugin/kubelettest"
	"github.com/dmindex/dmindex/deviceplugin/settings"
)

const rdma = settings.DefaultResource

// node is a machine with a kubelet and a plugin.
type node struct {
	*testing.T
	config  Config
	sysfs   *sysfstest.Tree
	kubelet *kubelettest.Kubelet
	address string // of metrics
	end     func() error
}

// newNode is a machine with two HCAs, of which the plugin is not started yet.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, sysfs: sysfstest.New(t, t.TempDir())}
	dir, err := os.MkdirTemp("", "dm") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n.kubelet = kubelettest.Start(t, dir)
	n.config = Config{
		Sysfs: n.sysfs.Root, Dev: "/node/dev", KubeletDir: dir, PodResources: n.kubelet.PodResources(), Poll: 20 * time.Millisecond,
		Metrics: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(logWriter{t}, nil)), Version: "test",
	}
	n.sysfs.Add(sysfstest.Device{Name: "mlx5_0", PCI: "0000:3b:00.0", NUMANode: 0, Interface: "ens1"})
	n.sysfs.Add(sysfstest.Device{Name: "mlx5_1", PCI: "0000:af:00.0", NUMANode: 1, Interface: "ens2", LinkLayer: "InfiniBand"})
	n.sysfs.CM()
	return n
}

type logWriter struct{ testing.TB }

func (w logWriter) Write(p []byte) (int, error) {
	w.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// settings writes the plugin's file as the kubelet would: a link is replaced.
func (n *node) settings(text string) {
	n.Helper()
	if n.config.Settings == "" {
		n.config.Settings = filepath.Join(n.TempDir(), "settings.yaml")
	}
	n.write(n.config.Settings, text)
}

func (n *node) write(file, text string) {
	n.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		n.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		n.Fatal(err)
	}
}

// start starts the plugin; it ends with the test, if not before.
func (n *node) start() {
	n.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	up, done := make(chan net.Addr, 1), make(chan error, 1)
	n.config.Ready = func(a net.Addr) { up <- a }
	go func() { done <- Run(ctx, n.config) }()
	n.end = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	n.Cleanup(func() {
		if err := n.end(); err != nil {
			n.Error(err)
		}
	})
	select {
	case a := <-up:
		n.address = a.String()
	case err := <-done:
		done <- nil
		n.Fatal(err)
	}
}

// get is what the plugin answers over HTTP.
func (n *node) get(path string) (code int, body string) {
	n.Helper()
	r, err := http.Get("http://" + n.address + path)
	if err != nil {
		n.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		n.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// eventually asks over HTTP until the answer holds a text.
func (n *node) eventually(path, want string) {
	n.Helper()
	body := ""
	if !n.until(func() bool { _, body = n.get(path); return strings.Contains(body, want) }) {
		n.Fatalf("%s has no %q:\n%s", path, want, body)
	}
}

// until asks until the answer is yes, at most for half a minute.
func (n *node) until(ok func() bool) bool {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if ok() {
			return true
		}
	}
	return false
}

// looks waits until the plugin has begun and ended so many rounds less one.
func (n *node) looks(rounds int) {
	n.Helper()
	count := func() string {
		_, body := n.get("/metrics")
		_, rest, _ := strings.Cut(body, "\ndmindex_device_plugin_round_seconds_count ")
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	for range rounds {
		before := count()
		if !n.until(func() bool { return count() != before }) {
			n.Fatalf("the plugin's loop stands still after %s rounds", before)
		}
	}
}

// TestAdvertise: what the kubelet is told of two HCAs, and what a container gets.
func TestAdvertise(t *testing.T) {
	n := newNode(t)
	n.settings("resources: [{name: dmindex.io/rdma, slots: 3}]")
	n.start()
	n.kubelet.Has(rdma, 6, 6)
	n.eventually("/readyz", "ok")
	for id, numa := range map[string]int64{"mlx5_0/0": 0, "mlx5_1/2": 1} {
		d := n.kubelet.Devices(rdma)[id]
		if d == nil || d.Topology == nil || len(d.Topology.Nodes) != 1 || d.Topology.Nodes[0].ID != numa {
			t.Errorf("%s is %v, want NUMA node %d", id, d, numa)
		}
	}
	got, err := n.kubelet.Allocate(rdma, "mlx5_0/2")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		EnvDevice: "mlx5_0", EnvPort: "1", EnvGIDIndex: "3", EnvGID: "::ffff:10.77.0.1", EnvLinkLayer: "Ethernet", EnvNUMANode: "0", EnvPCI: "0000:3b:00.0",
	} {
		if got.Envs[name] != want {
			t.Errorf("%s is %q, want %q", name, got.Envs[name], want)
		}
	}
	if len(got.Envs) != 7 {
		t.Errorf("the environment is %v", got.Envs)
	}
	nodes := map[string]string{}
	for _, d := range got.Devices {
		nodes[d.ContainerPath] = d.HostPath + " " + d.Permissions
	}
	if len(nodes) != 2 || nodes["/dev/infiniband/uverbs0"] != "/node/dev/infiniband/uverbs0 rw" || nodes["/dev/infiniband/rdma_cm"] != "/node/dev/infiniband/rdma_cm rw" {
		t.Errorf("the device nodes are %v", nodes)
	}
	// Two slots of one HCA are one HCA; slots of both are lists.
	if got, err = n.kubelet.Allocate(rdma, "mlx5_1/0", "mlx5_0/0", "mlx5_0/1"); err != nil {
		t.Fatal(err)
	}
	if got.Envs[EnvDevice] != "mlx5_1,mlx5_0" || got.Envs[EnvLinkLayer] != "InfiniBand,Ethernet" || got.Envs[EnvGIDIndex] != "0,3" || len(got.Devices) != 3 {
		t.Errorf("two HCAs give %v and %d nodes", got.Envs, len(got.Devices))
	}
	for _, wrong := range [][]string{{"mlx5_0/3"}, {"mlx5_9/0"}, {"mlx5_0"}, {}} {
		if _, err := n.kubelet.Allocate(rdma, wrong...); err == nil {
			t.Errorf("slots %v were allocated", wrong)
		}
	}
	n.eventually("/metrics", `dmindex_device_plugin_allocations_total{outcome="given",resource="dmindex.io/rdma"} 2`)
	n.eventually("/metrics", `dmindex_device_plugin_allocations_total{outcome="refused",resource="dmindex.io/rdma"} 4`)
}

// TestPreferred: the kubelet's question over the wire; package slots has the cases.
func TestPreferred(t *testing.T) {
	n := newNode(t)
	n.start()
	n.kubelet.Has(rdma, 32, 32)
	ask := func(size int32, available ...string) ([]string, error) {
		r, err := n.kubelet.Client(rdma).GetPreferredAllocation(t.Context(), &pluginapi.PreferredAllocationRequest{
			ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: available, AllocationSize: size}},
		})
		if err != nil {
			return nil, err
		}
		return r.ContainerResponses[0].DeviceIDs, nil
	}
	if got, err := ask(1, "mlx5_0/1", "mlx5_1/4", "mlx5_1/5"); err != nil || len(got) != 1 || got[0] != "mlx5_1/4" {
		t.Errorf("preferred is %v, %v", got, err)
	}
	if _, err := ask(2, "mlx5_0/1"); err == nil {
		t.Error("two of one were preferred")
	}
	o, err := n.kubelet.Client(rdma).GetDevicePluginOptions(t.Context(), &pluginapi.Empty{})
	if err != nil || !o.GetPreferredAllocationAvailable || o.PreStartRequired {
		t.Errorf("options are %v, %v", o, err)
	}
}

// TestHealth: a port goes down and comes back; an HCA is unplugged, another one plugged in. Nothing
// is told when nothing has changed.
func TestHealth(t *testing.T) {
	n := newNode(t)
	n.settings("resources: [{name: dmindex.io/rdma, slots: 2}]")
	n.start()
	n.kubelet.Has(rdma, 4, 4)
	n.sysfs.SetState("mlx5_0", 1, "1: DOWN")
	n.kubelet.Has(rdma, 4, 2)
	n.eventually("/metrics", `dmindex_device_plugin_slots{health="unhealthy",resource="dmindex.io/rdma"} 2`)
	n.eventually("/metrics", `dmindex_device_plugin_hca_healthy{device="mlx5_0",pci="0000:3b:00.0",resource="dmindex.io/rdma"} 0`)
	if _, err := n.kubelet.Allocate(rdma, "mlx5_0/0"); err == nil || !strings.Contains(err.Error(), "port 1 is DOWN: bring its link up") {
		t.Errorf("a slot of an HCA that is down: %v", err)
	}
	n.sysfs.SetState("mlx5_0", 1, "4: ACTIVE")
	n.kubelet.Has(rdma, 4, 4)
	n.sysfs.Remove("mlx5_1")
	n.kubelet.Has(rdma, 2, 2)
	n.sysfs.Add(sysfstest.Device{Name: "mlx5_2", PCI: "0000:5e:00.0", NUMANode: 0, Interface: "ens3"})
	if s := n.kubelet.Has(rdma, 4, 4); s.Lists != 5 || s.Registrations != 1 {
		t.Errorf("it told %d lists in %d registrations, want 5 in 1", s.Lists, s.Registrations)
	}
}

// TestKubeletRestarts: the plugin registers again, as often as needed; a kubelet that refuses is
// asked again.
func TestKubeletRestarts(t *testing.T) {
	n := newNode(t)
	n.start()
	n.kubelet.Has(rdma, 32, 32)
	for i := range 3 {
		n.kubelet.Down()
		n.kubelet.Up()
		if s := n.kubelet.Has(rdma, 32, 32); s.Registrations != i+2 {
			t.Errorf("after %d restarts there were %d registrations", i+1, s.Registrations)
		}
	}
	n.kubelet.Down()
	n.kubelet.Refuse("the version is not to my taste")
	n.kubelet.Up()
	n.kubelet.Await(rdma, "it tries again", func(s State) bool { return s.Registrations >= 7 })
	n.eventually("/readyz", "dmindex.io/rdma is not registered")
	n.kubelet.Refuse("")
	n.kubelet.Has(rdma, 32, 32)
	n.eventually("/readyz", "ok")
}

// State is short for the kubelet's.
type State = kubelettest.State

// TestSocketRemoved: a socket that somebody removes while the kubelet goes on is made anew, and
// registered.
func TestSocketRemoved(t *testing.T) {
	n := newNode(t)
	n.start()
	n.kubelet.Has(rdma, 32, 32)
	if err := os.Remove(filepath.Join(n.kubelet.Dir, "dmindex.io_rdma.sock")); err != nil {
		t.Fatal(err)
	}
	n.kubelet.Await(rdma, "it registers again", func(s State) bool { return s.Registrations >= 2 && s.Watching && s.Capacity == 32 })
}

// TestStop: a plugin that ends leaves no socket, and the kubelet sees its stream end. The next one
// takes over.
func TestStop(t *testing.T) {
	n := newNode(t)
	n.start()
	n.kubelet.Has(rdma, 32, 32)
	if err := n.end(); err != nil {
		t.Error(err)
	}
	n.kubelet.Await(rdma, "the stream ends", func(s State) bool { return !s.Watching })
	if left, err := filepath.Glob(filepath.Join(n.kubelet.Dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("left in the kubelet's folder: %v, %v", left, err)
	}
	n.start()
	n.kubelet.Has(rdma, 32, 32)
}

// TestSettingsChange: new settings hold without a restart; wrong ones leave the old in force, and
// are told.
func TestSettingsChange(t *testing.T) {
	n := newNode(t)
	n.settings("resources: [{name: dmindex.io/rdma, slots: 2}]")
	n.start()
	n.kubelet.Has(rdma, 4, 4)
	n.settings("resources: [{name: dmindex.io/rdma, slots: 5}]")
	n.kubelet.Has(rdma, 10, 10)
	n.settings("resources: [{name: dmindex.io/rdma, slots: -1}]")
	n.eventually("/metrics", "dmindex_device_plugin_settings_wrong 1")
	n.kubelet.Has(rdma, 10, 10)
	n.settings(`
resources:
- {name: dmindex.io/ib, slots: 1, select: [{linkLayers: [InfiniBand]}]}
- {name: example.com/roce, slots: 7, excludeTopology: true}
`)
	n.kubelet.Has("dmindex.io/ib", 1, 1)
	n.kubelet.Has("example.com/roce", 7, 7)
	n.kubelet.Await(rdma, "its plugin is gone", func(s State) bool { return !s.Watching })
	n.eventually("/metrics", "dmindex_device_plugin_settings_wrong 0")
	if d := n.kubelet.Devices("example.com/roce")["mlx5_0/0"]; d == nil || d.Topology != nil {
		t.Errorf("the slot is %v, want no topology", d)
	}
}

// TestOthers: what another plugin advertises is left to it, from the first moment that the kubelet
// says so, and for some time after it was last seen.
func TestOthers(t *testing.T) {
	n := newNode(t)
	n.settings("resources: [{name: dmindex.io/rdma, slots: 2}]")
	n.kubelet.Other("intel.com/mlnx", "0000:3b:00.0", "0000:3b:00.1")
	n.start()
	if s := n.kubelet.Has(rdma, 2, 2); s.Lists != 1 {
		t.Errorf("the HCA of another plugin was advertised: %+v", s)
	}
	n.eventually("/metrics", `dmindex_device_plugin_hca_refused{device="mlx5_0",owner="another device plugin, resource intel.com/mlnx",pci="0000:3b:00.0"} 1`)
	n.kubelet.Other("intel.com/mlnx") // its plugin ended, or the kubelet started anew
	n.sysfs.SetState("mlx5_1", 1, "1: DOWN")
	n.kubelet.Has(rdma, 2, 0)
	n.kubelet.Other("other.com/hca", "mlx5_1")
	n.kubelet.Has(rdma, 0, 0)
}

// TestNoRDMA: a node without HCAs advertises nothing and is ready.
func TestNoRDMA(t *testing.T) {
	n := newNode(t)
	n.sysfs.Remove("mlx5_0")
	n.sysfs.Remove("mlx5_1")
	n.start()
	n.eventually("/readyz", "ok")
	n.eventually("/healthz", "ok")
	if s := n.kubelet.State(rdma); s.Registrations != 0 {
		t.Errorf("it registered: %+v", s)
	}
}

// probe asks for /healthz at a time.
func probe(p *plugin, at time.Time) int {
	w := httptest.NewRecorder()
	p.metrics.handler(p.current, func() time.Time { return at }, time.Minute, false).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	return w.Code
}

// TestWatch: changes of settings and a kubelet's restart are seen long before the next look.
func TestWatch(t *testing.T) {
	n := newNode(t)
	n.config.Poll = time.Minute // longer than this test waits for anything
	n.settings("resources: [{name: dmindex.io/rdma, slots: 2}]")
	n.start()
	n.kubelet.Has(rdma, 4, 4)
	n.settings("resources: [{name: dmindex.io/rdma, slots: 5}]")
	n.kubelet.Has(rdma, 10, 10)
	n.kubelet.Down()
	n.kubelet.Up()
	n.kubelet.Has(rdma, 10, 10)
}
