// Package client is the Go SDK of dmindex: an ordered index on disaggregated memory, used from
// inside the cluster.
//
//	c, err := client.Connect(ctx, client.Options{
//		Endpoints: []string{"my-index:7480"}, Password: "...", CA: ca,
//	})
//
// The client knows the index's partition map and sends each operation to the server in charge of
// its key. Operations of many goroutines to one server travel together. What can be repeated
// without harm is tried again, elsewhere if need be, until the deadline of the context: reads and
// Put always, every other change only while it is certain that nothing was done. Each error
// says what is known (see ErrNotFound and those beside it).
//
// A write whose answer was lost may still be done by the server that has it: it is begun within its
// limit there (what is left of the attempt, at most 5 s) and takes at most 5 s; a server that
// stands still meanwhile takes that much longer, at most a lease (10 s). Later it is never done. So
// a Put that was tried again may take effect once more for so long, also over a newer write of the
// same program.
//
// But for that, point operations are linearizable. A scan is sorted and has no duplicates; it
// returns every pair that was there during the whole scan, and none that was absent during the
// whole scan.
package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Client is a connection to an index. Safe for concurrent use.
type Client struct {
	o     Options
	links *links

	view atomic.Pointer[view] // never nil
	turn atomic.Uint64        // spreads scans

	reach reach

	slack time.Duration // attemptSlack

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	refresh chan uint64 // a generation that somebody heard of; one element
	loop    sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed when view changes, and made anew
}

// view is what the client knows about the servers.
type view struct {
	m   *partition.Map
	any bool // every server serves every key
}

const (
	refreshEvery = 30 * time.Second       // in any case
	refreshAgain = 100 * time.Millisecond // after a failure
	retryFirst   = time.Millisecond
	retrySlowest = 200 * time.Millisecond
)

// Connect finds an index. It asks the endpoints for the partition map, again and again until ctx
// ends.
func Connect(ctx context.Context, o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l, err := newLinks(o)
	if err != nil {
		return nil, err
	}
	ctx, stop := withLimit(ctx, o.Limit)
	defer stop()
	c := &Client{o: o, links: l, slack: attemptSlack, refresh: make(chan uint64, 1), changed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	var why error // says more than that time is over
	for pause := retryFirst; ; pause = min(2*pause, retrySlowest) {
		err = c.fetch(ctx)
		if err == nil {
			break
		}
		if why == nil || status.Code(err) != codes.DeadlineExceeded {
			why = err
		}
		if errors.Is(err, ErrUnauthorized) || !sleep(ctx, pause) {
			l.close()
			return nil, fmt.Errorf("connect to an index: %w", because(ctx, why))
		}
	}
	c.loop.Go(c.follow)
	return c, nil
}

// Close ends the client. Calls that are under way fail.
func (c *Client) Close() error {
	c.cancel()
	c.loop.Wait()
	c.links.close()
	return nil
}

// Map is the partition map that the client acts on; not to be changed.
func (c *Client) Map() *partition.Map { return c.view.Load().m }

// fetch asks the servers that are known, then the endpoints, for the map.
func (c *Client) fetch(ctx context.Context) error {
	var first error
	try := func(l *link) bool {
		ctx, stop := context.WithTimeout(ctx, c.o.Attempt)
		defer stop()
		reply, err := l.client.GetMap(ctx, &rpcv1.GetComputeMapRequest{})
		if err == nil {
			err = c.learn(reply)
		}
		if err != nil && first == nil {
			first = wordRPC(l.address, err)
		}
		return err == nil
	}
	if v := c.view.Load(); v != nil {
		at := int(c.turn.Add(1))
		for i := range v.m.Servers {
			s := v.m.Servers[(at+i)%len(v.m.Servers)]
			if l, err := c.links.linkTo(s.RPC, ""); err == nil && try(l) {
				return nil
			}
		}
	}
	for _, address := range c.o.Endpoints {
		l, err := c.links.linkTo(address, c.o.ServerName)
		if err != nil {
			return err
		}
		if try(l) {
			return nil
		}
	}
	return first
}

// learn takes a map over unless a newer one is known. One goroutine calls it at a time: that of
// Connect, then that of follow.
func (c *Client) learn(reply *rpcv1.ComputeMapReply) error {
	if reply.Generation == 0 {
		return fmt.Errorf("%w: the server has no partition map yet", ErrUnavailable)
	}
	m, err := partition.Unmarshal(reply.Map)
	if err != nil {
		return err
	}
	if v := c.view.Load(); v != nil {
		switch {
		case madeAnew(v.m.Index, m.Index):
			if c.o.OnMadeAnew != nil {
				c.o.OnMadeAnew()
			}
		case v.m.Index != m.Index:
			return fmt.Errorf("%w: the server belongs to index %s, not to %s", ErrUnavailable, m.Index, v.m.Index)
		case v.m.Generation >= m.Generation:
			return nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view.Store(&view{m, reply.Any})
	close(c.changed)
	c.changed = make(chan struct{})
	c.links.retain(m.Servers, c.o.Endpoints)
	return nil
}

// follow keeps the map fresh: when a server speaks of a newer generation, when one cannot be
// reached, and now and then.
func (c *Client) follow() {
	timer := time.NewTimer(refreshEvery)
	defer timer.Stop()
	for {
		heard := uint64(0)
		select {
		case <-c.ctx.Done():
			return
		case heard = <-c.refresh:
		case <-timer.C:
		}
		next := refreshEvery
		if heard == 0 || heard > c.Map().Generation {
			if c.fetch(c.ctx) != nil || heard > c.Map().Generation {
				next = refreshAgain
			}
		}
		timer.Reset(next)
	}
}

// heardOf asks for a fresh map, because a server speaks of this generation, or, with 0, because one
// was not as the map says.
func (c *Client) heardOf(generation uint64) {
	if generation > 0 && generation <= c.Map().Generation {
		return
	}
	select {
	case c.refresh <- generation:
	default: // somebody asked already
	}
}

// awaitOther waits until the view is another one than v, for at most limit and until ctx ends. It
// returns false when ctx ended.
func (c *Client) awaitOther(ctx context.Context, v *view, limit time.Duration) bool {
	c.mu.Lock()
	changed := c.changed
	same := c.view.Load() == v
	c.mu.Unlock()
	if !same {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-c.ctx.Done():
		return false
	case <-changed:
	case <-timer.C:
	}
	return true
}

// because is err, wrapping also the error of ctx if that has ended.
func because(ctx context.Context, err error) error {
	if over := ctx.Err(); over != nil {
		return fmt.Errorf("%w: %w", over, err)
	}
	return err
}

// withLimit is ctx with a deadline if it has none.
func withLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// sleep waits; false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
