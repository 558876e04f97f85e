//env:real a gRPC server: streams are channels and goroutines

package computeserver

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// doStream is one Do stream: its receiver puts batches into a queue, its workers take them.
type doStream struct {
	r       *rpcServer
	stream  grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]
	batches chan *rpcv1.DoRequest
	workers sync.WaitGroup
	busy    atomic.Int32 // workers that run a batch
	sending sync.Mutex   // of stream.Send
}

func (w *doStream) work() {
	for {
		w.busy.Add(-1)
		req, ok := <-w.batches
		w.busy.Add(1)
		if !ok {
			return
		}
		w.batch(req)
	}
}

func (w *doStream) batch(req *rpcv1.DoRequest) {
	c := w.r.core
	began := c.env.Now()
	limit := c.limit
	if asked := time.Duration(req.LimitMilliseconds) * time.Millisecond; asked > 0 {
		limit = min(limit, asked)
	}
	reply := &rpcv1.DoReply{Id: req.Id}
	if w.r.refuses() {
		refusal := &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: "this server is shutting down; ask another one"}
		reply.Outcomes = fill(make([]*rpcv1.Outcome, len(req.Operations)), refusal)
	} else {
		defer w.r.begin()()
		reply.Outcomes = c.do(req.Operations, req.Forwarded, limit)
	}
	reply.MapGeneration = c.own.generation()
	var t tally
	for i, o := range reply.Outcomes {
		t.slot = int(req.Operations[i].Kind)
		if t.slot < 0 || t.slot >= rpcScanSlot {
			t.slot = 0
		}
		t.count(kindOf(o))
	}
	t.publish(&w.r.metrics.rpc, c.env.Now()-began)
	w.sending.Lock()
	defer w.sending.Unlock()
	_ = w.stream.Send(reply) // a broken stream ends Recv as well
}

func kindOf(o *rpcv1.Outcome) outcomeKind {
	switch o.Code {
	case rpcv1.Outcome_OK:
		return outcomeOK
	case rpcv1.Outcome_NOT_FOUND, rpcv1.Outcome_ALREADY_EXISTS:
		return outcomeMiss
	}
	return outcomeError
}
