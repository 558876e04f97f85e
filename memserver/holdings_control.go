//env:real gRPC runs each call on a goroutine of its own

package memserver

import (
	"context"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
)

// AcquireRange implements rpcv1.MemoryServer.
func (c *service) AcquireRange(_ context.Context, r *rpcv1.AcquireRangeRequest) (*rpcv1.AcquireRangeReply, error) {
	client, err := clientNumber(r.Client)
	if err != nil {
		return nil, err
	}
	claim := ledger.Claim{Client: client, Generation: r.Generation, Start: r.Start, End: r.End, Log: r.Log}
	for _, v := range r.Fenced {
		id, err := clientNumber(v)
		if err != nil {
			return nil, err
		}
		claim.Fenced = append(claim.Fenced, id)
	}
	own, blocked, err := c.Acquire(r.Index, claim)
	if err != nil {
		return nil, err
	}
	reply := &rpcv1.AcquireRangeReply{}
	for _, h := range own {
		reply.Own = append(reply.Own, holdingReply(core.Held(h), h.Client, h.Log))
	}
	for _, b := range blocked {
		out := &rpcv1.BlockedRange{Start: b.Start, End: b.End, Client: b.Client}
		if out.Crowded = b.Why == ledger.Crowded; !out.Crowded {
			out.Why = rpcv1.BlockedRange_Why(b.Why)
		}
		reply.Blocked = append(reply.Blocked, out)
	}
	return reply, nil
}

func holdingReply(h pool.Holding, client uint32, log []byte) *rpcv1.Holding {
	out := &rpcv1.Holding{Start: h.Start, End: h.End, Client: client, Epoch: h.Epoch, Log: log}
	for _, in := range h.Inherits {
		out.Inherits = append(out.Inherits, &rpcv1.InheritedLog{Start: in.Start, End: in.End, Client: in.Client, Epoch: in.Epoch, Log: in.Log})
	}
	return out
}

// SettleRange implements rpcv1.MemoryServer.
func (c *service) SettleRange(_ context.Context, r *rpcv1.SettleRangeRequest) (*rpcv1.SettleRangeReply, error) {
	client, err := clientNumber(r.Client)
	if err != nil {
		return nil, err
	}
	return &rpcv1.SettleRangeReply{}, c.Settle(r.Index, client, r.Start, r.End, r.Epoch)
}

// ReleaseRange implements rpcv1.MemoryServer.
func (c *service) ReleaseRange(_ context.Context, r *rpcv1.ReleaseRangeRequest) (*rpcv1.ReleaseRangeReply, error) {
	client, err := clientNumber(r.Client)
	if err != nil {
		return nil, err
	}
	return &rpcv1.ReleaseRangeReply{}, c.Release(r.Index, client, r.Start, r.End, r.Epoch)
}

// ListHoldings implements rpcv1.MemoryServer.
func (c *service) ListHoldings(_ context.Context, r *rpcv1.ListHoldingsRequest) (*rpcv1.ListHoldingsReply, error) {
	all, err := c.Holdings(r.Index)
	if err != nil {
		return nil, err
	}
	reply := &rpcv1.ListHoldingsReply{Version: core.VersionOf(all)}
	for _, h := range all {
		out := holdingReply(h.Holding, h.Client, h.Log)
		out.Name, out.Fenced = h.Name, h.Fenced
		reply.Holdings = append(reply.Holdings, out)
	}
	return reply, nil
}
