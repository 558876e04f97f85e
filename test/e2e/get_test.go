//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"strings"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/jsonpath"
)

// cluster asks the API server. kubectl would do, but most of what tests do is to look again and
// again, and a process for each look takes as much processor as all that is looked at.
type cluster struct {
	objects dynamic.Interface
	kinds   apimeta.ResettableRESTMapper
	names   apimeta.RESTMapper // kinds, and their short names
}

// api is the cluster of kubectl's configuration.
var api = sync.OnceValues(func() (*cluster, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Timeout = -1, command // as many as there are: tests wait between looks
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	asked, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(asked)
	kinds := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	return &cluster{objects, kinds, restmapper.NewShortcutExpander(kinds, cached, nil)}, nil
})

// get reads an object, such as "dmi/x", or all of a kind in the namespace, such as "pods".
func (c *cluster) get(ctx context.Context, namespace, object string) (runtime.Unstructured, error) {
	kind, name, one := strings.Cut(object, "/")
	resource, err := c.names.ResourceFor(schema.GroupVersionResource{Resource: kind})
	if apimeta.IsNoMatchError(err) { // of a definition that was made since
		c.kinds.Reset()
		resource, err = c.names.ResourceFor(schema.GroupVersionResource{Resource: kind})
	}
	if err != nil {
		return nil, err
	}
	from := dynamic.ResourceInterface(c.objects.Resource(resource))
	if named, err := c.kinds.KindFor(resource); err != nil {
		return nil, err
	} else if m, err := c.kinds.RESTMapping(named.GroupKind(), named.Version); err != nil {
		return nil, err
	} else if m.Scope.Name() == apimeta.RESTScopeNameNamespace {
		from = c.objects.Resource(resource).Namespace(namespace)
	}
	if one {
		return from.Get(ctx, name, metav1.GetOptions{})
	}
	return from.List(ctx, metav1.ListOptions{})
}

// jsonpath is what kubectl get prints of an object, or of all of a kind, by a template; empty if it
// cannot be read.
func (s *space) jsonpath(object, path string) string {
	s.Helper()
	c, err := api()
	if err != nil {
		s.Fatalf("the configuration of kubectl: %v", err)
	}
	p := jsonpath.New(object).AllowMissingKeys(true)
	if err := p.Parse(path); err != nil {
		s.Fatalf("jsonpath %s: %v", path, err)
	}
	// not the test's context: cleanups look, too
	found, err := c.get(context.Background(), s.namespace, object)
	if err != nil {
		return ""
	}
	var out bytes.Buffer
	if err := p.Execute(&out, found.UnstructuredContent()); err != nil {
		return ""
	}
	return strings.TrimRight(out.String(), "\n")
}
