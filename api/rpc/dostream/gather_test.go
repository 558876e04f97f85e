package dostream

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Callers that come again and again travel together; one alone sends each call at once.
func TestCallersTravelTogether(t *testing.T) {
	// So that who calls next does not depend on other processors.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, callers := range []int{1, 32} {
		var batches atomic.Int64
		s := serve(t, func(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
			for {
				req, err := stream.Recv()
				if err != nil {
					return nil
				}
				batches.Add(1)
				if err := stream.Send(echo(req)); err != nil {
					return err
				}
			}
		})
		const calls = 200
		ctx := within(t)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for j := range calls {
					key := fmt.Sprint(i, " ", j)
					if reply, err := s.Do(ctx, get(key)); err != nil || string(reply.Outcomes[0].Value) != key {
						t.Errorf("%s: %v, %v", key, reply, err)
						return
					}
				}
			})
		}
		all.Wait()
		least, most := int64(calls), int64(calls)
		if callers > 1 {
			most = int64(callers * calls / 4)
		}
		if n := batches.Load(); n < least || n > most {
			t.Errorf("%d calls of %d callers travelled in %d batches, %d to %d expected", callers*calls, callers, n, least, most)
		} else {
			t.Logf("%d calls of %d callers in %d batches", callers*calls, callers, n)
		}
	}
}

// TestGroupsTravelAsTheirOperations: a group has as much room in a batch, and in a call, as its
// operations have, since its outcome is as long as theirs.
func TestGroupsTravelAsTheirOperations(t *testing.T) {
	group := func(n int) *Call {
		var all []*rpcv1.Operation
		for range n {
			all = append(all, get("x")...)
		}
		value, err := rpcv1.AppendGroup(nil, all)
		if err != nil {
			t.Fatal(err)
		}
		ops := []*rpcv1.Operation{{Kind: rpcv1.Operation_GROUP, Key: []byte("x"), Value: value}}
		return &Call{ops: ops, weight: rpcv1.Weight(ops)}
	}
	for n, most := range map[int]int{1: MaxBatch, MaxBatch / 4: 4, MaxBatch/2 + 1: 1, MaxCall: 1} {
		b, c, fit := &batch{}, group(n), 0
		for ; b.canCarry(c, 0); fit++ {
			b.add(c, 0)
		}
		if fit != most || b.count != most {
			t.Errorf("%d groups of %d fit into a batch of %d outcomes, want %d", fit, n, b.count, most)
		}
	}
	if _, err := (&Stream{}).Do(within(t), append(group(MaxCall).ops, get("y")...)); err == nil {
		t.Error("a call of more operations than the bound was taken")
	}
}
