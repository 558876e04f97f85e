package deviceplugin

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/dmindex/dmindex/deviceplugin/hca"
	"github.com/dmindex/dmindex/deviceplugin/hca/sysfstest"
)

// TestSRIOV: in the place of the SR-IOV plugin, slots are PCI addresses and its environment is kept
// beside ours.
func TestSRIOV(t *testing.T) {
	n := newNode(t)
	config := filepath.Join(t.TempDir(), "config.json")
	n.write(config, `{"resourceList": [{"resourceName": "mlnx_roce", "selectors": {"linkTypes": ["ether"], "isRdma": true}}]}`)
	n.settings("sriov: {file: " + config + ", use: Advertise, resourcePrefix: intel.com}")
	n.start()
	const resource = "intel.com/mlnx_roce"
	n.kubelet.Has(resource, 1, 1)
	got, err := n.kubelet.Allocate(resource, "0000:3b:00.0")
	if err != nil {
		t.Fatal(err)
	}
	if got.Envs["PCIDEVICE_INTEL_COM_MLNX_ROCE"] != "0000:3b:00.0" || got.Envs[EnvDevice] != "mlx5_0" {
		t.Errorf("the environment is %v", got.Envs)
	}
	var info map[string]map[string]map[string]string
	if err := json.Unmarshal([]byte(got.Envs["PCIDEVICE_INTEL_COM_MLNX_ROCE_INFO"]), &info); err != nil {
		t.Fatal(err)
	}
	if want := map[string]map[string]map[string]string{"0000:3b:00.0": {
		"generic": {"deviceID": "0000:3b:00.0"}, "rdma": {"uverbs": "/dev/infiniband/uverbs0", "rdma_cm": "/dev/infiniband/rdma_cm"},
	}}; !reflect.DeepEqual(info, want) {
		t.Errorf("the information is %v, want %v", info, want)
	}
	// That plugin's file changes, too.
	n.write(config, `{"resourceList": [{"resourceName": "mlnx_roce", "selectors": {"isRdma": true}}]}`)
	n.kubelet.Has(resource, 2, 2)
}

// TestOneSlotEach: a resource's HCAs with numbers of slots that change to and fro, and an HCA that
// moves from one resource to another.
func TestOneSlotEach(t *testing.T) {
	n := newNode(t)
	n.settings("resources: [{name: a.b/one, slots: 1, select: [{devices: [mlx5_0]}]}, {name: a.b/two, slots: 2}]")
	n.start()
	n.kubelet.Has("a.b/one", 1, 1)
	n.kubelet.Has("a.b/two", 2, 2)
	n.settings("resources: [{name: a.b/one, slots: 1, select: [{devices: [mlx5_1]}]}, {name: a.b/two, slots: 3}]")
	n.kubelet.Has("a.b/two", 3, 3)
	n.kubelet.Await("a.b/one", "it has the other HCA", func(State) bool { return n.kubelet.Devices("a.b/one")["mlx5_1/0"] != nil })
	n.settings("resources: [{name: a.b/one}]")
	n.kubelet.Has("a.b/one", 32, 32)
}

// TestSilentKubelet: a kubelet that took a registration but does not watch is registered with again
// after a while.
func TestSilentKubelet(t *testing.T) {
	n := newNode(t)
	n.config.Metrics = ""
	p, err := newPlugin(n.config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	now := time.Now()
	p.now = func() time.Time { return now }
	n.kubelet.Silent(true)
	round := func(passed time.Duration, want int) {
		t.Helper()
		now = now.Add(passed)
		p.runRound(t.Context())
		if got := n.kubelet.State(rdma).Registrations; got != want {
			t.Errorf("%d registrations, want %d", got, want)
		}
		if err := p.current().ready(); err == nil || !strings.Contains(err.Error(), "not registered") {
			t.Errorf("ready: %v", err)
		}
	}
	round(0, 1)
	round(watchLimit-time.Second, 1)
	round(time.Second, 2)
	round(time.Second, 2)
	n.kubelet.Silent(false)
	now = now.Add(watchLimit)
	p.runRound(t.Context())
	n.kubelet.Has(rdma, 32, 32)
	p.runRound(t.Context())
	if err := p.current().ready(); err != nil {
		t.Error(err)
	}
	now = now.Add(time.Hour)
	p.runRound(t.Context())
	if got := n.kubelet.State(rdma).Registrations; got != 3 {
		t.Errorf("%d registrations with a kubelet that watches, want 3", got)
	}
}

// TestKubeletAsked: before the kubelet has said what others advertise, nothing is.
func TestKubeletAsked(t *testing.T) {
	n := newNode(t)
	n.config.PodResources = filepath.Join(n.TempDir(), "absent.sock")
	p, err := newPlugin(n.config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	p.runRound(t.Context())
	if err := p.current().ready(); err == nil || !strings.Contains(err.Error(), "before the kubelet says what other plugins advertise") {
		t.Errorf("ready: %v", err)
	}
	p.others.socket = n.kubelet.PodResources()
	p.runRound(t.Context())
	n.kubelet.Has(rdma, 32, 32)
	p.others.socket = filepath.Join(n.TempDir(), "absent.sock") // what it said stays
	p.runRound(t.Context())
	if err := p.current().ready(); err != nil {
		t.Error(err)
	}
}

// TestSysfsGoes: a machine that cannot be looked at changes nothing, and is told.
func TestSysfsGoes(t *testing.T) {
	n := newNode(t)
	p, err := newPlugin(n.config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	p.runRound(t.Context())
	n.kubelet.Has(rdma, 32, 32)
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(filepath.Join(n.sysfs.Root, from), filepath.Join(n.sysfs.Root, to)); err != nil {
			t.Fatal(err)
		}
		p.runRound(t.Context()) // in the middle of one, HCAs would go one by one
	}
	move("class", "away")
	if err := p.current().ready(); err == nil || !strings.Contains(err.Error(), "is not a sysfs") {
		t.Errorf("ready: %v", err)
	}
	if s := n.kubelet.State(rdma); s.Allocatable != 32 || s.Lists != 1 {
		t.Errorf("the kubelet has %+v", s)
	}
	move("away", "class")
	if err := p.current().ready(); err != nil {
		t.Error(err)
	}
}

// TestTwoPlugins: of two plugins on a node the later one serves, without a fight; the first says
// so, and takes over when the other ends.
func TestTwoPlugins(t *testing.T) {
	n := newNode(t)
	n.settings("resources: [{name: dmindex.io/rdma, slots: 2}]")
	n.start()
	n.kubelet.Has(rdma, 4, 4)
	second := *n
	second.config.Settings = ""
	second.settings("resources: [{name: dmindex.io/rdma, slots: 3}]")
	second.start()
	n.kubelet.Has(rdma, 6, 6)
	n.eventually("/readyz", "not registered")
	before := n.kubelet.State(rdma)
	n.looks(10)
	if s := n.kubelet.State(rdma); s != before || s.Capacity != 6 {
		t.Errorf("they fight: %+v, before %+v", s, before)
	}
	if err := second.end(); err != nil {
		t.Error(err)
	}
	n.kubelet.Has(rdma, 4, 4)
	n.eventually("/readyz", "ok")

	// One that died without an end has left its socket: it is nobody's.
	before = n.kubelet.State(rdma)
	socket := filepath.Join(n.kubelet.Dir, socketName(rdma))
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err == nil {
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	n.kubelet.Await(rdma, "it registers again", func(s State) bool { return s.Registrations > before.Registrations && s.Capacity == 4 })
}

// TestStuck: the plugin says that it is not well when its loop does not go round.
func TestStuck(t *testing.T) {
	n := newNode(t)
	p, err := newPlugin(n.config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	p.runRound(t.Context())
	begin := p.current().at
	for since, want := range map[time.Duration]int{59 * time.Second: 200, 61 * time.Second: 503} {
		if code := probe(p, begin.Add(since)); code != want {
			t.Errorf("after %v it answers %d, want %d", since, code, want)
		}
	}
}

// TestOthersHold: a device stays another plugin's for a while after the kubelet named it last, and
// not one that became ours.
func TestOthersHold(t *testing.T) {
	o := others{socket: "x"}
	begin := time.Now()
	list := func(devices ...*podresources.ContainerDevices) *podresources.AllocatableResourcesResponse {
		return &podresources.AllocatableResourcesResponse{Devices: devices}
	}
	theirs := &podresources.ContainerDevices{ResourceName: "x.y/z", DeviceIds: []string{"0000:3b:00.0", "mlx5_1"}}
	mine := &podresources.ContainerDevices{ResourceName: "dmindex.io/rdma", DeviceIds: []string{"mlx5_2/0", "mlx5_2"}}
	ours := map[string]bool{"dmindex.io/rdma": true}
	is := func(resource string) bool { return ours[resource] }
	f := func(h hca.HCA, want string) {
		t.Helper()
		if got, _ := o.advertised(h); got != want {
			t.Errorf("%+v belongs to %q, want %q", h, got, want)
		}
	}
	if o.isKnown() {
		t.Error("it knows before it asked")
	}
	o.note(begin, list(theirs, mine), is)
	byPCI, byName := hca.HCA{Name: "mlx5_0", PCI: "0000:3b:00.0"}, hca.HCA{Name: "mlx5_1"}
	f(byPCI, "x.y/z")
	f(byName, "x.y/z")
	f(hca.HCA{Name: "mlx5_2"}, "")
	f(hca.HCA{Name: "rxe0"}, "") // no PCI address is nobody's
	o.note(begin.Add(holdLimit), list(), is)
	f(byPCI, "x.y/z")
	o.note(begin.Add(holdLimit+time.Second), list(), is)
	f(byPCI, "")
	o.note(begin, list(theirs), is)
	ours["x.y/z"] = true
	o.note(begin, list(theirs), is)
	f(byName, "")
	if o := (others{}); !o.isKnown() || o.askKubelet(t.Context(), begin, is) != nil {
		t.Error("nobody is to be asked, but it does not know")
	}
}

// TestLabelsOf: what nodes are labelled with.
func TestLabelsOf(t *testing.T) {
	all := hca.Abilities{Provider: "mlx5", DeviceMemory: true, MaskedAtomics: true}
	roce, ib := []hca.Port{{LinkLayer: hca.Ethernet}}, []hca.Port{{LinkLayer: hca.InfiniBand}}
	f := func(want string, hcas ...hca.HCA) {
		t.Helper()
		labels := labelsOf(hcas)
		got := labels[LabelHCAs] + " " + labels[LabelLinkLayer] + " " + labels[LabelProvider] + " " + labels[LabelDeviceMemory] + " " + labels[LabelMaskedAtomics]
		if got != want {
			t.Errorf("labels are %q, want %q", got, want)
		}
		for name := range labels {
			if !strings.HasPrefix(name, LabelPrefix) {
				t.Errorf("label %s has another prefix", name)
			}
		}
	}
	f("    ")
	f("1 Ethernet mlx5 true true", hca.HCA{Ports: roce, Abilities: all})
	f("2 mixed mlx5 true true", hca.HCA{Ports: roce, Abilities: all}, hca.HCA{Ports: ib, Abilities: all})
	f("2 InfiniBand mixed false true", hca.HCA{Ports: ib, Abilities: all}, hca.HCA{Ports: ib, Abilities: hca.Abilities{Provider: "x", MaskedAtomics: true}})
	f("1 Ethernet unknown false false", hca.HCA{Ports: roce})
}

// labeler keeps what it was told.
type labeler struct {
	mu    sync.Mutex
	fail  error
	calls int
	last  map[string]string
}

func (l *labeler) Label(_ context.Context, labels map[string]string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if l.fail == nil {
		l.last = maps.Clone(labels)
	}
	return l.fail
}

// TestLabels: they are set when they change and now and then, and again some time after a failure,
// of which metrics tell.
func TestLabels(t *testing.T) {
	n := newNode(t)
	l := &labeler{}
	n.config.Labeler, n.config.Metrics = l, ""
	p, err := newPlugin(n.config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	now := time.Now()
	p.now = func() time.Time { return now }
	round := func(passed time.Duration, calls int, hcas string) {
		t.Helper()
		now = now.Add(passed)
		p.runRound(t.Context())
		if l.calls != calls || l.last[LabelHCAs] != hcas {
			t.Errorf("after %d calls the labels are %v; want %d calls, %s HCAs", l.calls, l.last, calls, hcas)
		}
	}
	round(0, 1, "2")
	n.sysfs.SetState("mlx5_0", 1, "1: DOWN")
	round(time.Minute, 1, "2") // health is none of the labels' matter
	n.sysfs.Add(sysfstest.Device{Name: "mlx5_2", PCI: "0000:5e:00.0"})
	round(time.Second, 2, "3")
	round(labelAgain-time.Second, 2, "3")
	round(time.Second, 3, "3")
	l.fail = errors.New("not allowed")
	n.sysfs.Remove("mlx5_2")
	round(time.Second, 4, "3")
	if err := p.current().labelsWrong; err == nil {
		t.Error("a failure is not told")
	}
	l.fail = nil
	round(labelRetry-time.Second, 4, "3")
	round(time.Second, 5, "2")
	if err := p.current().labelsWrong; err != nil {
		t.Error(err)
	}
}

// TestStartErrors: what is wrong at the start ends the plugin with words that say what to do.
func TestStartErrors(t *testing.T) {
	f := func(change func(*node), want string) {
		t.Helper()
		n := newNode(t)
		change(n)
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // in case it does start
		if err := Run(ctx, n.config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f(func(n *node) { n.config.KubeletDir = "/nowhere" }, "device plugin: the kubelet's folder of device plugins /nowhere is not there")
	f(func(n *node) { n.config.Poll = time.Hour }, "poll is 1h0m0s: say 10ms to 1m")
	f(func(n *node) { n.config.Settings = "/nowhere.yaml" }, "/nowhere.yaml: no such file")
	f(func(n *node) { n.settings("resources: [{name: x}]") }, "write DOMAIN/NAME")
	f(func(n *node) { n.config.Metrics = "nowhere:1:1" }, "metrics: ")

	if _, err := NewNodeLabeler("", "test"); err == nil || !strings.Contains(err.Error(), "set NODE_NAME from spec.nodeName, or say --labels=false") {
		t.Errorf("no node: %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := NewNodeLabeler("node", "test"); err == nil || !strings.Contains(err.Error(), "--labels=false outside of Kubernetes") {
		t.Errorf("no cluster: %v", err)
	}
}
