package envtest

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/controllers/internal/charttest"
)

const system = "dmindex-system"

// ownServer starts an API server of this test alone, without CRDs, which a chart brings.
func ownServer(t *testing.T) (*rest.Config, client.Client) {
	t.Helper()
	apiserver, etcd, err := assets()
	if err != nil {
		t.Fatal(err)
	}
	environment, config, err := startServers(apiserver, etcd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{system, "shop", "bank"} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	return config, c
}

// namespaced gives an object that says nothing of a namespace that of the release, as helm does.
func namespaced(t *testing.T, c client.Client, o *unstructured.Unstructured) {
	t.Helper()
	is, err := c.IsObjectNamespaced(o)
	if err != nil {
		t.Fatal(err)
	}
	if is && o.GetNamespace() == "" {
		o.SetNamespace(system)
	}
}

// install applies what a chart makes, as helm does: with annotations that say of which release it
// is.
func install(t *testing.T, c client.Client, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		namespaced(t, c, o)
		all := map[string]string{"meta.helm.sh/release-name": "dmindex", "meta.helm.sh/release-namespace": system}
		maps.Copy(all, o.GetAnnotations())
		o.SetAnnotations(all)
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("helm"), client.ForceOwnership); err != nil {
			t.Fatalf("install %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// created makes an object whose kind the API server may have to learn of first.
func created(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for begun := time.Now(); ; <-tick.C {
		err := c.Create(t.Context(), o)
		if err == nil {
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatal(err)
		}
	}
}

func rendered(t *testing.T, chart, values string, cluster *rest.Config) *charttest.Rendered {
	t.Helper()
	r, err := charttest.Render(chart, values, charttest.Options{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var newChart = filepath.Join("..", "..", "charts", "dmindex")

// valueSets are values of the chart that say each of them at least once.
var valueSets = map[string]string{
	"defaults":       "",
	"all namespaces": "{watchAllNamespaces: true, aggregatedRoles: false, crds: {enabled: false}}",
	"two namespaces": "{watchNamespaces: [shop, bank], replicas: 1}",
	"policies":       "{networkPolicies: {enabled: true, metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}, {ipBlock: {cidr: 10.0.0.0/8}}]}, devicePlugin: {enabled: true}}",
	"monitoring":     "{podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true, labels: {a: b}}, pprof: true, log: {level: debug, format: text}, serverLog: {level: warn, format: json}}",
	"pods": `
image: {repository: registry.example.com:5000/dmindex, tag: "1", pullPolicy: Always}
pullSecrets: [one, two]
serverImage: server:1
serverImageRDMA: rdma:1
nodeSelector: {a: b}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}
priorityClassName: system-cluster-critical
podLabels: {a: b}
podAnnotations: {a: b}
resources: {}
`,
	"the device plugin": `
devicePlugin:
  enabled: true
  resources: [{name: dmindex.io/rdma, slots: 4, select: [{linkLayers: [Ethernet], devices: ["mlx5_*"]}], excludeTopology: true}]
  sriov: {configMap: sriovdp-config, use: Advertise, resourcePrefix: example.com}
  sharedRDMA: {configMap: rdma-devices}
  labels: false
  nodeSelector: {a: b}
  tolerations: [{operator: Exists}]
  affinity: {podAntiAffinity: {}}
  seLinuxOptions: {type: spc_t}
`,
}

// TestChartValues: whatever the values, an API server takes all that the chart makes.
func TestChartValues(t *testing.T) {
	t.Parallel()
	config, c := ownServer(t)
	for name, values := range valueSets {
		n := 0
		for _, o := range rendered(t, newChart, values, config).Objects {
			namespaced(t, c, o)
			// fields that the API server does not know are refused, too
			err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("helm"), client.DryRunAll)
			if err != nil {
				t.Errorf("%s: %s %s: %v", name, o.GetKind(), o.GetName(), err)
			}
			n++
		}
		if n < 7 {
			t.Errorf("%s: %d objects", name, n)
		}
	}
}

// TestChartRefuses: values that cannot be meant are refused with a sentence that says what to do.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"{watchAllNamespaces: true, watchNamespaces: [shop]}": "take one of them away",
		"{watchNamespace: [shop]}":                            "watchNamespace",
		"{networkPolicies: {metricsFrom: [{}]}}":              "metricsFrom",
	} {
		if _, err := charttest.Render(newChart, values, charttest.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", values, err, want)
		}
	}
}

// TestChartUpgrade installs the chart of 9a40328, makes indexes with it, and installs this one over
// it: nothing that cannot be changed is changed, no object is left behind, and the indexes are
// still good. It says nothing of data: regions and indexes have had other formats since.
func TestChartUpgrade(t *testing.T) {
	t.Parallel()
	config, c := ownServer(t)
	old := rendered(t, filepath.Join("testdata", "chart-9a40328.tgz"), "devicePlugin: {enabled: true}", config)
	install(t, c, old.Objects)
	text, err := os.ReadFile(filepath.Join("testdata", "samples-9a40328.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	samples, err := charttest.Parse(string(text))
	if err != nil || len(samples) != 3 {
		t.Fatalf("%d samples, %v", len(samples), err)
	}
	for _, o := range samples {
		o.SetNamespace("shop")
		created(t, c, o)
	}
	// The operator of that chart watched everything: an upgrade does not silently leave indexes
	// alone.
	const plugin = "devicePlugin: {enabled: true}"
	if _, err := charttest.Render(newChart, plugin, charttest.Options{Cluster: config}); err == nil || !strings.Contains(err.Error(), "set watchAllNamespaces=true to leave that as it is") {
		t.Fatalf("the operator would watch its own namespace only: %v", err)
	}
	upgraded := rendered(t, newChart, plugin+"\nwatchAllNamespaces: true", config)
	install(t, c, upgraded.Objects)
	for _, was := range old.Objects {
		if upgraded.Find(was.GetKind(), was.GetName()) == nil {
			t.Errorf("%s %s would be deleted", was.GetKind(), was.GetName())
		}
	}
	for _, o := range samples {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), live); err != nil {
			t.Fatal(err)
		}
		// as it is validated at any change of it
		live.SetAnnotations(map[string]string{"example.com/touched": "yes"})
		if err := c.Update(t.Context(), live); err != nil {
			t.Errorf("%s %s of the old chart cannot be changed any more: %v", o.GetKind(), o.GetName(), err)
		}
	}
	// Another release beside it is told what is in its way, and which values it needs.
	if _, err := charttest.Render(newChart, "", charttest.Options{Cluster: config, Namespace: "bank"}); err == nil || !strings.Contains(err.Error(), "give this release another name") {
		t.Errorf("a release of the same name: %v", err)
	}
	if _, err := charttest.Render(newChart, "", charttest.Options{Cluster: config, Namespace: "bank", Release: "two"}); err == nil || !strings.Contains(err.Error(), "set crds.enabled=false here") {
		t.Errorf("a release with CRDs of its own: %v", err)
	}
	beside := func(namespace, values string) (*charttest.Rendered, error) {
		return charttest.Render(newChart, "{crds: {enabled: false}"+values+"}", charttest.Options{Cluster: config, Namespace: namespace, Release: "two"})
	}
	refused := func(namespace, values, want string) {
		t.Helper()
		if _, err := beside(namespace, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a release in %s with %q: %v; want %q", namespace, values, err, want)
		}
	}
	refused("bank", "", "release dmindex of namespace dmindex-system watches all namespaces: name in its watchNamespaces those that it shall have")
	// And it goes on to some namespaces when the values say which. Helm deletes what is left out.
	install(t, c, rendered(t, newChart, "watchNamespaces: [shop]", config).Objects)
	if err := c.Delete(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "dmindex"}}); err != nil {
		t.Fatal(err)
	}
	rendered(t, newChart, "watchNamespaces: [shop]", config) // it is no other release than itself
	refused("bank", ", watchNamespaces: [bank, shop]", "release dmindex of namespace dmindex-system watches namespace shop: take it out of the watchNamespaces of one of the two releases")
	refused("bank", ", watchAllNamespaces: true", "watches namespace shop")
	refused(system, ", watchNamespaces: [bank]", "release dmindex of namespace dmindex-system has its operator in namespace dmindex-system, and of two operators in one namespace only one works")
	second, err := beside("bank", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range second.Objects {
		if o.GetKind() == "Namespace" || upgraded.Find(o.GetKind(), o.GetName()) != nil && o.GetNamespace() != "bank" {
			t.Errorf("both releases have %s %s", o.GetKind(), o.GetName())
		}
	}
}

// TestNetworkPolicies: an operator that is told to makes a policy for the pods of each pool, and
// puts it right; one that is not makes none.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	for _, pool := range []string{"demo-memory", "demo-compute"} {
		if err := c.get(pool, &networkingv1.NetworkPolicy{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s has a policy nobody asked for: %v", pool, err)
		}
	}
	c.stop()
	c.policies = system
	c.start(0)
	for _, pool := range []string{"demo-memory", "demo-compute"} {
		policy := &networkingv1.NetworkPolicy{}
		c.eventually("policy of "+pool, func() string {
			if err := c.get(pool, policy); err != nil {
				return err.Error()
			}
			return ""
		})
		for _, name := range c.pods(pool) {
			selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
			if err != nil || !selector.Matches(labels.Set(c.pod(name).Labels)) {
				t.Errorf("the policy of %s does not select %s: %v", pool, name, err)
			}
		}
	}
	c.settled("demo")
}
