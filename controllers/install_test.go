package controllers

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dmindex/dmindex/controllers/internal/charttest"
)

// TestChartAndKustomizeAgree: the chart with its default values and the kustomize base install the
// same objects, but for what marks an object as one of a Helm release; so do the chart with the
// device plugin and the base with its component. The kustomize base is read file by file, with the
// image and the namespace that config/default sets.
func TestChartAndKustomizeAgree(t *testing.T) {
	agree(t, renderChart(t, ""), readBase(t, "admission", "crd", "manager", "rbac"), 14)
	agree(t, renderChart(t, "devicePlugin: {enabled: true}"), readBase(t, "admission", "crd", "manager", "rbac", "device-plugin"), 21)
}

func agree(t *testing.T, chart, base map[string]map[string]any, least int) {
	t.Helper()
	for name, object := range base {
		if strings.HasPrefix(name, "Namespace/") {
			continue // helm has --create-namespace
		}
		if !reflect.DeepEqual(chart[name], object) {
			t.Errorf("%s differs:\nchart:\n%s\nkustomize:\n%s", name, text(chart[name]), text(object))
		}
	}
	for name := range chart {
		if base[name] == nil {
			t.Errorf("%s is in the chart only", name)
		}
	}
	if len(chart) < least {
		t.Errorf("the chart has only %d objects", len(chart))
	}
}

func text(object any) string {
	data, err := yaml.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// add sorts documents in by kind and name, without what is Helm's or kustomize's own.
func add(t *testing.T, objects map[string]map[string]any, file, documents string) {
	t.Helper()
	for _, document := range strings.Split("\n"+documents, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document+"\n"), &object); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		if object == nil {
			continue
		}
		forget(object)
		metadata := object["metadata"].(map[string]any)
		objects[fmt.Sprint(object["kind"], "/", metadata["name"])] = object
	}
}

// forget takes out namespaces and the marks of Helm, anywhere.
func forget(value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart", "helm.sh/resource-policy"} {
			delete(v, key)
		}
		if v["namespace"] == "dmindex-system" {
			delete(v, "namespace")
		}
		for _, child := range v {
			forget(child)
		}
	case []any:
		for _, child := range v {
			forget(child)
		}
	}
}

func readBase(t *testing.T, dirs ...string) map[string]map[string]any {
	objects := map[string]map[string]any{}
	for _, dir := range dirs {
		var list struct{ Resources, Configurations []string }
		data, err := os.ReadFile(filepath.Join("..", "config", dir, "kustomization.yaml"))
		if err == nil {
			err = yaml.Unmarshal(data, &list)
		}
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join("..", "config", dir, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != len(list.Resources)+len(list.Configurations)+1 {
			t.Errorf("config/%s has %d files, its kustomization names %d", dir, len(files)-1, len(list.Resources)+len(list.Configurations))
		}
		for _, name := range list.Resources {
			data, err := os.ReadFile(filepath.Join("..", "config", dir, name))
			if err != nil {
				t.Fatal(err)
			}
			image := "ghcr.io/dmindex/dmindex:dev"
			add(t, objects, name, strings.ReplaceAll(string(data), "image: dmindex\n", "image: "+image+"\n"))
		}
	}
	return objects
}

func renderChart(t *testing.T, values string) map[string]map[string]any {
	rendered, err := charttest.Render(filepath.Join("..", "charts", "dmindex"), values, charttest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]map[string]any{}
	for _, o := range rendered.Objects {
		add(t, objects, o.GetName(), text(o.Object))
	}
	return objects
}
