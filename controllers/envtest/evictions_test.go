package envtest

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestEvictionPolicy: evictions of pods with data are refused by the policy, with 403, where
// nothing is moved. Elsewhere they pass to the budget, of which there is none here.
func TestEvictionPolicy(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.admission()
	pod := func(name string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace}}
		p.Spec.Containers = []corev1.Container{{Name: "a", Image: "a"}}
		return p
	}
	rows := []struct {
		name     string
		rdma     bool
		paused   bool
		deleting bool
		keptFor  []string
		want     string // of the refusal; empty = none
	}{
		{"moves", false, false, false, []string{"demo"}, ""},
		{"empty", true, true, true, nil, ""},
		{"rdma", true, false, false, []string{"demo", "one"}, "pod rdma has data of demo, one that is lost with it. Dump it, then release the pod: kubectl annotate dmmp rdma --namespace " + c.namespace + " --overwrite dmindex.io/release=rdma"},
		{"rdma-paused", true, true, false, []string{"demo"}, "that is lost with it. Dump it, then release the pod: "},
		{"paused", false, true, false, []string{"demo"}, "that is lost with it. Pool paused is paused: set spec.paused of it, or of its index, to false, then what the pod holds is moved while a drain waits. Or dump it, then release the pod: kubectl annotate dmmp paused "},
		{"deleting", false, false, true, []string{"demo"}, "that is lost with it. Dump it, then release the pod: "},
	}
	for _, row := range rows {
		text := memoryPool
		if row.rdma {
			text = strings.Replace(text, "memory: 512Mi", "memory: 512Mi, transport: RDMA, rdma: {hugePages: 2Mi}", 1)
		}
		c.create(text, row.name)
		pool := &dmv1.DMMemoryPool{}
		c.patch(row.name, pool, func() { pool.Spec.Paused, pool.Finalizers = row.paused, []string{dmv1.FinalizerInUse} })
		if row.deleting {
			c.delete(pool)
		}
		if err := api.Create(t.Context(), pod(row.name)); err != nil {
			t.Fatal(err)
		}
		pool = c.memoryPool(row.name)
		pool.Status.Servers = []dmv1.MemoryServerState{{Pod: row.name, KeptFor: row.keptFor}}
		if err := api.Status().Update(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range rows {
		c.eventually(row.name, func() string {
			err := api.SubResource("eviction").Create(t.Context(), pod(row.name), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: row.name, Namespace: c.namespace}}, client.DryRunAll)
			if row.want == "" && err == nil || row.want != "" && apierrors.IsForbidden(err) && strings.Contains(err.Error(), row.want) {
				return ""
			}
			return fmt.Sprintf("%v\nwant %s", err, row.want)
		})
	}
}
