package control

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/pool"
)

var _ pool.Ranges = (*Client)(nil)

// Acquire implements pool.Ranges.
func (c *Client) Acquire(claim pool.Claim, limit time.Duration) (got pool.Acquired, err error) {
	r := &rpcv1.AcquireRangeRequest{
		Index: c.config.Index, Client: uint32(claim.Client), Generation: claim.Generation, Start: claim.Start, End: claim.End, Log: claim.Log,
	}
	for _, id := range claim.Fenced {
		r.Fenced = append(r.Fenced, uint32(id))
	}
	err = c.call("acquire keys", c.ids[0], limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		reply, err := m.AcquireRange(ctx, r)
		for _, h := range reply.GetOwn() {
			got.Own = append(got.Own, holding(h))
		}
		for _, b := range reply.GetBlocked() {
			why := pool.Obstacle(b.Why)
			if b.Crowded {
				why = pool.Crowded
			}
			got.Blocked = append(got.Blocked, pool.Blocked{Start: b.Start, End: b.End, Client: b.Client, Why: why})
		}
		return fenced(kind(err, codes.FailedPrecondition, pool.ErrOtherMap))
	})
	return got, err
}

func holding(h *rpcv1.Holding) pool.Holding {
	out := pool.Holding{Start: h.Start, End: h.End, Epoch: h.Epoch}
	for _, in := range h.Inherits {
		out.Inherits = append(out.Inherits, pool.Inherited{Start: in.Start, End: in.End, Client: in.Client, Epoch: in.Epoch, Log: in.Log})
	}
	return out
}

// kind gives an error of a code a kind of its own.
func kind(err error, code codes.Code, kind error) error {
	if status.Code(err) == code {
		return fmt.Errorf("%w: %s", kind, status.Convert(err).Message())
	}
	return err
}

// Settle implements pool.Ranges.
func (c *Client) Settle(client uint32, start, end []byte, epoch uint64, limit time.Duration) error {
	return c.call("settle keys", c.ids[0], limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		_, err := m.SettleRange(ctx, &rpcv1.SettleRangeRequest{Index: c.config.Index, Client: uint32(client), Start: start, End: end, Epoch: epoch})
		return fenced(kind(err, codes.NotFound, pool.ErrNotHeld))
	})
}

// Release implements pool.Ranges.
func (c *Client) Release(client uint32, start, end []byte, epoch uint64, limit time.Duration) error {
	return c.call("release keys", c.ids[0], limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		_, err := m.ReleaseRange(ctx, &rpcv1.ReleaseRangeRequest{Index: c.config.Index, Client: uint32(client), Start: start, End: end, Epoch: epoch})
		return released(err)
	})
}

// FenceDead implements pool.Ranges.
func (c *Client) FenceDead(clients []uint32, limit time.Duration) error {
	return c.fence(c.ids[0], clients, true, limit)
}

// Holdings implements pool.Ranges.
func (c *Client) Holdings(limit time.Duration) (all []pool.Held, err error) {
	err = c.call("list the holdings", c.ids[0], limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		reply, err := m.ListHoldings(ctx, &rpcv1.ListHoldingsRequest{Index: c.config.Index})
		for _, h := range reply.GetHoldings() {
			all = append(all, pool.Held{Holding: holding(h), Client: h.Client, Name: h.Name, Fenced: h.Fenced, Log: h.Log})
		}
		return err
	})
	return all, err
}
