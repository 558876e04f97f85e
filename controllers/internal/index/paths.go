package index

import (
	"slices"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// paths are those of a compute server to the memory servers, as the status shows them. One that
// does not answer has those that it had.
func (c *computeServer) paths(before []dmv1.IndexComputeServer) []dmv1.MemoryPath {
	if c.described != nil {
		return pathsOf(c.described.Paths)
	}
	for i := range before {
		if before[i].Pod == c.pod.Name && c.problem == "" {
			return before[i].Paths
		}
	}
	return nil
}

// pathsOf puts memory servers together that are reached in the same way.
func pathsOf(list []*rpcv1.MemoryPath) (paths []dmv1.MemoryPath) {
	for _, p := range list {
		transport := dmv1.TransportTCP
		if p.Provider == config.TransportIBV {
			transport = dmv1.TransportRDMA
		}
		device := report.Cut(p.Device, report.LongestDevice)
		i := slices.IndexFunc(paths, func(q dmv1.MemoryPath) bool { return q.Transport == transport && q.Device == device })
		if i < 0 {
			if len(paths) == dmv1.MaxShownPaths {
				continue
			}
			i = len(paths)
			paths = append(paths, dmv1.MemoryPath{Transport: transport, Device: device})
		}
		if paths[i].Count++; len(paths[i].MemoryServers) < dmv1.MaxShownOnPath {
			paths[i].MemoryServers = append(paths[i].MemoryServers, int32(p.Server))
		}
	}
	return paths
}
