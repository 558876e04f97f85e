package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// admission installs the policies of config/admission for this namespace alone: the other tests
// share the API server.
func (c *cluster) admission() {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "admission", "*.yaml"))
	files = slices.DeleteFunc(files, func(file string) bool {
		return filepath.Base(file) == "kustomization.yaml" || filepath.Base(file) == "names.yaml"
	})
	if err != nil || len(files) != 8 {
		c.t.Fatal(files, err)
	}
	// by which the policies know the operator
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: "dmindex"}
	bound := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "dmindex", Namespace: c.namespace},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "dmindex"}, Subjects: []rbacv1.Subject{subject}}
	if err := api.Create(c.t.Context(), bound); err != nil {
		c.t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, text := range strings.Split(string(data), "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
				c.t.Fatal(err)
			}
			object.SetName(object.GetName() + "-" + c.namespace)
			if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
				spec := object.Object["spec"].(map[string]any)
				spec["policyName"] = object.GetName()
				spec["matchResources"] = map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: c.namespace}}}
			}
			if err := api.Create(c.t.Context(), object); err != nil {
				c.t.Fatal(err)
			}
			c.t.Cleanup(func() { _ = api.Delete(c.t.Context(), object) })
		}
	}
}

// as is a client of somebody else.
func (c *cluster) as(user string, groups ...string) client.Client {
	c.t.Helper()
	theirs := rest.CopyConfig(config)
	theirs.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:masters")}
	cl, err := client.New(theirs, client.Options{Scheme: api.Scheme()})
	if err != nil {
		c.t.Fatal(err)
	}
	return cl
}

// TestAdmissionPolicies: people, autoscalers and the scheduler neither delete nor evict what data
// would be lost with, and are told which index's, and what to do. Those who delete what belongs to
// something that is gone may.
func TestAdmissionPolicies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.admission()
	c.start(0)
	c.create(memoryPool, "pool")
	c.create(shared, "one")
	c.create(index, "demo")
	c.available("one")
	c.available("demo")
	c.protected("pool", metav1.ConditionTrue, dmv1.ReasonInUse, "")
	c.protected("demo-memory", metav1.ConditionTrue, dmv1.ReasonInUse, "")

	dry := client.DryRunAll
	evict := func(pod string) error {
		return api.SubResource("eviction").Create(t.Context(), c.pod(pod), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: c.namespace}}, dry)
	}
	refused := func(what, want string, try func() error) {
		t.Helper()
		// Policies take effect some time after they were made.
		c.eventually(what+" is refused", func() string {
			if err := try(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
				return fmt.Sprintf("%v\nwant %s", err, want)
			}
			return ""
		})
	}
	release := "Dump it, then release the pod: kubectl annotate dmmp %s --namespace " + c.namespace + " --overwrite dmindex.io/release=%s"
	refused("deleting a pool in use", "index one has memory in pool pool, and its data would be lost with it. Delete the index first: kubectl delete dmi one --namespace "+c.namespace,
		func() error { return api.Delete(t.Context(), c.memoryPool("pool"), dry) })
	refused("deleting the pool of a template", "index demo has memory in pool demo-memory",
		func() error { return api.Delete(t.Context(), c.memoryPool("demo-memory"), dry) })
	refused("deleting all pools", "has memory in pool",
		func() error {
			return api.DeleteAllOf(t.Context(), &dmv1.DMMemoryPool{}, client.InNamespace(c.namespace), dry)
		})
	for _, pod := range []string{"pool-0", "demo-memory-1"} {
		pool, of := "pool", "one"
		if pod != "pool-0" {
			pool, of = "demo-memory", "demo"
		}
		data := "pod " + pod + " has data of " + of + " that is lost with it"
		if err := evict(pod); !apierrors.IsTooManyRequests(err) {
			t.Errorf("evict %s, whose data a drain waits for to be moved: %v", pod, err)
		}
		what := data + ", unless another copy is in sync. " + fmt.Sprintf(release, pool, pod)
		refused("deleting "+pod, what, func() error { return api.Delete(t.Context(), c.pod(pod), dry) })
		refused("deleting at once "+pod, what, func() error { return api.Delete(t.Context(), c.pod(pod), dry, client.GracePeriodSeconds(0)) })
		for _, user := range []string{"system:kube-scheduler", "system:serviceaccount:kube-system:cluster-autoscaler"} {
			refused("deleting by "+user, what, func() error { return c.as(user).Delete(t.Context(), c.pod(pod), dry) })
		}
	}
	refused("deleting all pods", "that is lost with it",
		func() error {
			return api.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(c.namespace), client.MatchingLabels{dmv1.LabelPool: "pool"}, dry)
		})

	allowed := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, user := range []string{"generic-garbage-collector", "namespace-controller", "pod-garbage-collector"} {
		cl := c.as("system:serviceaccount:kube-system:" + user)
		allowed(user, cl.Delete(t.Context(), c.pod("pool-0"), dry))
		allowed(user, cl.Delete(t.Context(), c.memoryPool("pool"), dry))
	}
	allowed("the operator", c.as(operatorUser).Delete(t.Context(), c.pod("pool-0"), dry))
	allowed("a kubelet", c.as("system:node:a", "system:nodes").Delete(t.Context(), c.pod("pool-0"), dry))
	// Their budget has no controller here that would count them.
	if err := evict("demo-compute-0"); err != nil && !apierrors.IsTooManyRequests(err) {
		t.Errorf("evict a compute pod: %v", err)
	}
	allowed("compute pods are deleted", api.Delete(t.Context(), c.pod("demo-compute-0"), dry))
	allowed("other pods", evictBare(c))

	// One taint of its node alone ends a pod with data, and those that it tolerates for some
	// time.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	taint := func(key string) {
		t.Helper()
		if key != "" {
			node.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoExecute}}
		}
		if err := api.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), node) })
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	if err := api.SubResource("binding").Create(t.Context(), c.pod("pool-0"), binding); err != nil {
		t.Fatal(err)
	}
	taints := c.as("system:serviceaccount:kube-system:taint-eviction-controller")
	ended := func() error { return taints.Delete(t.Context(), c.pod("pool-0"), dry) }
	ends := func(what string) {
		t.Helper()
		c.eventually(what, func() string {
			if err := ended(); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	taint("maintenance")
	refused("a taint", "pod pool-0 has data of one that is lost with it, unless another copy is in sync. "+fmt.Sprintf(release, "pool", "pool-0"), ended)
	taint(corev1.TaintNodeOutOfService)
	ends("a node is out of service")
	taint("burn-in")
	refused("another taint", "pod pool-0 has data of one", ended)
	patient := c.pod("pool-0")
	patient.Spec.Tolerations = append(patient.Spec.Tolerations, corev1.Toleration{Key: "burn-in", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64)})
	if err := api.Update(t.Context(), patient); err != nil {
		t.Fatal(err)
	}
	ends("its template said for how long it stays")

	// The pod that is released goes, and nothing else.
	c.release("demo-memory", "demo-memory-1")
	c.protected("demo-memory", metav1.ConditionTrue, dmv1.ReasonInUse, "with pods demo-memory-0 (demo): they")
	c.eventually("what is released is evicted", func() string {
		if err := evict("demo-memory-1"); err != nil {
			return err.Error()
		}
		return ""
	})
	allowed("what is released is deleted", api.Delete(t.Context(), c.pod("demo-memory-1"), dry))
	if err := evict("demo-memory-0"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evict what is not released: %v", err)
	}

	// An index that is to be retained is deleted by nobody, nor is its namespace.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	retained := func(policy dmv1.IndexDeletionPolicy) {
		i := &dmv1.DMIndex{}
		c.patch("demo", i, func() { i.Spec.DeletionPolicy = policy })
	}
	retained(dmv1.IndexRetain)
	then := `: kubectl patch dmi demo --namespace ` + c.namespace + ` --type=merge --patch='{"spec":{"deletionPolicy":"Delete"}}', then delete`
	for _, user := range []string{"somebody", operatorUser, "system:serviceaccount:kube-system:generic-garbage-collector"} {
		refused("deleting a retained index by "+user, "index demo has deletionPolicy: Retain, and its data would be lost with it. If that is meant"+then,
			func() error { return c.as(user).Delete(t.Context(), c.index("demo"), dry) })
	}
	refused("deleting all indexes", "index demo has deletionPolicy: Retain",
		func() error {
			return api.DeleteAllOf(t.Context(), &dmv1.DMIndex{}, client.InNamespace(c.namespace), dry)
		})
	refused("deleting the namespace", "index demo of namespace "+c.namespace+" has deletionPolicy: Retain, and its data would be lost with the namespace. If that is meant"+then,
		func() error { return api.Delete(t.Context(), namespace, dry) })
	retained(dmv1.IndexDelete)
	allowed("the other index is deleted", api.Delete(t.Context(), c.index("one"), dry))
	c.eventually("what is not retained is deleted", func() string {
		if err := errors.Join(api.Delete(t.Context(), c.index("demo"), dry), api.Delete(t.Context(), namespace, dry)); err != nil {
			return err.Error()
		}
		return ""
	})

	// An index that is deleted takes its pool with it: of which nothing is refused any more.
	if err := api.Delete(t.Context(), c.index("one")); err != nil {
		t.Fatal(err)
	}
	c.gone("one", &dmv1.DMIndex{})
	c.eventually("the pool of nobody is deleted", func() string {
		if err := api.Delete(t.Context(), c.memoryPool("pool"), dry); err != nil {
			return err.Error()
		}
		return ""
	})
	c.protected("pool", metav1.ConditionFalse, dmv1.ReasonNotInUse, "")
	allowed("its pods are deleted", api.Delete(t.Context(), c.pod("pool-0"), dry))
}

// TestStateIsTheOperators: people may drop the annotations of its state, as manifests do, and set
// none of them; its records they neither make, nor change, nor delete.
func TestStateIsTheOperators(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.admission()
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	dry, i := client.DryRunAll, c.index("demo")
	try := func(change func(annotations map[string]string)) func() error {
		return func() error {
			i := c.index("demo")
			change(i.Annotations)
			return api.Update(t.Context(), i, dry)
		}
	}
	refused := func(what, want string, try func() error) {
		t.Helper()
		// Policies take effect some time after they were made.
		c.eventually(what+" is refused", func() string {
			if err := try(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
				return fmt.Sprintf("%v\nwant %s", err, want)
			}
			return ""
		})
	}
	own := "are the operator's own: leave them out of the manifest"
	refused("another value", own, try(func(a map[string]string) { a[dmv1.AnnotationMemory] = "{}" }))
	refused("another stamp", own, try(func(a map[string]string) { a[dmv1.AnnotationState] = "x" }))
	refused("one more", own, try(func(a map[string]string) { a[dmv1.AnnotationIndexIncarnation] = "7" }))
	stamped := func(uid, sequence string) func() error {
		return try(func(a map[string]string) {
			a[dmv1.AnnotationMemory], a[dmv1.AnnotationState] = "{}", uid+"/"+sequence+"/x"
		})
	}
	refused("an earlier copy", own, stamped(string(i.UID), "1"))
	refused("a later copy of another index", own, stamped("u", "9999"))
	record := c.record(i)
	refused("deleting a record", "of DMIndex/demo", func() error { return api.Delete(t.Context(), record, dry) })
	refused("changing a record", "of DMIndex/demo", func() error {
		changed := record.DeepCopy()
		changed.Labels = nil
		return api.Update(t.Context(), changed, dry)
	})
	refused("making a record", "is the operator's", func() error {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dmindex-state-x", Namespace: c.namespace, Labels: record.Labels}}
		return api.Create(t.Context(), made, dry)
	})
	for what, err := range map[string]error{
		"replace":            try(func(a map[string]string) { clear(a) })(),
		"a later copy":       stamped(string(i.UID), "9999")(),
		"annotate":           try(func(a map[string]string) { a[dmv1.AnnotationRotatePassword] = "monday" })(),
		"other ConfigMaps":   api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: c.namespace}}, dry),
		"the operator":       c.as(operatorUser).Delete(t.Context(), record, dry),
		"the collector":      c.as("system:serviceaccount:kube-system:generic-garbage-collector").Delete(t.Context(), record, dry),
		"a copy of an index": api.Create(t.Context(), &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "copied", Namespace: c.namespace, Annotations: i.Annotations}, Spec: i.Spec}, dry),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// evictBare evicts a pod that is not the operator's.
func evictBare(c *cluster) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bare", Namespace: c.namespace}}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "a"}}
	if err := api.Create(c.t.Context(), pod); err != nil {
		return err
	}
	return c.evict("bare")
}
