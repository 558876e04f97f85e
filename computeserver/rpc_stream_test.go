package computeserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/partition"
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
		c.store.Before(func(key []byte) {
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
	r.send(resp("GET", "z") + resp("MGET", "a") + resp("GET", "z") + resp("DBSIZE"))
	r.expect("$-1\r\n*1\r\n$-1\r\n$-1\r\n:0\r\n")
	_, body := c.servers[1].get(t, "/metrics")
	counted := map[string]int{}
	for _, name := range []string{"get", "mget", "dbsize"} {
		for _, outcome := range outcomeNames {
			line := fmt.Sprintf("dmindex_compute_requests_total{front_end=\"resp\",operation=%q,outcome=%q} ", name, outcome)
			counted[name] += valueOf(t, body, line)
		}
	}
	if counted["get"] != 2 || counted["mget"] != 1 || counted["dbsize"] != 1 {
		t.Errorf("2 GET, 1 MGET and 1 DBSIZE are counted as %v", counted)
	}
}

// keepers are peers that keep what they are asked, as a stream does that could not send it in time.
type keepers struct {
	peers
	kept []*rpcv1.Operation
}

func (k *keepers) do(_ partition.Server, ops []*rpcv1.Operation, _ time.Duration) ([]*rpcv1.Outcome, error) {
	k.kept = append(k.kept, ops...)
	return nil, &failure{code: rpcv1.Outcome_TIMED_OUT, message: "not in time"}
}

// TestForwardedKeysAreKept: what is sent to another server stays as it is after the command was
// replied, when the read buffer is used again.
func TestForwardedKeysAreKept(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	to := &keepers{peers: c.servers[1].core.peers}
	c.servers[1].core.peers = to // nobody looks before there is a map
	c.split([]uint32{1, 2}, "m")
	conn := c.quiet(1)
	for _, command := range [][]string{{"SET", "z1", "v1"}, {"GET", "z1"}, {"MSET", "z1", "v1", "z2", "v2"}, {"MGET", "z1", "z2"}, {"DEL", "z1", "z2"}, {"EXISTS", "z1", "z2"}} {
		to.kept = nil
		in := []byte(resp(command...))
		if out, err := conn.feed(in); err != nil || !strings.HasPrefix(string(out), "-TIMEOUT ") {
			t.Fatalf("%q was replied %q, %v", command, out, err)
		}
		for i := range in {
			in[i] = 'x'
		}
		if len(to.kept) == 0 {
			t.Fatalf("%q was not sent on", command)
		}
		for i, op := range to.kept {
			if key, value := fmt.Sprint("z", i+1), fmt.Sprint("v", i+1); string(op.Key) != key || len(op.Value) > 0 && string(op.Value) != value {
				t.Errorf("%q: what was sent became %q: %q", command, op.Key, op.Value)
			}
		}
	}
}
