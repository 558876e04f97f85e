//go:build e2e && ownnodes

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dmindex/dmindex/deviceplugin/hca/sysfstest"
)

const (
	pluginSelector = "app.kubernetes.io/name=dmindex,app.kubernetes.io/component=device-plugin"
	pluginName     = "dmindex-device-plugin"
	nodeFolder     = "/var/lib/kubelet/e2e-rdma" // each node has a /var/lib/kubelet of its own
)

// machine makes a node look as if it had HCAs: a sysfs and device nodes, in a folder of the node.
func (s *space) machine(number int, devices ...sysfstest.Device) *sysfstest.Tree {
	s.Helper()
	state := os.Getenv("DMINDEX_STATE")
	if state == "" {
		state = "/var/tmp/dmindex-cluster" // as hack/cluster/lib/paths.sh has it
	}
	folder := filepath.Join(state, fmt.Sprintf("node%d", number), "kubelet", filepath.Base(nodeFolder))
	s.Cleanup(func() { os.RemoveAll(folder) })
	tree := sysfstest.New(s, filepath.Join(folder, "sys"))
	dev := filepath.Join(folder, "dev", "infiniband")
	if err := os.MkdirAll(dev, 0o755); err != nil {
		s.Fatal(err)
	}
	for i, name := range []string{"rdma_cm", "uverbs0", "uverbs1", "uverbs2"} {
		// The numbers of real ones. Nobody serves them here: who may open one is told that there is
		// no such device.
		file := filepath.Join(dev, name)
		if err := unix.Mknod(file, unix.S_IFCHR|0o666, int(unix.Mkdev(231, uint32(192+i)))); err != nil {
			s.Fatalf("mknod %s: %v", file, err)
		}
		if err := os.Chmod(file, 0o666); err != nil { // whatever the umask
			s.Fatal(err)
		}
	}
	tree.CM()
	for _, d := range devices {
		tree.Add(d)
	}
	return tree
}

// helmUpgrade changes values of the installation.
func (s *space) helmUpgrade(values ...string) {
	s.Helper()
	args := []string{"upgrade", "dmindex", "../../charts/dmindex", "--namespace", target.system, "--reuse-values"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	if out, err := execute(context.Background(), "", target.helm, args...); err != nil {
		s.Fatalf("helm upgrade: %v\n%s", err, out)
	}
}

// has waits until a node has so many slots, of which so many can be given out.
func (s *space) has(node string, capacity, allocatable int) {
	s.Helper()
	want := fmt.Sprintf("%d %d", capacity, allocatable)
	s.eventually(short, fmt.Sprintf("%s has %d slots, %d allocatable", node, capacity, allocatable), func() (bool, string) {
		got := s.jsonpath("node/"+node, `{.status.capacity.dmindex\.io/rdma} {.status.allocatable.dmindex\.io/rdma}`)
		return got == want, got
	})
}

// labelled waits until a node has labels: number of HCAs, link layer, device memory, masked
// atomics.
func (s *space) labelled(node, want string) {
	s.Helper()
	s.eventually(short, node+" is labelled "+want, func() (bool, string) {
		got := s.jsonpath("node/"+node, `{.metadata.labels.rdma\.dmindex\.io/hcas} {.metadata.labels.rdma\.dmindex\.io/link-layer} `+
			`{.metadata.labels.rdma\.dmindex\.io/device-memory} {.metadata.labels.rdma\.dmindex\.io/masked-atomics}`)
		return got == want, got
	})
}

// user is a pod on a node that wants slots.
func (s *space) user(name, node string, slots int) {
	s.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: user
    image: %s
    imagePullPolicy: IfNotPresent
    command: [sleep, infinity]
    resources: {limits: {dmindex.io/rdma: %d}}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`, name, node, target.toolsImage, slots))
	s.kubectl("wait", "pod/"+name, "--for=condition=Ready", "--timeout=80s")
}

// inPod runs a shell's line in a pod and returns what it prints, also if it fails.
func (s *space) inPod(pod, line string) string {
	s.Helper()
	out, _ := s.try("exec", pod, "--", "sh", "-c", line)
	return out
}

func (s *space) system(args ...string) string {
	s.Helper()
	return s.kubectl(append([]string{"--namespace", target.system}, args...)...)
}

// TestDevicePlugin installs the device plugin with the chart on nodes that look as if they had
// HCAs, and lets real kubelets give them to pods: what pods get; a kubelet that restarts; a port
// that goes down and comes back; an HCA that is plugged in; labels, and who may set them; pools
// with RDMA; its end.
func TestDevicePlugin(t *testing.T) {
	s := newSpaceAlone(t)
	node1 := s.machine(1,
		sysfstest.Device{Name: "mlx5_0", PCI: "0000:3b:00.0", Interface: "ens1"},
		sysfstest.Device{Name: "mlx5_1", PCI: "0000:5e:00.0", Interface: "ens2"})
	node2 := s.machine(2, sysfstest.Device{Name: "mlx5_0", PCI: "0000:3b:00.0", LinkLayer: "InfiniBand", Product: "1013"})
	s.machine(3)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := s.try("--namespace", target.system, "logs", "--selector="+pluginSelector, "--prefix", "--tail=30")
			t.Logf("the plugins:\n%s", log)
		}
		s.helmUpgrade("devicePlugin.enabled=false")
		s.has("node1", 3, 0) // the kubelet keeps the capacity for a while
	})
	s.helmUpgrade("devicePlugin.enabled=true", "devicePlugin.poll=1s", "devicePlugin.sysPath="+nodeFolder+"/sys", "devicePlugin.devPath="+nodeFolder+"/dev",
		"devicePlugin.resources[0].name=dmindex.io/rdma", "devicePlugin.resources[0].slots=1")
	s.system("rollout", "status", "daemonset/"+pluginName, "--timeout=80s")
	s.has("node1", 2, 2)
	s.has("node2", 1, 1)
	s.is(s.jsonpath("node/node3", `{.status.capacity.dmindex\.io/rdma}`), "")

	s.labelled("node1", "2 Ethernet true true")
	s.labelled("node2", "1 InfiniBand false true")
	s.labelled("node3", "   ")

	// A pod gets an HCA: its device nodes, which it may open, and no others; and what to do with
	// them.
	s.user("first", "node1", 1)
	device := s.inPod("first", "echo $DMINDEX_RDMA_DEVICE")
	verbs := strings.Replace(device, "mlx5_", "uverbs", 1)
	s.is(s.inPod("first", "echo $DMINDEX_RDMA_PORT $DMINDEX_RDMA_GID_INDEX $DMINDEX_RDMA_LINK_LAYER $DMINDEX_RDMA_NUMA_NODE"), "1 3 Ethernet 0")
	s.is(s.inPod("first", "ls /dev/infiniband"), "rdma_cm\n"+verbs)
	if out := s.inPod("first", "cat /dev/infiniband/"+verbs+" 2>&1"); !strings.Contains(out, "No such device or address") {
		t.Errorf("opening %s says %q: want that nobody serves it", verbs, out)
	}

	// The kubelet restarts: the plugin registers again, and the pod goes on.
	plugin := s.system("get", "pods", "--selector="+pluginSelector, "--field-selector=spec.nodeName=node1", "--output=name")
	const says = "registered with the kubelet"
	before, restarts := strings.Count(s.system("logs", plugin), says), s.restarts("first")
	s.node("restart", "1")
	s.eventually(short, "the plugin registers again", func() (bool, string) {
		// the kubelet gives logs when it is back
		log, err := s.try("--namespace", target.system, "logs", plugin)
		return err == nil && strings.Count(log, says) > before, tail(log, 5)
	})
	s.has("node1", 2, 2)
	s.user("second", "node1", 1) // gets the other one
	if other := s.inPod("second", "echo $DMINDEX_RDMA_DEVICE"); other == device || !strings.HasPrefix(other, "mlx5_") {
		t.Errorf("the pods have %q and %q", device, other)
	}
	s.is(s.restarts("first"), restarts)

	// A port goes down and comes back; another HCA is plugged in, and a pod gets two.
	node1.SetState("mlx5_1", 1, "1: DOWN")
	s.has("node1", 2, 1)
	node1.SetState("mlx5_1", 1, "4: ACTIVE")
	s.has("node1", 2, 2)
	node1.Add(sysfstest.Device{Name: "mlx5_2", PCI: "0000:af:00.0", Interface: "ens3"})
	s.has("node1", 3, 3)
	s.kubectl("delete", "pod/second")
	s.user("both", "node1", 2)
	if got := strings.Split(s.inPod("both", "echo $DMINDEX_RDMA_DEVICE"), ","); len(got) != 2 {
		t.Errorf("a pod that wants two HCAs has %q", got)
	}
	s.labelled("node1", "3 Ethernet true true")
	s.ownNodeOnly()
	s.poolWithRDMA("node2")
	s.refusedByKubelet(2, node2, "mlx5_0")

	// Another plugin advertises the HCA of node 2: it is left to that one.
	s.otherPlugin("2")
	s.eventually(short, "the other plugin has the HCA", func() (bool, string) {
		got := s.jsonpath("node/node2", `{.status.allocatable.example\.com/roce}`)
		return got == "1", got
	})
	s.has("node2", 0, 0)
	s.labelled("node2", "   ")
}

// otherPlugin runs a device plugin on a node that calls devices by their PCI addresses, as that for
// SR-IOV does, and looks for no others.
func (s *space) otherPlugin(node string) {
	s.Helper()
	objects := fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: e2e-other-plugin, namespace: %[1]s}
data:
  settings.yaml: "sriov: {file: /etc/other/config.json, use: Advertise, resourcePrefix: example.com}"
  config.json: '{"resourceList": [{"resourceName": "roce", "selectors": {"vendors": ["15b3"], "isRdma": true}}]}'
---
apiVersion: v1
kind: Pod
metadata: {name: e2e-other-plugin, namespace: %[1]s}
spec:
  nodeName: node%[2]s
  automountServiceAccountToken: false
  containers:
  - name: other
    image: %[3]s
    imagePullPolicy: IfNotPresent
    args: [device-plugin, --settings=/etc/other/settings.yaml, --sysfs=/node/sys, --metrics=]
    securityContext: {runAsUser: 0}
    volumeMounts:
    - {name: settings, mountPath: /etc/other}
    - {name: sys, mountPath: /node/sys}
    - {name: device-plugins, mountPath: /var/lib/kubelet/device-plugins}
  volumes:
  - {name: settings, configMap: {name: e2e-other-plugin}}
  - {name: sys, hostPath: {path: %[4]s/sys}}
  - {name: device-plugins, hostPath: {path: /var/lib/kubelet/device-plugins}}
`, target.system, node, target.image, nodeFolder)
	on := func(verb string, args ...string) (string, error) {
		return execute(context.Background(), objects, target.kubectl, append([]string{verb, "-f", "-"}, args...)...)
	}
	s.Cleanup(func() {
		if s.Failed() {
			log, _ := s.try("--namespace", target.system, "logs", "e2e-other-plugin")
			s.Logf("the other plugin:\n%s", tail(log, 10))
		}
		if out, err := on("delete", "--ignore-not-found", "--timeout=80s"); err != nil {
			s.Errorf("delete the other plugin: %v\n%s", err, out)
		}
	})
	if out, err := on("apply"); err != nil {
		s.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

// ownNodeOnly: with the plugin's rights, only labels of its own can be set, and only on its own
// node.
func (s *space) ownNodeOnly() {
	s.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		s.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + target.system + ":" + pluginName,
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {"node1"}},
	}
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		s.Fatal(err)
	}
	f := func(node, patch, want string) {
		s.Helper()
		_, err := client.Nodes().Patch(context.Background(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if text := fmt.Sprint(err); !strings.Contains(text, want) {
			s.Errorf("patch %s of %s: %s, want %q", patch, node, text, want)
		}
	}
	f("node1", `{"metadata":{"labels":{"rdma.dmindex.io/hcas":"7"}}}`, "<nil>")
	f("node2", `{"metadata":{"labels":{"rdma.dmindex.io/hcas":"7"}}}`, "its own node only")
	f("node1", `{"metadata":{"labels":{"topology.kubernetes.io/zone":"x"}}}`, "labels that begin with rdma.dmindex.io/ only")
	f("node1", `{"metadata":{"labels":{"kubernetes.io/hostname":null}}}`, "labels that begin with rdma.dmindex.io/ only")
	f("node1", `{"metadata":{"annotations":{"x":"y"}}}`, "labels only")
	f("node1", `{"spec":{"unschedulable":true}}`, "labels only")
}
