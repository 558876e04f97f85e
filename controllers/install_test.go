package controllers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"
)

// TestChartAndKustomizeAgree: the chart with its default values and the kustomize base install the
// same objects, but for what marks an object as one of a Helm release; so do the chart with the
// device plugin and the base with its component. The chart is rendered by a few lines that know as
// much of Helm as the chart uses; the kustomize base is read file by file, with the image and the
// namespace that config/default sets.
func TestChartAndKustomizeAgree(t *testing.T) {
	agree(t, renderChart(t, false), readBase(t, "crd", "manager", "rbac"), 10)
	agree(t, renderChart(t, true), readBase(t, "crd", "manager", "rbac", "device-plugin"), 17)
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
		var list struct{ Resources []string }
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
		if len(files) != len(list.Resources)+1 {
			t.Errorf("config/%s has %d files, its kustomization names %d", dir, len(files)-1, len(list.Resources))
		}
		for _, name := range list.Resources {
			data, err := os.ReadFile(filepath.Join("..", "config", dir, name))
			if err != nil {
				t.Fatal(err)
			}
			image := "ghcr.io/dmindex/dmindex:dev"
			add(t, objects, name, strings.NewReplacer("image: dmindex\n", "image: "+image+"\n", "--server-image=dmindex\n", "--server-image="+image+"\n").Replace(string(data)))
		}
	}
	return objects
}

func renderChart(t *testing.T, devicePlugin bool) map[string]map[string]any {
	dir := filepath.Join("..", "charts", "dmindex")
	var values, meta map[string]any
	for file, into := range map[string]*map[string]any{"values.yaml": &values, "Chart.yaml": &meta} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err == nil {
			err = yaml.Unmarshal(data, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	values["devicePlugin"].(map[string]any)["enabled"] = devicePlugin
	chart := map[string]any{"Name": meta["name"], "Version": meta["version"], "AppVersion": meta["appVersion"]}
	dot := map[string]any{"Values": values, "Chart": chart, "Release": map[string]any{"Name": "dmindex", "Namespace": "dmindex-system", "Service": "Helm"}}
	root := template.New("chart")
	root.Funcs(template.FuncMap{
		"include": func(name string, dot any) (string, error) {
			var b bytes.Buffer
			err := root.ExecuteTemplate(&b, name, dot)
			return b.String(), err
		},
		"toYaml": func(v any) string { return strings.TrimSuffix(text(v), "\n") },
		"nindent": func(n int, s string) string {
			pad := "\n" + strings.Repeat(" ", n)
			return pad + strings.ReplaceAll(s, "\n", pad)
		},
		"default": func(other, v any) any {
			if v == nil || reflect.ValueOf(v).IsZero() {
				return other
			}
			return v
		},
		"dict": func(pairs ...any) map[string]any {
			m := map[string]any{}
			for i := 0; i < len(pairs); i += 2 {
				m[pairs[i].(string)] = pairs[i+1]
			}
			return m
		},
		"set":        func(m map[string]any, key string, v any) map[string]any { m[key] = v; return m },
		"contains":   func(part, s string) bool { return strings.Contains(s, part) },
		"trunc":      func(n int, s string) string { return s[:min(n, len(s))] },
		"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
	})
	files, err := filepath.Glob(filepath.Join(dir, "templates", "*"))
	if err != nil {
		t.Fatal(err)
	}
	// helpers first
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(filepath.Ext(a), filepath.Ext(b)) })
	objects := map[string]map[string]any{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(file) == ".txt" {
			continue
		}
		parsed, err := root.New(filepath.Base(file)).Parse(string(data))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := parsed.Execute(&b, dot); err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(file) == ".yaml" {
			add(t, objects, file, b.String())
		}
	}
	return objects
}
