package envtest

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/kube"
)

// TestPredecessor: what an operator decided that knows no stamps, and ran after one that does, is
// in force. The same written by anybody else is not.
func TestPredecessor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.lookAgain("demo")
	c.stop()
	objects := map[string]client.Object{"demo": &dmv1.DMIndex{}, "demo-memory": &dmv1.DMMemoryPool{}, "demo-compute": &dmv1.DMComputePool{}}
	write := func(by client.FieldOwner, name, key, value string) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value))
		object := objects[name]
		object.SetName(name)
		object.SetNamespace(c.namespace)
		if err := api.Patch(t.Context(), object, patch, by); err != nil {
			t.Fatal(err)
		}
	}
	const done = `{"identity":"x","done":true}`
	write(kube.Owner, "demo", dmv1.AnnotationRestore, done)
	write(kube.Owner, "demo-memory", dmv1.AnnotationNextID, "9")
	write(kube.Owner, "demo-compute", dmv1.AnnotationNextID, "9")
	agreed := func(what string, next string) {
		t.Helper()
		for name, want := range map[string]string{"demo": done, "demo-memory": "9", "demo-compute": next} {
			key := dmv1.AnnotationNextID
			if name == "demo" {
				key = dmv1.AnnotationRestore
			}
			c.equal(what+": "+name, want+" "+want, func() any {
				if err := c.get(name, objects[name]); err != nil {
					return err
				}
				_, short, _ := strings.Cut(key, "/")
				return objects[name].GetAnnotations()[key] + " " + c.record(objects[name]).Data[short]
			})
		}
	}
	c.start(0)
	agreed("written by a predecessor", "9")
	c.deletePod("demo-compute-1")
	c.equal("compute pods", "[demo-compute-0 demo-compute-9]", func() any { return c.pods("demo-compute") })
	for _, by := range []client.FieldOwner{"kubectl-edit", "kubectl-replace"} {
		write(by, "demo", dmv1.AnnotationRestore, "{}")
		write(by, "demo-memory", dmv1.AnnotationNextID, "0")
		write(by, "demo-compute", dmv1.AnnotationNextID, "0")
		agreed(string(by), "10")
	}
	c.available("demo")
	c.settled("demo")
}
