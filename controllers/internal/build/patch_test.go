package build

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

func patchOf(t *testing.T, text string) *runtime.RawExtension {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &runtime.RawExtension{Raw: raw}
}

// patchable pods, by the name of the server's container.
func podsToPatch() map[string]*corev1.PodSpec {
	index := testIndex()
	memory, compute := MemoryPool(index, index.Spec.MemoryPools[0], "i"), ComputePool(index, index.Spec.ComputePools[0], "i")
	overRDMA := memory.DeepCopy()
	overRDMA.Spec.Transport = dmv1.TransportRDMA
	return map[string]*corev1.PodSpec{
		"memory": &MemoryPod(memory, 0, "i").Spec, "compute": &ComputePod(compute, 0, 0, "uid", "i", "h").Spec,
		"backup": &artifactJob("job", "ns", dmv1.BackupTemplate{}, "i", time.Minute).Spec.Template.Spec,
		"RDMA":   &MemoryPod(overRDMA, 0, "i").Spec,
	}
}

// TestPatch: a patch adds what it says, the server's container stays the first one, and all that is
// not in the patch is as it was.
func TestPatch(t *testing.T) {
	const text = `
volumes: [{name: trust, configMap: {name: corporate-ca}}]
initContainers: [{name: proxy, image: mesh:1, restartPolicy: Always, ports: [{containerPort: 15001}]}]
containers:
- {name: SERVER, envFrom: [{configMapRef: {name: proxies}}], volumeMounts: [{name: trust, mountPath: /etc/ssl/certs, readOnly: true}]}
securityContext: {$patch: replace, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
terminationGracePeriodSeconds: 120
`
	for name, pod := range podsToPatch() {
		if name == "RDMA" {
			continue
		}
		before := pod.DeepCopy()
		if err := Patch(pod, patchOf(t, strings.ReplaceAll(text, "SERVER", name))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s := pod.SecurityContext; s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || !*s.RunAsNonRoot {
			t.Errorf("%s: the cluster is to say as whom it runs: %+v", name, s)
		}
		c := &pod.Containers[0]
		if *pod.TerminationGracePeriodSeconds != 120 || len(pod.Volumes) != len(before.Volumes)+1 || len(pod.InitContainers) != 1 ||
			len(c.EnvFrom) != 1 || len(c.VolumeMounts) != len(before.Containers[0].VolumeMounts)+1 {
			t.Errorf("%s: %+v", name, pod)
		}
		// taken out again, it is the pod of before
		pod.SecurityContext, pod.TerminationGracePeriodSeconds, pod.InitContainers = before.SecurityContext, before.TerminationGracePeriodSeconds, nil
		pod.Volumes, c.VolumeMounts, c.EnvFrom = before.Volumes, before.Containers[0].VolumeMounts, nil
		if !equality.Semantic.DeepEqual(pod, before) {
			t.Errorf("%s: something else was changed: %+v, was %+v", name, pod, before)
		}
	}
	for _, name := range []string{"memory", "compute"} {
		pod := podsToPatch()[name]
		if err := Patch(pod, patchOf(t, "containers: [{name: log-shipper, image: shipper:1}]")); err != nil {
			t.Fatal(err)
		}
		if len(pod.Containers) != 2 || pod.Containers[0].Name != name {
			t.Errorf("%s: the server is not the first container: %+v", name, pod.Containers)
		}
	}
}

// TestPatchOfTheManual: the patch that the manual shows can be used.
func TestPatchOfTheManual(t *testing.T) {
	page, err := os.ReadFile("../../../docs/kubernetes/indexes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```yaml\npod:\n")
	block, _, _ = strings.Cut(block, "```")
	var template dmv1.PodTemplate
	if err := yaml.UnmarshalStrict([]byte(block), &template); err != nil || template.Patch == nil {
		t.Fatalf("%v in %q", err, block)
	}
	pod := podsToPatch()["compute"]
	if err := Patch(pod, template.Patch); err != nil || len(pod.Containers) != 2 {
		t.Errorf("%v: %+v", err, pod.Containers)
	}
}

// TestPatchRefused: a patch that would break a pod, or that says what pods do not have, is refused
// with a sentence, and changes nothing.
func TestPatchRefused(t *testing.T) {
	f := func(to, patch, want string) {
		t.Helper()
		pod := podsToPatch()[to]
		before := pod.DeepCopy()
		switch err := Patch(pod, patchOf(t, patch)); {
		case err == nil:
			t.Errorf("%s: %s was accepted; want %q", to, patch, want)
		case !strings.Contains(err.Error(), want):
			t.Errorf("%s: %s: %v; want %q", to, patch, err, want)
		}
		if !equality.Semantic.DeepEqual(pod, before) {
			t.Errorf("%s: %s changed the pod", to, patch)
		}
	}
	for _, to := range []string{"memory", "compute", "backup"} {
		server := func(fields string) string { return "containers: [{name: " + to + ", " + fields + "}]" }
		f(to, "contianers: []", `unknown field "contianers"`)
		f(to, "spec: {dnsPolicy: Default}", `unknown field "spec"`)
		f(to, "containers: [{name: log, imagee: x}]", `unknown field "containers[0].imagee"`)
		f(to, "Volumes: []", `unknown field "Volumes"`)
		f(to, "dnsPolicy: {a: 1}", "cannot unmarshal")
		f(to, "[]", "cannot unmarshal")
		f(to, "securityContext: {runAsUser: null}", "securityContext.runAsUser is null")
		f(to, "containers: [{image: x}]", "name")
		f(to, server("$patch: delete"), "container "+to+" is the server")
		f(to, "containers: [{$patch: replace}, {name: x, image: other}]", "container "+to+" is the server")
		f(to, server("image: other:1"), "image of container "+to+" is not changed by a patch: use image beside pod")
		f(to, server("command: [sh]"), "command of container "+to+" is the operator's")
		f(to, server("args: [--memory=1]"), "args of container "+to+" is the operator's")
		f(to, server("env: [{name: A, value: b}]"), "use pod.env")
		f(to, server("resources: {limits: {memory: 1Mi}}"), "use pod.resources")
		f(to, "tolerations: [{key: a}]", "tolerations is not changed by a patch: use pod.tolerations")
		f(to, "hostNetwork: true", "hostNetwork is the operator's")
		f(to, "restartPolicy: OnFailure", "restartPolicy is the operator's")
		f(to, "hostname: a", "hostname is the operator's")
		f(to, "subdomain: a", "subdomain is the operator's")
		f(to, "nodeName: a", "nodeName is the operator's")
		f(to, "activeDeadlineSeconds: 60", "activeDeadlineSeconds is the operator's")
		f(to, "terminationGracePeriodSeconds: 1", "must be at least")
		f(to, "$retainKeys: [{}]", "$retainKeys must be a list of texts or numbers")
		f(to, "securityContext: {$retainKeys: [[]]}", "must be a list of texts or numbers")
		f(to, "securityContext: {$deleteFromPrimitiveList/supplementalGroups: [{}]}", "must be a list of texts or numbers")
		f(to, "initContainers: [{name: "+to+", image: x}]", "needs a name that no other container")
		f(to, "initContainers: [{name: \"\", image: x}]", "needs a name that no other container")
	}
	for _, to := range []string{"memory", "compute"} {
		server := func(fields string) string { return "containers: [{name: " + to + ", " + fields + "}]" }
		f(to, "volumes: [{name: tls, $patch: delete}]", "volume tls is the operator's")
		f(to, "volumes: [{name: tls, secret: {secretName: mine}}]", "volume tls is the operator's")
		f(to, server("volumeMounts: [{mountPath: /etc/dmindex/tls, name: mine}]"), "mount tls is the operator's")
		f(to, server("volumeMounts: [{mountPath: /etc/dmindex, name: mine}]"), "mountPath /etc/dmindex hides")
		f(to, server("volumeMounts: [{mountPath: /etc/dmindex/tls/more, name: mine}]"), "mountPath /etc/dmindex/tls/more hides, or lies in")
		f(to, server("ports: [{containerPort: 9090, name: mine}]"), "port ")
		f(to, server("livenessProbe: {httpGet: {path: /x}}"), "livenessProbe of container "+to+" asks the server itself")
		f(to, "containers: [{name: x, image: other, volumeMounts: [{name: tls, mountPath: /x}]}]", "write readOnly: true")
	}
	f("memory", "containers: [{name: x, image: other, ports: [{containerPort: 7470}]}]", "port ")
	f("backup", "containers: [{name: x, image: other}]", "container x would keep the Job from ending")
	f("RDMA", "securityContext: {runAsUser: 1000}", "run as user 0")
	f("RDMA", "securityContext: {$patch: replace, runAsNonRoot: true}", "run as user 0")
	f("RDMA", "containers: [{name: memory, securityContext: {capabilities: {add: [NET_RAW]}}}]", "need capability IPC_LOCK")
}
