package control

import (
	"context"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Map reads the partition map at the home server. If its generation is not above newerThan it waits
// up to wait for one that is, and then returns whichever is there; limit is beyond the wait.
// Generation 0: there is none yet.
func (c *Client) Map(newerThan uint64, wait, limit time.Duration) (generation uint64, bytes []byte, err error) {
	wait = min(wait, 30*time.Second)
	err = c.call("read the partition map", c.ids[0], wait+limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		reply, err := m.GetMap(ctx, &rpcv1.GetMapRequest{Index: c.config.Index, NewerThan: newerThan, WaitMilliseconds: uint32(wait.Milliseconds())})
		generation, bytes = reply.GetGeneration(), reply.GetMap()
		return err
	})
	return generation, bytes, err
}

// SwapMap replaces the partition map at the home server if its generation is the expected one, else
// ErrStale. Only the operator may; without TLS, everybody.
func (c *Client) SwapMap(expected, generation uint64, bytes []byte, limit time.Duration) error {
	return c.call("replace the partition map", c.ids[0], limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		_, err := m.SwapMap(ctx, &rpcv1.SwapMapRequest{Index: c.config.Index, ExpectedGeneration: expected, Generation: generation, Map: bytes})
		return err
	})
}

// Admit asks every server to admit the index with a quota, and gives the incarnation of each. Only
// the operator may; without TLS, everybody.
func (c *Client) Admit(quotaChunks, locks uint64, limit time.Duration) (incarnations []uint64, err error) {
	for _, id := range c.ids {
		err := c.call("admit the index", id, limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
			reply, err := m.Admit(ctx, &rpcv1.AdmitRequest{Index: c.config.Index, QuotaChunks: quotaChunks, Locks: locks})
			incarnations = append(incarnations, reply.GetIncarnation())
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return incarnations, nil
}
