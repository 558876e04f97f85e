// Package charttest renders charts for tests, with the engine of Helm itself.
package charttest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
)

// Options are what a chart can see beside its values.
type Options struct {
	Release, Namespace string // default: dmindex, dmindex-system

	// KubeVersion of the cluster. Default: v1.36.0.
	KubeVersion string

	// APIVersions are kinds that the cluster has beside those of Kubernetes, such as
	// "monitoring.coreos.com/v1/PodMonitor".
	APIVersions []string

	// Cluster is what the chart can look up objects in. Default: nothing is found.
	Cluster *rest.Config
}

// Rendered is what a chart makes.
type Rendered struct {
	Objects []*unstructured.Unstructured // in the order of files and documents
	Notes   string
}

// Render renders the chart in a folder with values in YAML, after its schema admitted them.
func Render(dir, values string, o Options) (*Rendered, error) {
	chart, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	given, err := common.ReadValues([]byte(values))
	if err != nil {
		return nil, fmt.Errorf("values of the test: %w", err)
	}
	if err := chartutil.ProcessDependencies(chart, given); err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: "dmindex", Namespace: "dmindex-system", Revision: 1, IsInstall: true}
	if o.Release != "" {
		release.Name = o.Release
	}
	if o.Namespace != "" {
		release.Namespace = o.Namespace
	}
	version, err := common.ParseKubeVersion(orElse(o.KubeVersion, "v1.36.0"))
	if err != nil {
		return nil, err
	}
	can := common.DefaultCapabilities.Copy()
	can.KubeVersion, can.APIVersions = *version, slices.Concat(can.APIVersions, o.APIVersions)
	top, err := util.ToRenderValues(chart, given, release, can)
	if err != nil {
		return nil, err
	}
	var files map[string]string
	if o.Cluster != nil {
		files, err = engine.RenderWithClient(chart, top, o.Cluster)
	} else {
		files, err = engine.Render(chart, top)
	}
	if err != nil {
		return nil, err
	}
	all := &Rendered{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch path.Ext(name) {
		case ".txt":
			all.Notes += files[name]
		case ".yaml":
			objects, err := Parse(files[name])
			if err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, files[name])
			}
			all.Objects = append(all.Objects, objects...)
		}
	}
	return all, nil
}

// Parse reads the documents of a file.
func Parse(text string) (objects []*unstructured.Unstructured, err error) {
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		switch err := d.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

// Find is the object of a kind and name; nil if there is none.
func (r *Rendered) Find(kind, name string) *unstructured.Unstructured {
	for _, o := range r.Objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	return nil
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
