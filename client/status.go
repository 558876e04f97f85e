package client

import (
	"context"
	"fmt"
	"sync"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/partition"
)

// ServerStatus is how one compute server fares.
type ServerStatus struct {
	Server partition.Server
	Reply  *rpcv1.DescribeComputeReply // nil if it did not answer
	Err    error                       // why not
}

// Status asks every compute server of the map how it fares, side by side; the answers are in the
// order of the map.
func (c *Client) Status(ctx context.Context) []ServerStatus {
	servers := c.Map().Servers
	answers := make([]ServerStatus, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() {
			answers[i] = ServerStatus{Server: s}
			answers[i].Reply, answers[i].Err = c.describe(ctx, s)
		})
	}
	wg.Wait()
	return answers
}

func (c *Client) describe(ctx context.Context, s partition.Server) (*rpcv1.DescribeComputeReply, error) {
	l, err := c.links.linkTo(s.RPC, "")
	if err != nil {
		return nil, err
	}
	ctx, stop := withLimit(ctx, c.o.Attempt)
	defer stop()
	reply, err := l.client.Describe(ctx, &rpcv1.DescribeComputeRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask %s at %s: %w", s.Name, s.RPC, because(ctx, err))
	}
	return reply, nil
}
