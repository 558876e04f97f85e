package pooltest

import (
	"iter"
	"slices"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/audit"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Audit compares the parts of an index, addresses and bytes, with what the clients that Open made
// have allocated. Nobody may work meanwhile.
func (c *Cluster) Audit(parts iter.Seq2[pool.Addr, int]) (audit.Report, error) {
	c.mu.Lock()
	pools := slices.DeleteFunc(slices.Clone(c.pools), func(p *pool.Pool) bool { return p.Alive() != nil })
	c.mu.Unlock()
	return audit.Compare(c.Chunks(), parts, pools)
}

// Chunks are those that are handed out.
func (c *Cluster) Chunks() (all []audit.Chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		for i, k := range s.chunks {
			if off := c.chunks() + uint64(i*c.Options.ChunkBytes); k.client != 0 {
				memory := s.memory[verbs.RegionData].Bytes[off:][:c.Options.ChunkBytes]
				all = append(all, audit.Chunk{First: pool.NewAddr(s.id, off), Client: uint32(k.client), Memory: memory})
			}
		}
	}
	return all
}
