package computeserver

import (
	"crypto/sha256"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// describe says what this server is and how it fares.
func (c *core) describe() *rpcv1.DescribeComputeReply {
	stats := c.eng.stats()
	reply := &rpcv1.DescribeComputeReply{
		Id: c.self, Version: c.version, Index: c.index.Identity, Design: c.index.Design,
		MapGeneration: c.own.generation(), Draining: c.draining.Load(),
		Connections: uint64(max(0, c.count.connections.Load())), Operations: c.count.operations.Load(),
		Forwarded: c.count.forwarded.Load(), Errors: c.count.errors.Load(), CacheBytes: stats.CacheBytes,
	}
	if lost := c.eng.lost.Load(); lost != nil {
		reply.DataLost = *lost
	}
	load := c.eng.load.report(stats)
	reply.Load = load.encode(stats)
	reply.Owned = c.eng.tables != nil
	for _, s := range c.ranges() {
		reply.Ranges = append(reply.Ranges, &rpcv1.OwnedRange{
			Start: s.Start, End: s.End, Epoch: s.Epoch, State: string(s.State), Reason: s.Reason, Unfenced: uint32(s.Unfenced),
			OperationsPerSecond: load.within(s.Start, s.End), PoolFull: s.PoolFull,
		})
	}
	for _, p := range c.paths {
		reply.Paths = append(reply.Paths, &rpcv1.MemoryPath{Server: uint32(p.Server), Provider: p.Provider, Device: p.Device})
	}
	if reply.Owned {
		reply.TakeOvers = c.taken.describe(c.env.Now())
	}
	return reply
}

// withoutKeys is what /describe shows of a description: whoever reaches the port of the metrics may
// see it, so it has no keys. In the place of bounds stand their digests, by which one who knows the
// partition map can tell which ranges these are.
func withoutKeys(d *rpcv1.DescribeComputeReply) *rpcv1.DescribeComputeReply {
	for _, r := range d.Ranges {
		r.Start, r.End = keyDigest(r.Start), keyDigest(r.End)
	}
	for _, o := range d.TakeOvers {
		o.Start, o.End = keyDigest(o.Start), keyDigest(o.End)
	}
	if d.Load != nil {
		d.Load.Keys = nil
	}
	return d
}

// keyDigest is the first 8 bytes of the SHA-256 of a key; that of an empty one is empty.
func keyDigest(key []byte) []byte {
	if len(key) == 0 {
		return nil
	}
	sum := sha256.Sum256(key)
	return sum[:8]
}
