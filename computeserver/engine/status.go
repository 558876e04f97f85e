package engine

import (
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Describe returns what this server is and its state, except for what only its process knows.
func (c *Engine) Describe() *rpcv1.DescribeComputeReply {
	stats := c.Sessions.Stats()
	reply := &rpcv1.DescribeComputeReply{
		Id: c.Self, Index: c.Index.Identity, Design: c.Index.Design,
		MapGeneration: c.View.Generation(), Draining: c.ends.Load(),
		Connections: uint64(max(0, c.Count.Connections.Load())), Operations: c.Count.Operations.Load(),
		Forwarded: c.Count.Forwarded.Load(), Errors: c.Count.Errors.Load(), CacheBytes: stats.CacheBytes,
	}
	if lost := c.Sessions.lost.Load(); lost != nil {
		reply.DataLost = *lost
	}
	load := c.Sessions.load.report(stats)
	reply.Load = load.encode(stats)
	reply.Owned = c.Sessions.Owned()
	for _, s := range c.Ranges() {
		reply.Ranges = append(reply.Ranges, &rpcv1.OwnedRange{
			Start: s.Start, End: s.End, Epoch: s.Epoch, State: string(s.State), Reason: s.Reason, Unfenced: uint32(s.Unfenced),
			OperationsPerSecond: load.rateWithin(s.Start, s.End), PoolFull: s.PoolFull,
		})
	}
	if reply.Owned {
		reply.TakeOvers = c.taken.Describe(c.Env.Now())
	}
	return reply
}
