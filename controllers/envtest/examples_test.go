package envtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/controllers/internal/charttest"
)

// TestExamplesAreGood: an API server takes every manifest of examples, without unknown fields, and
// pods of their Deployments in a namespace that restricts pods. Folders of kustomize are built.
func TestExamplesAreGood(t *testing.T) {
	root := filepath.Join("..", "..", "examples")
	files, err := filepath.Glob(filepath.Join(root, "*", "*.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	folders := map[string][]*unstructured.Unstructured{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := charttest.Parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		folders[filepath.Dir(file)] = append(folders[filepath.Dir(file)], objects...)
	}
	for _, environment := range []string{"staging", "production"} {
		dir := filepath.Join(root, "gitops", environment)
		for _, o := range kustomize(t, dir).Objects {
			if o.GetNamespace() != environment {
				t.Errorf("%s: %s %s is in namespace %q", dir, o.GetKind(), o.GetName(), o.GetNamespace())
			}
			folders[dir] = append(folders[dir], o)
		}
	}
	for folder, objects := range folders {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("examples-%d", namespaces.Add(1)),
			Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
		if err := api.Create(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			o.SetNamespace(namespace.Name)
			if o.GetKind() == "Deployment" {
				deployment := &appsv1.Deployment{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, deployment); err != nil {
					t.Fatal(err)
				}
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: namespace.Name}, Spec: deployment.Spec.Template.Spec}
				if err := api.Create(t.Context(), pod, client.DryRunAll); err != nil {
					t.Errorf("%s: a pod of Deployment %s: %v", folder, o.GetName(), err)
				}
			}
			given := o.DeepCopy()
			if err := api.Create(t.Context(), o, client.FieldValidation("Strict")); err != nil {
				t.Errorf("%s: %s %s: %v", folder, o.GetKind(), o.GetName(), err)
			}
			for _, list := range []string{"memoryPools", "computePools"} {
				was, _, _ := unstructured.NestedSlice(given.Object, "spec", list)
				is, _, _ := unstructured.NestedSlice(o.Object, "spec", list)
				if strings.Contains(folder, "gitops") && fmt.Sprint(was) != fmt.Sprint(is) {
					t.Errorf("%s: %s %s: the API server made of %s %v: %v; write the defaults there, or a sync never ends", folder, o.GetKind(), o.GetName(), list, was, is)
				}
			}
		}
	}

	operator := kustomize(t, filepath.Join(root, "gitops", "operator")).Find("Deployment", "dmindex")
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(operator.Object, d); err != nil {
		t.Fatal(err)
	}
	c := d.Spec.Template.Spec.Containers[0]
	if c.Image != "registry.example.com/dmindex:v1" || d.Namespace != "dmindex-system" || slices.Contains(c.Args, "--namespace=$(POD_NAMESPACE)") {
		t.Errorf("the operator of gitops/operator is in %s, runs %s with %q; it shall watch all namespaces", d.Namespace, c.Image, c.Args)
	}
}
