package computeserver

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// batches is a Do stream that a test drives batch by batch.
type batches struct {
	t      testing.TB
	stream grpc.BidiStreamingClient[rpcv1.DoRequest, rpcv1.DoReply]
	next   uint64
}

// batches opens a stream to a server.
func (c *cluster) batches(to uint32) *batches {
	c.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	c.t.Cleanup(stop)
	stream, err := c.link(to, to).client.Do(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return &batches{t: c.t, stream: stream}
}

// send sends one batch and returns its number.
func (b *batches) send(limit time.Duration, ops ...*rpcv1.Operation) uint64 {
	b.t.Helper()
	b.next++
	if err := b.stream.Send(&rpcv1.DoRequest{Id: b.next, Operations: ops, LimitMilliseconds: uint32(limit / time.Millisecond)}); err != nil {
		b.t.Fatal(err)
	}
	return b.next
}

func (b *batches) receive() *rpcv1.DoReply {
	b.t.Helper()
	reply, err := b.stream.Recv()
	if err != nil {
		b.t.Fatal(err)
	}
	return reply
}

func lookup(key string) *rpcv1.Operation {
	return &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: []byte(key)}
}

// TestSlowBatchHoldsUpNoOther: while batches of a stream hang, one fewer than there may be workers,
// the next one is answered. They do not end before it, so a batch that waits for one of them is
// found out by the test's limit, and by nothing else.
func TestSlowBatchHoldsUpNoOther(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	c.split([]uint32{1})
	for range 20 {
		b := c.batches(1)
		release, hung := make(chan struct{}), make(chan struct{}, rpcWorkers)
		let := sync.OnceFunc(func() { close(release) })
		t.Cleanup(let)
		c.store.BeforeOperation(func(key []byte) {
			if string(key) == "slow" {
				hung <- struct{}{}
				<-release
			}
		})
		b.send(0, lookup("quick")) // its worker is idle, or about to be, when the next one comes
		if reply := b.receive(); reply.Id != 1 {
			t.Fatalf("batch %d was answered first", reply.Id)
		}
		for range rpcWorkers - 1 {
			b.send(0, lookup("slow"))
		}
		quick := b.send(0, lookup("quick"))
		if reply := b.receive(); reply.Id != quick {
			t.Fatalf("batch %d was answered, %d should be", reply.Id, quick)
		}
		for range rpcWorkers - 1 {
			<-hung
		}
		let()
		for range rpcWorkers - 1 {
			b.receive()
		}
	}
}

// TestTallyAfterForwarding: a command of many keys behind a forwarded one of the same pipeline is
// counted under its own name.
func TestTallyAfterForwarding(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	r := c.raw(1)
	r.Send(computeservertest.Command("GET", "z") + computeservertest.Command("MGET", "a") + computeservertest.Command("GET", "z") + computeservertest.Command("DBSIZE"))
	r.Expect("$-1\r\n*1\r\n$-1\r\n$-1\r\n:0\r\n")
	_, body := c.servers[1].get(t, "/metrics")
	counted := map[string]int{}
	for _, name := range []string{"get", "mget", "dbsize"} {
		for _, outcome := range count.Names {
			line := fmt.Sprintf("dmindex_compute_requests_total{front_end=\"resp\",operation=%q,outcome=%q} ", name, outcome)
			counted[name] += valueOf(t, body, line)
		}
	}
	if counted["get"] != 2 || counted["mget"] != 1 || counted["dbsize"] != 1 {
		t.Errorf("2 GET, 1 MGET and 1 DBSIZE are counted as %v", counted)
	}
}

// TestUnreadAnswers: a stream whose answers nobody reads takes a bounded amount of memory, whatever
// is sent over it; and when they are read, all of it is answered.
func TestUnreadAnswers(t *testing.T) {
	const all, size, bound = 100, 4 << 20, 160 << 20 // both sides of the stream
	c := newCluster(t, config.RoutingAny, nil, 1)
	b := c.batches(1)
	value := make([]byte, size/64)
	ops := make([]*rpcv1.Operation, 1024) // whose answers are more than what is sent ahead
	for i := range ops {
		ops[i] = &rpcv1.Operation{Kind: rpcv1.Operation_UPSERT, Key: []byte("key")}
		if i < 64 {
			ops[i].Value = value // too long for the index
		}
	}
	sent := make(chan struct{})
	grew := peak(func() {
		go func() {
			defer close(sent)
			for range all {
				b.send(time.Minute, ops...)
			}
		}()
		select { // it is not read any more, or all is taken
		case <-sent:
		case <-time.After(2 * time.Second):
		}
	})
	t.Logf("the heap grew by %d MiB", grew>>20)
	if grew > bound {
		t.Errorf("the heap grew by %d MiB, want at most %d", grew>>20, bound>>20)
	}
	for range all {
		b.receive()
	}
	<-sent
}
