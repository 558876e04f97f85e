package op

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Stats is what is counted alike in every design: by the sessions s of the client p, whose READs
// meet in r (nil = they do not). The rest is the design's.
func (s *Sessions) Stats(p *pool.Pool, r *combine.Reads) index.Stats {
	sum := s.Sum()
	stats := index.Stats{
		Verbs:       p.Counters(),
		Operations:  sum.Operations,
		Retries:     sum.Retries,
		Reclaimed:   p.Reclaimed(),
		Combined:    p.Combined(),
		CacheHits:   sum.Hits,
		CacheMisses: sum.Misses,
	}
	stats.LockConflicts, stats.Handovers = p.Locks()
	if r != nil {
		stats.Delegated = r.Delegated()
	}
	return stats
}
