package envtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// patched is an index whose pods get a log shipper and a volume, leave it to the cluster as whom
// they run, and run with a RuntimeClass.
const patched = `
apiVersion: dmindex.io/v1alpha1
kind: DMIndex
metadata: {name: NAME}
spec:
  design: Sherman
  durability: Memory
  key: {type: Uint64}
  value: {maxLength: 8}
  memoryPools:
  - name: memory
    template:
      servers: 1
      memory: 512Mi
      spread: {zones: Preferred}
      pod: &pod
        runtimeClassName: CLASS
        hostAliases: [{ip: 192.0.2.7, hostnames: [proxy.corp]}]
        env: [{name: HTTPS_PROXY, value: "http://proxy.corp:3128"}]
        tolerations: [{key: dedicated, operator: Exists}]
        patch: &patch
          containers:
          - {name: shipper, image: shipper:1, volumeMounts: [{name: trust, mountPath: /trust}]}
          volumes: [{name: trust, configMap: {name: corporate-ca}}]
          securityContext: {$patch: replace, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  computePools:
  - {name: compute, template: {replicas: 1, spread: {zones: Preferred}, pod: *pod}}
`

// TestPatchedPods: an API server takes the patch of a template and the pods that are made with it,
// of pools and of Jobs. A patch that would break them is told, with the object, and nothing becomes
// of the pods that are there; a good one in its place is what they are replaced by.
func TestPatchedPods(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	class := c.namespace + "-class"
	if err := api.Create(t.Context(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Handler: "runc"}); err != nil {
		t.Fatal(err)
	}
	c.start(0)
	c.create(strings.ReplaceAll(patched, "CLASS", class), "demo")
	c.available("demo")
	look := func(pod, shipper string) {
		t.Helper()
		p := c.pod(pod)
		s := p.Spec
		user := s.SecurityContext
		if got := fmt.Sprint(s.Containers[1].Name, " ", s.Containers[1].Image, " ", *s.RuntimeClassName, " ", s.HostAliases[0].Hostnames); got != "shipper "+shipper+" "+class+" [proxy.corp]" {
			t.Errorf("%s: %s", pod, got)
		}
		if s.Containers[0].Name != p.Labels[dmv1.LabelComponent] || user.RunAsUser != nil || user.FSGroup != nil || !*user.RunAsNonRoot {
			t.Errorf("%s: %+v, %+v", pod, s.Containers, user)
		}
		if !slices.ContainsFunc(s.Tolerations, func(t corev1.Toleration) bool { return t.Key == "dedicated" }) {
			t.Errorf("%s: %v", pod, s.Tolerations)
		}
		if len(s.TopologySpreadConstraints) != 2 || s.TopologySpreadConstraints[1].TopologyKey != corev1.LabelTopologyZone {
			t.Errorf("%s: %v", pod, s.TopologySpreadConstraints)
		}
		if got := c.env(pod, "HTTPS_PROXY"); fmt.Sprint(got) != "[HTTPS_PROXY=http://proxy.corp:3128]" {
			t.Errorf("%s: %v", pod, got)
		}
	}
	look("demo-memory-0", "shipper:1")
	look("demo-compute-0", "shipper:1")
	c.settled("demo")

	index := c.index("demo")
	change := func(to string) {
		t.Helper()
		c.patch("demo", index, func() {
			for _, pod := range []*dmv1.PodTemplate{&index.Spec.MemoryPools[0].Template.Pod, &index.Spec.ComputePools[0].Template.Pod} {
				pod.Patch = &runtime.RawExtension{Raw: []byte(to)}
			}
		})
	}
	events := c.operator.events.Load()
	change(`{"containers": [{"name": "shipper", "imagee": "shipper:2"}]}`)
	const wrong = `unknown field "containers[0].imagee"`
	c.memoryPoolReady("demo-memory", dmv1.ReasonPatchRefused, "pod.patch of DMMemoryPool demo-memory cannot be used, and no pod is made: "+wrong)
	c.computePoolReady("demo-compute", dmv1.ReasonPatchRefused, wrong)
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionTrue, dmv1.ReasonPatchRefused, wrong)
	c.eventually("events", func() string {
		told := c.operator.said(events)
		for _, pool := range []string{"DMMemoryPool demo-memory", "DMComputePool demo-compute"} {
			if !strings.Contains(told, "pod.patch of "+pool+" cannot be used") {
				return told
			}
		}
		return ""
	})
	c.quiet(2 * time.Second)
	c.available("demo")
	if got := fmt.Sprint(c.pods("demo-memory"), c.pods("demo-compute"), c.nextID("demo-compute")); got != "[demo-memory-0] [demo-compute-0]1" {
		t.Errorf("pods, and the next number: %s", got)
	}

	change(`{"containers": [{"name": "shipper", "image": "shipper:3"}], "securityContext": {"$patch": "replace", "runAsNonRoot": true}}`)
	c.equal("compute pods", "[demo-compute-1]", func() any { return c.pods("demo-compute") })
	c.equal("shippers of the memory pods", "[shipper:3]", func() any {
		var images []string
		for _, pod := range c.pods("demo-memory") {
			p := &corev1.Pod{}
			if c.get(pod, p) == nil {
				images = append(images, p.Spec.Containers[1].Image)
			}
		}
		return images
	})
	look("demo-compute-1", "shipper:3")
	c.available("demo")
	c.settled("demo")
}

// TestPatchedJob: the pods of a Job are patched, and one whose patch would break it is not made.
func TestPatchedJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	f := func(name, patch string) {
		c.create(strings.TrimSpace(backup)+"\n  pod: {patch: {"+patch+"}}", name)
	}
	f("bad", "containers: [{name: proxy, image: 'proxy:1'}]")
	c.phase("bad", dmv1.BackupPending, dmv1.ReasonPatchRefused, "container proxy would keep the Job from ending")
	c.noJob("bad-dump")
	c.delete(c.backup("bad"))
	c.gone("bad", &dmv1.DMBackup{})
	f("good", "initContainers: [{name: proxy, image: 'proxy:1', restartPolicy: Always}]")
	spec := c.job("good-dump").Spec.Template.Spec
	if always := corev1.ContainerRestartPolicyAlways; len(spec.InitContainers) != 1 || spec.InitContainers[0].RestartPolicy == nil || *spec.InitContainers[0].RestartPolicy != always {
		t.Errorf("init containers: %+v", spec.InitContainers)
	}
}
