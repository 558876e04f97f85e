package engine

import (
	"context"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// startedCall is a call of Peers.Start that a goroutine makes by Peers.Do.
type startedCall struct {
	mu   env.Mutex
	out  []*rpcv1.Outcome
	err  error
	over bool
}

func startBy(e env.Env, p Peers, to partition.Server, ops []*rpcv1.Operation, limit time.Duration, ended Waker) Started {
	s := &startedCall{mu: e.NewMutex()}
	e.Go("call of another server", func() {
		out, err := p.Do(context.Background(), to, ops, limit, nil)
		s.mu.Lock()
		s.out, s.err, s.over = out, err, true
		s.mu.Unlock()
		ended.Set()
	})
	return s
}

func (s *startedCall) Take(giveUp bool) ([]*rpcv1.Outcome, error, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over && giveUp {
		return nil, &Failure{Code: rpcv1.Outcome_UNKNOWN, Message: "it did not answer in time"}, true
	}
	return s.out, s.err, s.over
}
