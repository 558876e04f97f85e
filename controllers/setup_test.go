package controllers

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
)

// TestComputePoolsOfAuthority: when the authority of a memory pool changes, the compute pools whose
// servers trust it are looked at, and no others.
func TestComputePoolsOfAuthority(t *testing.T) {
	scheme := operatortest.Scheme(t)
	index := func(name, memory string, compute ...string) *dmv1.DMIndex {
		i := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		i.Spec.MemoryPools = []dmv1.IndexMemoryPool{{Name: "a"}, {Ref: &dmv1.LocalReference{Name: memory}}}
		for _, c := range compute {
			i.Spec.ComputePools = append(i.Spec.ComputePools, dmv1.IndexComputePool{Name: c})
		}
		return i
	}
	b := watches{fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		index("one", "shared", "x", "y"), index("two", "shared", "x"), index("other", "another", "x")).Build()}
	secret := func(name, owner, kind string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		if owner != "" {
			o := &metav1.ObjectMeta{Name: owner, UID: "uid"}
			s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o, schema.GroupVersionKind{Group: "dmindex.io", Version: "v1alpha1", Kind: kind})}
		}
		return s
	}
	f := func(want string, s *corev1.Secret) {
		t.Helper()
		if got := fmt.Sprint(b.computePoolsOfAuthority(t.Context(), s)); got != want {
			t.Errorf("%s: %s, want %s", s.Name, got, want)
		}
	}
	f("[ns/one-x ns/one-y ns/two-x]", secret("shared-ca", "shared", dmv1.KindMemoryPool))
	f("[ns/one-x ns/one-y]", secret("one-a-ca", "one-a", dmv1.KindMemoryPool))
	f("[]", secret("shared-tls", "shared", dmv1.KindMemoryPool))
	f("[]", secret("one-ca", "one", "DMIndex"))
	f("[]", secret("shared-ca", "", ""))
}
