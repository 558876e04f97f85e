//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// parts are the objects of a manifest by kind and name, without what says only who installed them.
func parts(t *testing.T, manifest string) map[string]map[string]any {
	t.Helper()
	objects := map[string]map[string]any{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if len(u.Object) == 0 || u.GetKind() == "Namespace" { // helm makes it by --create-namespace
			continue
		}
		strip(u.Object)
		objects[u.GetKind()+"/"+u.GetName()] = u.Object
	}
}

// strip removes labels and annotations that say who installed something, wherever they stand.
func strip(value any) {
	switch v := value.(type) {
	case []any:
		for _, inner := range v {
			strip(inner)
		}
	case map[string]any:
		for _, key := range []string{"helm.sh/chart", "helm.sh/resource-policy", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance"} {
			delete(v, key)
		}
		for key, inner := range v {
			strip(inner)
			if left, is := inner.(map[string]any); is && len(left) == 0 && key == "annotations" {
				delete(v, key)
			}
		}
	}
}

// TestInstall: the chart with its defaults and the kustomize base install the same objects; so do
// the chart with the device plugin and the base with its component.
func TestInstall(t *testing.T) {
	run := func(name string, args ...string) map[string]map[string]any {
		t.Helper()
		out, err := execute(context.Background(), "", name, args...)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return parts(t, out)
	}
	chart := func(values string) map[string]map[string]any {
		t.Helper()
		return run(target.helm, "template", "dmindex", "../../charts/dmindex", "--namespace=dmindex-system", "--set="+values)
	}
	same(t, chart("image.tag=dev"), run(target.kubectl, "kustomize", "../../config/default"))

	overlay := t.TempDir()
	config, err := filepath.Abs("../../config")
	if err != nil {
		t.Fatal(err)
	}
	// kustomize takes relative paths only
	if config, err = filepath.Rel(overlay, config); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s/default]\ncomponents: [%s/device-plugin]\n", config, config)
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	plugin := run(target.kubectl, "kustomize", overlay)
	if plugin["DaemonSet/dmindex-device-plugin"] == nil {
		t.Error("the component has no DaemonSet")
	}
	same(t, chart("image.tag=dev,devicePlugin.enabled=true"), plugin)
}

// same compares what helm and kustomize install.
func same(t *testing.T, helm, kustomize map[string]map[string]any) {
	t.Helper()
	if got, want := slices.Sorted(maps.Keys(helm)), slices.Sorted(maps.Keys(kustomize)); !slices.Equal(got, want) {
		t.Errorf("helm installs %v,\nkustomize %v", got, want)
	}
	for name, want := range kustomize {
		if got := helm[name]; got != nil && !equality.Semantic.DeepEqual(got, want) {
			a, _ := yaml.Marshal(got)
			b, _ := yaml.Marshal(want)
			t.Errorf("%s differs; helm:\n%s\nkustomize:\n%s", name, head(string(a)), head(string(b)))
		}
	}
}

// head keeps a difference readable: CRDs are long.
func head(text string) string {
	if len(text) > 4000 {
		return text[:4000] + "..."
	}
	return text
}
