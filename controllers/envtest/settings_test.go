package envtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/pkg/settings"
)

// TestSettings: settings of pools reach their pods without a new pod where servers take them while
// they run, and replace the pods where they do not. Wrong ones are refused with a sentence.
func TestSettings(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(strings.Replace(index, "replicas: 2", "replicas: 2, settings: {maxConnections: 5000}", 1), "demo")
	c.available("demo")

	file := func(pool string) string {
		t.Helper()
		secret := &corev1.Secret{}
		if err := c.get(pool+"-tls", secret); err != nil {
			t.Fatal(err)
		}
		return string(secret.Data[settings.FileName])
	}
	c.equal("the settings of a template", `{"maxConnections":5000}`+"\n", func() any { return file("demo-compute") })
	c.equal("those of a pool that says nothing", "", func() any { return file("demo-memory") })
	podsOf := func(pool string) (all []corev1.Pod) {
		list := &corev1.PodList{}
		if err := api.List(t.Context(), list, client.InNamespace(c.namespace), client.MatchingLabels{dmv1.LabelPool: pool}); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	uids := func(pool string) (all []string) {
		for _, p := range podsOf(pool) {
			all = append(all, string(p.UID))
		}
		slices.Sort(all)
		return all
	}
	told := func(pool string) (all []string) { // what makes kubelets look at the Secret at once
		for _, p := range podsOf(pool) {
			all = append(all, p.Annotations[dmv1.AnnotationTLS])
		}
		return slices.Compact(all)
	}
	computePods, memoryPods, before := uids("demo-compute"), uids("demo-memory"), told("demo-compute")

	patch := func(object client.Object, name, fields string) error {
		object.SetName(name)
		object.SetNamespace(c.namespace)
		return api.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(fields)))
	}
	ofTemplate := func(fields string) error {
		return patch(&dmv1.DMIndex{}, "demo", `{"spec":{"computePools":[{"name":"compute","template":{"settings":`+fields+`}}],"memoryPools":[{"name":"memory","template":{"servers":2,"memory":"512Mi","settings":{"logLevel":"warn"}}}]}}`)
	}
	if err := ofTemplate(`{"maxConnections":100,"idleTimeoutSeconds":60,"slowLogMicroseconds":0,"logLevel":"debug"}`); err != nil {
		t.Fatal(err)
	}
	c.equal("changed settings", `{"maxConnections":100,"idleTimeoutSeconds":60,"slowLogMicroseconds":0,"logLevel":"debug"}`+"\n", func() any { return file("demo-compute") })
	c.equal("those of memory servers", `{"logLevel":"warn"}`+"\n", func() any { return file("demo-memory") })
	c.eventually("all kubelets are told", func() string {
		if now := told("demo-compute"); len(now) != 1 || slices.Equal(now, before) {
			return fmt.Sprint(before, " and now ", now)
		}
		return ""
	})
	if now := uids("demo-compute"); !slices.Equal(now, computePods) {
		t.Errorf("compute pods %v were replaced by %v", computePods, now)
	}
	if now := uids("demo-memory"); !slices.Equal(now, memoryPods) {
		t.Errorf("memory pods %v were replaced by %v", memoryPods, now)
	}

	for fields, want := range map[string]string{
		`{"maxConnections":0}`:       "settings.maxConnections must be within 1 and 10000",
		`{"maxConnections":10001}`:   "add compute servers for more",
		`{"idleTimeoutSeconds":9}`:   "settings.idleTimeoutSeconds must be within 10 and 604800 (a week)",
		`{"slowLogMicroseconds":-1}`: "settings.slowLogMicroseconds must be within 0 and 60000000",
		`{"maxSessions":257}`:        "settings.maxSessions must be within 1 and 256",
		`{"logLevel":"loud"}`:        `supported values: "debug", "info", "warn", "error"`,
	} {
		if err := ofTemplate(fields); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", fields, err, want)
		}
	}

	// A paused pool keeps its settings, and takes the newest when it goes on.
	if err := patch(&dmv1.DMIndex{}, "demo", `{"spec":{"paused":true}}`); err != nil {
		t.Fatal(err)
	}
	pool := &dmv1.DMComputePool{}
	c.eventually("the pool is paused", func() string {
		if err := c.get("demo-compute", pool); err != nil || !pool.Spec.Paused {
			return fmt.Sprint(err, pool.Spec.Paused)
		}
		return ""
	})
	kept := file("demo-compute")
	if err := ofTemplate(`{"maxConnections":7,"maxSessions":8}`); err != nil {
		t.Fatal(err)
	}
	c.eventually("the pool has them", func() string {
		if err := c.get("demo-compute", pool); err != nil || pool.Spec.Settings.MaxSessions != 8 || pool.Status.ObservedGeneration != pool.Generation {
			return fmt.Sprint(err, pool.Spec.Settings, pool.Status.ObservedGeneration)
		}
		return ""
	})
	if now := file("demo-compute"); now != kept {
		t.Errorf("a paused pool has %s, and had %s", now, kept)
	}
	if err := patch(&dmv1.DMIndex{}, "demo", `{"spec":{"paused":false}}`); err != nil {
		t.Fatal(err)
	}
	c.equal("the settings when it goes on", `{"maxConnections":7}`+"\n", func() any { return file("demo-compute") })
	c.eventually("pods with other sessions", func() string {
		for _, p := range podsOf("demo-compute") {
			if slices.Contains(computePods, string(p.UID)) || !slices.Contains(p.Spec.Containers[0].Args, "--max-sessions=8") {
				return p.Name + " " + strings.Join(p.Spec.Containers[0].Args, " ")
			}
		}
		return ""
	})
}
