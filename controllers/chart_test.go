package controllers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/dmindex/dmindex/controllers/internal/charttest"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
)

// monitoring are the kinds of the Prometheus operator.
var monitoring = charttest.Options{APIVersions: []string{"monitoring.coreos.com/v1/PodMonitor", "monitoring.coreos.com/v1/PrometheusRule"}}

const monitored = "{podMonitor: {enabled: true, labels: {release: prom}}, prometheusRule: {enabled: true, runbookURL: https://wiki.example.com/dm/}, dashboard: {enabled: true}, devicePlugin: {enabled: true}}"

func chart(t *testing.T, values string, o charttest.Options) *charttest.Rendered {
	t.Helper()
	rendered, err := charttest.Render(filepath.Join("..", "charts", "dmindex"), values, o)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

// podMonitor and prometheusRule are as much of the kinds of the Prometheus operator as the chart
// writes. Its own module would bring other versions of Kubernetes' modules into this one.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		NamespaceSelector struct {
			Any        bool
			MatchNames []string
		}
		Selector            metav1.LabelSelector
		PodMetricsEndpoints []struct {
			Port, Interval string
			HonorLabels    bool
			Relabelings    []struct {
				SourceLabels       []string
				Regex, TargetLabel string
			}
		}
	}
}

type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
}

// TestChartMonitoring: what needs CRDs of others is made if values ask for it and the cluster has
// them, and the notes say what was left out.
func TestChartMonitoring(t *testing.T) {
	count := func(r *charttest.Rendered, kind string) (n int) {
		for _, o := range r.Objects {
			if o.GetKind() == kind {
				n++
			}
		}
		return n
	}
	f := func(name, values string, o charttest.Options, podMonitors, rules int, dashboard bool, notes string) {
		t.Helper()
		r := chart(t, values, o)
		if a, b, c := count(r, "PodMonitor"), count(r, "PrometheusRule"), r.Find("ConfigMap", "dmindex-dashboard") != nil; a != podMonitors || b != rules || c != dashboard {
			t.Errorf("%s: %d PodMonitors, %d PrometheusRules, dashboard %v; want %d, %d, %v", name, a, b, c, podMonitors, rules, dashboard)
		}
		if (notes == "") == strings.Contains(r.Notes, "Prometheus operator") || !strings.Contains(r.Notes, notes) {
			t.Errorf("%s: notes %q", name, r.Notes)
		}
	}
	f("nothing is asked for", "", monitoring, 0, 0, false, "")
	f("all is asked for", monitored, monitoring, 3, 1, true, "")
	f("the CRDs are missing", monitored, charttest.Options{}, 0, 0, true, "has no PodMonitor")
	f("one CRD is missing", monitored, charttest.Options{APIVersions: monitoring.APIVersions[:1]}, 3, 0, true, "has no PrometheusRule")
	f("the device plugin is off", "podMonitor: {enabled: true}", monitoring, 2, 0, false, "")
}

// decode reads an object into its type, which must know all of its fields.
func decode[T any](t *testing.T, o *unstructured.Unstructured) (object T) {
	t.Helper()
	if o == nil {
		t.Fatalf("there is no %T", object)
	}
	data, err := yaml.Marshal(o.Object)
	if err == nil {
		err = yaml.UnmarshalStrict(data, &object)
	}
	if err != nil {
		t.Fatalf("%s: %v", o.GetName(), err)
	}
	return object
}

// TestChartPodMonitors: they select the pods that there are, in the namespaces that are watched, by
// the name of a port that those have.
func TestChartPodMonitors(t *testing.T) {
	r := chart(t, monitored, monitoring)
	for _, name := range []string{"dmindex", "dmindex-device-plugin"} {
		m := decode[podMonitor](t, r.Find("PodMonitor", name))
		kind := map[string]string{"dmindex": "Deployment", "dmindex-device-plugin": "DaemonSet"}[name]
		labels, _, err := unstructured.NestedStringMap(r.Find(kind, name).Object, "spec", "template", "metadata", "labels")
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range m.Spec.Selector.MatchLabels {
			if labels[k] != v {
				t.Errorf("PodMonitor %s selects %s=%s, its pods have %q", name, k, v, labels[k])
			}
		}
		if m.Labels["release"] != "prom" || len(m.Spec.PodMetricsEndpoints) != 1 || m.Spec.PodMetricsEndpoints[0].Port != "metrics" {
			t.Errorf("PodMonitor %s: %+v", name, m)
		}
	}
	if m := decode[podMonitor](t, r.Find("PodMonitor", "dmindex")); !m.Spec.PodMetricsEndpoints[0].HonorLabels {
		t.Error("the namespace of an index would be that of the operator")
	}
	for values, want := range map[string][]string{
		"podMonitor: {enabled: true}":                             {"dmindex-system"},
		"{podMonitor: {enabled: true}, watchNamespaces: [a, b]}":  {"a", "b"},
		"{podMonitor: {enabled: true}, watchAllNamespaces: true}": nil,
	} {
		m := decode[podMonitor](t, chart(t, values, monitoring).Find("PodMonitor", "dmindex-indexes"))
		if in := m.Spec.NamespaceSelector; !slices.Equal(in.MatchNames, want) || in.Any != (want == nil) {
			t.Errorf("%s: pods of indexes are scraped in %+v", values, in)
		}
	}
}

// TestChartRules: each alert leads to its runbook.
func TestChartRules(t *testing.T) {
	rule := decode[prometheusRule](t, chart(t, monitored, monitoring).Find("PrometheusRule", "dmindex"))
	n := 0
	for _, g := range rule.Spec.Groups {
		for _, r := range g.Rules {
			n++
			if got, want := r.Annotations["runbook_url"], "https://wiki.example.com/dm/"+r.Alert+".md"; got != want {
				t.Errorf("%s: %s, want %s", r.Alert, got, want)
			}
			if !strings.Contains(r.Annotations["summary"], "{{ $") && r.Alert != "DMOperatorNotLeading" {
				t.Errorf("%s: Prometheus gets no template: %q", r.Alert, r.Annotations["summary"])
			}
		}
	}
	if n < 10 {
		t.Errorf("%d alerts", n)
	}
}

// TestChartRights: the operator reads and writes Secrets and pods in the namespaces that it
// watches, and it watches those only; those of the whole cluster only if values say so.
func TestChartRights(t *testing.T) {
	f := func(values string, want []string) {
		t.Helper()
		r := chart(t, values, charttest.Options{})
		var bound, watched []string
		everywhere := false
		for _, o := range r.Objects {
			role, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
			switch {
			case o.GetKind() == "RoleBinding" && role == "dmindex":
				bound = append(bound, o.GetNamespace())
			case o.GetKind() == "ClusterRoleBinding" && role == "dmindex":
				everywhere = true
			}
		}
		containers, _, err := unstructured.NestedSlice(r.Find("Deployment", "dmindex").Object, "spec", "template", "spec", "containers")
		if err != nil {
			t.Fatal(err)
		}
		for _, arg := range containers[0].(map[string]any)["args"].([]any) {
			if ns, ok := strings.CutPrefix(arg.(string), "--namespace="); ok {
				watched = append(watched, strings.ReplaceAll(ns, "$("+envNamespace+")", "dmindex-system"))
			}
		}
		if !slices.Equal(bound, want) || !slices.Equal(watched, want) || everywhere != (want == nil) {
			t.Errorf("%s: rights in %v (everywhere: %v), watches %v; want %v", values, bound, everywhere, watched, want)
		}
	}
	f("", []string{"dmindex-system"})
	f("watchNamespaces: [a, b]", []string{"a", "b"})
	f("watchAllNamespaces: true", nil)
}

// TestAllNamespacesAgree: the component of kustomize binds the operator as the chart does.
func TestAllNamespacesAgree(t *testing.T) {
	want := renderChart(t, "watchAllNamespaces: true")["ClusterRoleBinding/dmindex"]
	got := map[string]map[string]any{}
	data, err := os.ReadFile(filepath.Join("..", "config", "all-namespaces", "role_binding.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	add(t, got, "role_binding.yaml", string(data))
	if !reflect.DeepEqual(got["ClusterRoleBinding/dmindex"], want) {
		t.Errorf("kustomize:\n%s\nchart:\n%s", text(got), text(want))
	}
}

// TestAggregatedRoles: who may edit or view in a namespace may do so with all kinds that there are.
func TestAggregatedRoles(t *testing.T) {
	r := chart(t, "", charttest.Options{})
	kinds := 0
	for _, o := range r.Objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		kinds++
		plural, _, err := unstructured.NestedString(o.Object, "spec", "names", "plural")
		if err != nil {
			t.Fatal(err)
		}
		for name, verbs := range map[string][]string{
			"dmindex-edit": {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}, "dmindex-view": {"get", "list", "watch"},
		} {
			role := decode[rbacv1.ClusterRole](t, r.Find("ClusterRole", name))
			may := slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
				return slices.Equal(rule.APIGroups, []string{"dmindex.io"}) && slices.Contains(rule.Resources, plural) && slices.Equal(rule.Verbs, verbs)
			})
			if !may {
				t.Errorf("%s does not allow %v of %s", name, verbs, plural)
			}
		}
	}
	if kinds < 4 {
		t.Errorf("%d kinds", kinds)
	}
}

// TestChartBudget: a drain leaves one of several operators, and never waits for the only one.
func TestChartBudget(t *testing.T) {
	for replicas, want := range map[string]bool{"1": false, "2": true, "5": true} {
		r := chart(t, "replicas: "+replicas, charttest.Options{})
		o := r.Find("PodDisruptionBudget", "dmindex")
		if (o != nil) != want {
			t.Errorf("with %s replicas there is a budget: %v", replicas, !want)
		}
		if o == nil {
			continue
		}
		budget, deployment := decode[policyv1.PodDisruptionBudget](t, o), decode[appsv1.Deployment](t, r.Find("Deployment", "dmindex"))
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(deployment.Spec.Template.Labels)) || selector.Empty() || budget.Namespace != deployment.Namespace {
			t.Errorf("the budget is not for the operators: %+v (%v)", budget, err)
		}
		if most := budget.Spec.MaxUnavailable; most == nil || most.IntValue() != 1 || *budget.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
			t.Errorf("the budget may hold up a drain: %+v", budget.Spec)
		}
	}
}

// TestUmbrella: a chart of others can have this one as a dependency, turned on and off by a
// condition, with what is global to all of them.
func TestUmbrella(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "charts", "dmindex"), os.DirFS(filepath.Join("..", "charts", "dmindex"))); err != nil {
		t.Fatal(err)
	}
	const of = "{apiVersion: v2, name: shop, version: 1.0.0, dependencies: [{name: dmindex, version: '*', condition: dmindex.enabled}]}"
	if err := os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(of), 0o600); err != nil {
		t.Fatal(err)
	}
	for values, want := range map[string]bool{
		"{global: {region: eu}, dmindex: {enabled: true, replicas: 1}}": true,
		"{global: {region: eu}, dmindex: {enabled: false}}":             false,
		"": true,
	} {
		r, err := charttest.Render(dir, values, charttest.Options{Release: "shop", Namespace: "shop"})
		if err != nil {
			t.Errorf("%s: %v", values, err)
			continue
		}
		deployment := r.Find("Deployment", "shop-dmindex")
		if (deployment != nil) != want || (len(r.Objects) > 0) != want {
			t.Errorf("%s: an operator: %v, %d objects", values, deployment != nil, len(r.Objects))
		}
	}
}

// TestServerImage: the image is named once, for the operator. So whatever rewrites that of its pod
// on the way changes what servers run, too.
func TestServerImage(t *testing.T) {
	f := func(values, want string) {
		t.Helper()
		d := decode[appsv1.Deployment](t, chart(t, values, charttest.Options{}).Find("Deployment", "dmindex"))
		got := ""
		for _, a := range d.Spec.Template.Spec.Containers[0].Args {
			if image, is := strings.CutPrefix(a, "--server-image="); is {
				got = image
			}
		}
		if got != want {
			t.Errorf("%s: servers run %q, want %q", values, got, want)
		}
	}
	f("", "")
	f("image: {repository: registry.example.com/dm, tag: v1}", "")
	f("serverImage: registry.example.com/dm:v2", "registry.example.com/dm:v2")
}

// TestOwnImage: servers run what the operator's container runs, whatever else is in its pod.
func TestOwnImage(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "operator-1"}}
	pod.Spec.Containers = []corev1.Container{{Name: "istio-proxy", Image: "mesh:1"}, {Name: operatorContainer, Image: "mirror/dm@sha256:1"}}
	other := pod.DeepCopy()
	other.Name, other.Spec.Containers = "operator-2", other.Spec.Containers[:1]
	reader := fake.NewClientBuilder().WithScheme(operatortest.Scheme(t)).WithObjects(pod, other).Build()
	for name, want := range map[string]string{"operator-1": "mirror/dm@sha256:1", "operator-2": "no container operator", "operator-3": "right to get pods", "": "--server-image"} {
		t.Setenv(envNamespace, "acme")
		t.Setenv(envPod, name)
		got, err := ownImage(t.Context(), reader)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("of pod %q: %s; want %s", name, got, want)
		}
	}
}

// TestReads: an operator that may not read what it looks after is not ready, and says what is
// missing.
func TestReads(t *testing.T) {
	var denied atomic.Bool
	denied.Store(true)
	reader := fake.NewClientBuilder().WithScheme(operatortest.Scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, pods := list.(*corev1.PodList); pods && denied.Load() && (&client.ListOptions{}).ApplyOptions(o).Namespace == "bank" {
				return apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))
			}
			return c.List(ctx, list, o...)
		},
	}).Build()
	r := &reads{from: reader, namespaces: []string{"shop", "bank"}}
	if err := r.check(nil); err == nil {
		t.Error("it is ready before it looked")
	}
	err := r.look(t.Context())
	if err == nil || !strings.Contains(err.Error(), "namespace bank") || !strings.Contains(err.Error(), "with a RoleBinding") {
		t.Errorf("what is missing: %v", err)
	}
	denied.Store(false)
	if err := errors.Join(r.Start(t.Context()), r.check(nil)); err != nil || r.NeedLeaderElection() {
		t.Errorf("with all rights: %v", err)
	}
}
