package index

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestPaths: memory servers that are reached in the same way are shown together, as many as there
// is room for; a server that does not answer keeps what it said.
func TestPaths(t *testing.T) {
	var list []*rpcv1.MemoryPath
	for i := range uint32(20) {
		list = append(list, &rpcv1.MemoryPath{Server: 100 + i, Provider: "ibv", Device: "mlx5_0"}, &rpcv1.MemoryPath{Server: 1 + i, Provider: "tcp"})
	}
	got := pathsOf(list)
	if len(got) != 2 || got[0].Transport != dmv1.TransportRDMA || got[0].Device != "mlx5_0" || got[1].Transport != dmv1.TransportTCP || got[1].Device != "" {
		t.Fatalf("%+v", got)
	}
	for i, first := range []int32{100, 1} {
		if p := got[i]; p.Count != 20 || len(p.MemoryServers) != dmv1.MaxShownOnPath || p.MemoryServers[0] != first || p.MemoryServers[15] != first+15 {
			t.Errorf("%+v", p)
		}
	}
	for i := range 20 {
		list[i] = &rpcv1.MemoryPath{Provider: "ibv", Device: fmt.Sprint(i)}
	}
	if n := len(pathsOf(list)); n != dmv1.MaxShownPaths {
		t.Errorf("%d paths are shown", n)
	}

	pod := &corev1.Pod{}
	pod.Name = "demo-compute-1"
	c := &computeServer{pod: pod}
	before := []dmv1.IndexComputeServer{{Pod: "demo-compute-0"}, {Pod: pod.Name, Paths: got}}
	if kept := c.paths(before); len(kept) != 2 {
		t.Errorf("a server that does not answer has %+v", kept)
	}
	if c.problem = "no device"; c.paths(before) != nil {
		t.Error("a server that cannot start has paths")
	}
	c.problem = ""
	if c.described = (&rpcv1.DescribeComputeReply{}); c.paths(before) != nil {
		t.Error("a server that names no paths has some")
	}
}
