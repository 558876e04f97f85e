package envtest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// column is what `kubectl get dmi` shows of an index.
func (c *cluster) column(index, name string) any {
	c.t.Helper()
	api, err := rest.HTTPClientFor(config)
	if err != nil {
		c.t.Fatal(err)
	}
	path, err := url.JoinPath(config.Host, "apis", dmv1.GroupVersion.Group, dmv1.GroupVersion.Version, "namespaces", c.namespace, "dmindexes", index)
	if err != nil {
		c.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := api.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	var table metav1.Table
	if err != nil || json.Unmarshal(text, &table) != nil || len(table.Rows) != 1 {
		c.t.Fatalf("%v: %s", err, text)
	}
	for i, column := range table.ColumnDefinitions {
		if column.Name == name && column.Priority == 0 {
			return table.Rows[0].Cells[i]
		}
	}
	return nil
}

// TestPoolFull: keys that wait for memory are told of, as long as they wait; all others are served.
func TestPoolFull(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	waits := &rpcv1.OwnedRange{Start: []byte("m"), Epoch: 3, State: "Taking", Reason: "3 of 9 changes find no memory", PoolFull: true}
	c.fleet.SetRanges(c.namespace, "demo-compute-1", waits)
	c.start(0)
	c.create(showingKeys(index), "demo")
	for _, kind := range []string{dmv1.ConditionDegraded, dmv1.ConditionProgressing} {
		c.condition("demo", kind, metav1.ConditionTrue, dmv1.ReasonPoolFull, `keys ["m", end) are not served, since the index has no memory left: raise servers of memory pool memory in spec.memoryPools, or delete other keys (a higher quota does not help: the servers have no more)`)
	}
	c.available("demo")
	c.event(dmv1.ReasonPoolFull, "demo-compute-1 finds no memory")
	c.equal("what kubectl get shows", dmv1.ReasonPoolFull, func() any { return c.column("demo", "Health") })
	c.fleet.SetRanges(c.namespace, "demo-compute-1", &rpcv1.OwnedRange{Start: []byte("m"), Epoch: 3, State: "Serving"})
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
	c.equal("what kubectl get shows", dmv1.ReasonAsDesired, func() any { return c.column("demo", "Health") })
	c.settled("demo")
}
