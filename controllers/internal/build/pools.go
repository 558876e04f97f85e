package build

import (
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// MemoryPool is the pool of a template; nil for a reference.
func MemoryPool(index *dmv1.DMIndex, p dmv1.IndexMemoryPool, image string) *dmv1.DMMemoryPool {
	if p.Template == nil {
		return nil
	}
	pool := &dmv1.DMMemoryPool{ObjectMeta: meta(PoolName(index.Name, p.Name), index.Namespace, map[string]string{dmv1.LabelIndex: index.Name})}
	pool.Spec = dmv1.DMMemoryPoolSpec{MemoryServers: *p.Template.MemoryServers.DeepCopy(), Image: image, Paused: index.Spec.Paused}
	return pool
}

// ComputePool is the pool of a template; nil for a reference.
func ComputePool(index *dmv1.DMIndex, p dmv1.IndexComputePool, image string) *dmv1.DMComputePool {
	if p.Template == nil {
		return nil
	}
	pool := &dmv1.DMComputePool{ObjectMeta: meta(PoolName(index.Name, p.Name), index.Namespace, map[string]string{dmv1.LabelIndex: index.Name})}
	pool.Spec = dmv1.DMComputePoolSpec{ComputeServers: *p.Template.ComputeServers.DeepCopy(), IndexName: index.Name, Image: image, Paused: index.Spec.Paused}
	return pool
}

// MemoryPoolOf and ComputePoolOf are the names of the pool objects.
func MemoryPoolOf(index *dmv1.DMIndex, p dmv1.IndexMemoryPool) string {
	if p.Ref != nil {
		return p.Ref.Name
	}
	return PoolName(index.Name, p.Name)
}

func ComputePoolOf(index *dmv1.DMIndex, p dmv1.IndexComputePool) string {
	if p.Ref != nil {
		return p.Ref.Name
	}
	return PoolName(index.Name, p.Name)
}

// UsesMemoryPool reports whether an index holds memory of a pool.
func UsesMemoryPool(index *dmv1.DMIndex, pool string) bool {
	for _, p := range index.Spec.MemoryPools {
		if MemoryPoolOf(index, p) == pool {
			return true
		}
	}
	return false
}
