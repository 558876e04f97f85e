package index

import (
	"context"

	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// describePools asks the memory servers of all pools at once: a node that is lost may have servers
// of each.
func describePools(ctx context.Context, b *reconciler.Base, pools ...*memoryPool) {
	servers.Each(len(pools), func(i int) {
		p := pools[i]
		p.described, p.problems = serverpod.DescribeMemory(ctx, b, p.pods, p.authority)
	})
}

// pools are the memory pools of the index.
func (s *scope) pools() (pools []*memoryPool) {
	for i := range s.memoryPools {
		pools = append(pools, &s.memoryPools[i])
	}
	return pools
}
