package computeserver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// fill stores n pairs with keys k000000, k000001, ...
func (c *cluster) fill(n, size int) {
	c.t.Helper()
	s, err := c.store.Open().Session()
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range n {
		if err := s.Insert(fmt.Appendf(nil, "k%06d", i), make([]byte, size)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// pieces counts the pieces of scans that begin, and calls f before each.
func (c *cluster) pieces(f func(n int64)) *atomic.Int64 {
	n := new(atomic.Int64)
	c.store.BeforeOperation(func(key []byte) {
		if key == nil {
			f(n.Add(1))
		}
	})
	c.t.Cleanup(func() { c.store.BeforeOperation(nil) })
	return n
}

// TestForwardedScanFlows: a scan through a server that is not the owner delivers pairs while the
// owner still reads, and ends at both when its caller leaves: while there is more for the caller to
// take, and while the owner sends nothing.
func TestForwardedScanFlows(t *testing.T) {
	t.Run("more to take", func(t *testing.T) { forwardedScanFlows(t, false) })
	t.Run("nothing to take", func(t *testing.T) { forwardedScanFlows(t, true) })
}

func forwardedScanFlows(t *testing.T, silent bool) {
	// no silence ends it
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) { cfg.Limit = time.Hour }, 1, 2)
	c.split([]uint32{1, 2}, "a")
	const pairs, perPiece = 8192, 128 // of 2 KiB: 256 KiB a piece
	c.fill(pairs, 2000)
	release, gated := make(chan struct{}), make(chan struct{}, 1)
	let := sync.OnceFunc(func() { close(release) })
	read := c.pieces(func(n int64) {
		if n == 4 {
			gated <- struct{}{}
			<-release
		}
	})
	t.Cleanup(let)
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	stream, err := c.link(1, 1).client.Scan(ctx, &rpcv1.ScanRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || len(first.Pairs) == 0 || len(first.Pairs) > perPiece || string(first.Pairs[0].Key) != "k000000" || first.MapGeneration != 1 {
		t.Fatalf("the first message has %d pairs, generation %d: %v", len(first.Pairs), first.GetMapGeneration(), err)
	}
	if silent {
		<-gated
		// two pieces of it are sent, but for what is no full message yet
		for n := len(first.Pairs); n <= 2*perPiece-len(first.Pairs); {
			next, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			n += len(next.Pairs)
		}
	}
	stop() // nobody wants more
	computeservertest.Await(t, "server 1 has ended the scan", func() bool { return c.servers[1].calls.running.Load() == 0 })
	let()
	computeservertest.Await(t, "server 2 has ended the scan", func() bool { return c.servers[2].calls.running.Load() == 0 })
	if n := read.Load(); n > pairs/perPiece/2 {
		t.Errorf("%d pieces were read of %d, though the caller left after the first message", n, pairs/perPiece)
	}
}

// TestScanByAnOldMap: a program whose map is old gets all pairs, and learns of the new map on the
// way.
func TestScanByAnOldMap(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		c := newCluster(t, config.RoutingOwner, nil, 1, 2)
		m := c.split([]uint32{1, 2}) // all keys are of server 1
		cl := c.sdk(1)
		const pairs = 2000
		c.fill(pairs, 1000)
		next := *m
		next.Generation++
		next.Ranges = append(next.Ranges[:0:0], m.Ranges...)
		next.Ranges[0].Owner, next.Ranges[0].Epoch = 2, 2
		c.publish(&next)
		release := make(chan struct{})
		let := sync.OnceFunc(func() { close(release) })
		t.Cleanup(let)
		c.pieces(func(n int64) {
			if n == 3 { // the owner goes on when the program knows
				<-release
			}
		})
		n := 0
		for pair, err := range cl.Scan(context.Background(), nil, nil, client.ScanOptions{Reverse: reverse}) {
			want := n
			if reverse {
				want = pairs - 1 - n
			}
			if err != nil || string(pair.Key) != fmt.Sprintf("k%06d", want) {
				t.Fatalf("reverse %v, pair %d is %q: %v", reverse, n, pair.Key, err)
			}
			if n++; n == 100 { // in the second message
				computeservertest.Await(t, "the program learns of the map", func() bool { return cl.Map().Generation == next.Generation })
				let()
			}
		}
		if n != pairs || c.servers[1].core.Count.Forwarded.Load() != 1 {
			t.Errorf("reverse %v: %d pairs of %d, %d scans were sent on", reverse, n, pairs, c.servers[1].core.Count.Forwarded.Load())
		}
	}
}

// TestScanKeepsNothingOfItsCaller: the caller may change what it gave to Scan, and what it got.
func TestScanKeepsNothingOfItsCaller(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		c := newCluster(t, config.RoutingAny, nil, 1)
		c.split([]uint32{1})
		cl := c.sdk(1)
		const pairs = 2000
		c.fill(pairs, 100)
		start, end := []byte("k"), []byte("l")
		seq := cl.Scan(context.Background(), start, end, client.ScanOptions{Reverse: reverse})
		start[0], end[0] = 'z', 'a'
		for range 2 { // a sequence may be gone through again
			n := 0
			for pair, err := range seq {
				want := n
				if reverse {
					want = pairs - 1 - n
				}
				if err != nil || string(pair.Key) != fmt.Sprintf("k%06d", want) {
					t.Fatalf("reverse %v, pair %d is %q: %v", reverse, n, pair.Key, err)
				}
				for i := range pair.Key {
					pair.Key[i] = 0xff
				}
				if n++; n%500 == 250 { // the scan goes on behind what it has delivered
					c.servers[1].callers.closeAll()
				}
			}
			if n != pairs {
				t.Errorf("reverse %v: %d pairs of %d", reverse, n, pairs)
			}
		}
	}
}

// TestEmptyKeyComesOnce: the pair of the empty key is not delivered again when its scan goes on
// elsewhere.
func TestEmptyKeyComesOnce(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	c.split([]uint32{1})
	cl, ctx := c.sdk(1), context.Background()
	c.fill(2000, 100)
	if err := cl.Put(ctx, nil, []byte("v")); err != nil {
		t.Fatal(err)
	}
	n := 0
	for pair, err := range cl.Scan(ctx, nil, nil, client.ScanOptions{}) {
		if err != nil || n == 0 && len(pair.Key) > 0 || n > 0 && string(pair.Key) != fmt.Sprintf("k%06d", n-1) {
			t.Fatalf("pair %d is %q: %v", n, pair.Key, err)
		}
		if n++; n == 1 {
			c.servers[1].callers.closeAll()
		}
	}
	if n != 2001 {
		t.Errorf("%d pairs", n)
	}
}

// TestNothingOutlastsADrain: commands that go on in steps end with the first one after the drain's
// time.
func TestNothingOutlastsADrain(t *testing.T) {
	for _, command := range []string{computeservertest.Command("DBSIZE"), computeservertest.Command("RANGE", "", ""), computeservertest.Command("SCAN", "0", "COUNT", "100000"), computeservertest.Command("SCAN", "0", "COUNT", "100000", "MATCH", "*none")} {
		c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.DrainLimit = 50 * time.Millisecond }, 1)
		c.split([]uint32{1})
		c.fill(20*engine.ScanPiecePairs, 10)
		begun, release := make(chan struct{}, 1), make(chan struct{})
		let := sync.OnceFunc(func() { close(release) })
		t.Cleanup(let)
		read := c.pieces(func(n int64) {
			if n == 2 {
				begun <- struct{}{}
				<-release
			}
		})
		r := c.raw(1)
		r.Send(command)
		<-begun
		s := c.servers[1]
		s.cancel()
		r.ExpectEnd() // the connection is closed by force
		let()
		<-s.drained
		computeservertest.Await(t, "the server has ended", func() bool { return len(s.done) == 1 })
		if n := read.Load(); n > 3 {
			t.Errorf("%q: %d pieces were read, 2 had begun when the drain was over", command, n)
		}
	}
}
