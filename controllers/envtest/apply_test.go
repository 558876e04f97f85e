package envtest

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/kube"
)

// TestApplyTold: whoever applies an object hears whether that wrote anything, and the resource
// version says the same.
func TestApplyTold(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := &kube.Writer{Client: api, Live: api}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: c.namespace}}
	stranger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stranger", Namespace: c.namespace}}
	for _, o := range []client.Object{owner, stranger} {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	version := func() string {
		pool := &dmv1.DMComputePool{}
		if err := c.get("pool", pool); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return pool.ResourceVersion
	}
	f := func(what, image string, replicas int32, want bool) {
		t.Helper()
		desired := &dmv1.DMComputePool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: c.namespace}}
		desired.Spec.IndexName, desired.Spec.Image, desired.Spec.Replicas = "demo", image, replicas
		before := version()
		wrote, err := w.ApplyTold(t.Context(), owner, desired, []string{"spec", "replicas"})
		if err != nil || wrote != want || (version() != before) != want {
			t.Errorf("%s: wrote %v, %v; version %q, then %q; want %v", what, wrote, err, before, version(), want)
		}
	}
	pool := &dmv1.DMComputePool{}
	f("it is not there", "server:1", 2, true)
	f("it is as desired", "server:1", 2, false)
	c.patch("pool", pool, func() { pool.Spec.Replicas = 3 })
	f("a field that is not written was changed", "server:1", 2, false)
	f("a field that is not written is desired otherwise", "server:1", 4, false)
	f("another image is desired", "server:2", 2, true)
	f("it has that", "server:2", 2, false)
	c.patch("pool", pool, func() { pool.Spec.Image = "server:3" })
	f("somebody changed the image", "server:2", 2, true)
	c.patch("pool", pool, func() { delete(pool.Annotations, dmv1.AnnotationApplied) })
	f("nobody knows what was applied", "server:2", 2, true)
	f("it is as desired again", "server:2", 2, false)

	pool = &dmv1.DMComputePool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: c.namespace}}
	before := version()
	if wrote, err := w.ApplyTold(t.Context(), stranger, pool); wrote || !errors.Is(err, kube.ErrNameTaken) || version() != before {
		t.Errorf("an object of somebody else: %v, %v", wrote, err)
	}
}

// TestApplyDeleted: what is desired of an object that somebody deleted since it was read does not
// come back, such as a key that had to go.
func TestApplyDeleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := &kube.Writer{Client: api, Live: api}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: c.namespace}}
	if err := api.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	secret := func(text string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key", Namespace: c.namespace}, Data: map[string][]byte{"key": []byte(text)}}
	}
	if err := w.Apply(t.Context(), owner, secret("first")); err != nil {
		t.Fatal(err)
	}
	read := &corev1.Secret{}
	if err := c.get("key", read); err != nil {
		t.Fatal(err)
	}
	changed := secret("second")
	changed.UID = read.UID
	if err := w.Apply(t.Context(), owner, changed); err != nil {
		t.Fatalf("the object that was read is not changed: %v", err)
	}
	if err := api.Delete(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	if err := w.Apply(t.Context(), owner, changed); !apierrors.IsConflict(err) {
		t.Errorf("the object that was read was deleted, and apply says %v", err)
	}
	c.gone("key", &corev1.Secret{})
	if err := w.Apply(t.Context(), owner, secret("third")); err != nil {
		t.Fatal(err)
	}
	if err := w.Apply(t.Context(), owner, changed); !apierrors.IsConflict(err) {
		t.Errorf("another object has its name, and apply says %v", err)
	}
}
