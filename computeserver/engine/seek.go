package engine

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
)

// The move of a range may be deferred (ownership/manager_defer.go). Its keys are then served by a
// server to which the map does not give them. If a request finds its keys nowhere, or its server
// does not answer, its own server starts a look. It asks the home memory server which clients hold
// keys that the map gives to others, and asks the servers of these clients for one key of each such
// range, all at once. Requests are sent to a server that answers. Asking first keeps requests away
// from a holder that has died or is suspended, where their outcome would be unknown.
//
// A server that was seen to serve keys is used for them until
//
//   - it refuses one of them, because it has given them away. The map counts again at once;
//   - the next look finds otherwise. A look begins when the server does not answer, for whatever
//     reason; it may be the request's own short limit. So more requests than those under way are in
//     doubt only for the pause between looks and the time of a look;
//   - this server serves them, or the map lists the other server no more.
//
// It is still used under newer maps, because the stages of a change may follow each other faster
// than looks. Using it for too long does no harm: a server serves what is in its table and refuses
// everything else, so this decides only where requests are sent.
//
// A forwarded request is never forwarded again, so there are no loops. The owner by the map refuses
// it once it knows better, and the sender looks for itself.
//
// A server whose index is not open makes no looks, since it is no client of the home memory server.
// It is not ready then, so programs are led to others.
//
// Looks are few: one at a time in each server, two a second with the usual limit, each with one
// call at the home and at most one at each other server. Slow handovers and dead owners start looks
// too. These find no server for the keys.

const (
	// A look begins at the earliest this part of a request's limit after a map came, because a
	// handover is usually over by then. While maps come faster than that, it counts from when the
	// look was first wanted.
	seekAfter = 5
	seekEvery = 10 // the pause between looks is this part of it
)

// seeker is the state of the look.
type seeker struct {
	busy atomic.Bool
	next atomic.Int64 // no look begins before
	// when the next look was first wanted; 0 = it was not
	wanted atomic.Int64
}

// seek begins a look, unless one is under way or has just ended, or the map is too new. It does not
// wait.
func (c *Engine) seek() {
	h, now := c.manager.Load(), c.Env.Now()
	if h == nil || now < time.Duration(c.seeker.next.Load()) {
		return
	}
	first := time.Duration(c.seeker.wanted.Load())
	if first == 0 || now-first > c.Limit { // or the request that wanted it has found its keys
		first = now
		c.seeker.wanted.Store(int64(now))
	}
	after := c.Limit / seekAfter
	if now-c.View.Arrived() < after && now-first < after || !c.seeker.busy.CompareAndSwap(false, true) {
		return
	}
	if now < time.Duration(c.seeker.next.Load()) { // another look was made since
		c.seeker.busy.Store(false)
		return
	}
	c.seeker.wanted.Store(0)
	c.Env.Go("look for the server of keys", func() {
		defer c.seeker.busy.Store(false)
		if seen, err := c.findServed(h.Owner()); err == nil {
			c.View.See(seen)
		}
		c.seeker.next.Store(int64(c.Env.Now() + c.Limit/seekEvery))
	})
}

// failed looks for the server of a key, or of the keys right below it, if the server where a
// request for it was sent does not serve it, or did not answer.
func (c *Engine) failed(server uint32, key []byte, below bool, code rpcv1.Outcome_Code) {
	switch code {
	case rpcv1.Outcome_NOT_OWNER:
		c.View.Unsee(server, key, below)
		c.seek()
	case rpcv1.Outcome_UNAVAILABLE, rpcv1.Outcome_UNKNOWN, rpcv1.Outcome_TIMED_OUT:
		c.seek()
	}
}

// findServed returns the ranges that other servers serve although the map does not give them these.
func (c *Engine) findServed(ix ownership.Owner) (seen []partition.Span, err error) {
	held, err := ix.Holdings()
	m := c.View.Current()
	if err != nil || m == nil {
		return nil, err
	}
	questions := make([][]partition.Span, len(m.Servers))
	for _, r := range held {
		at := slices.IndexFunc(m.Servers, func(s partition.Server) bool { return s.Name == r.Name })
		if r.Fenced || r.Name == "" || r.Client == ix.Client() || at < 0 || m.Servers[at].ID == c.Self {
			continue
		}
		for i := m.At(r.Start); i < len(m.Ranges); i++ {
			s := m.Span(i)
			start, end, ok := keyrange.Intersect(s.Start, s.End, r.Start, r.End)
			if !ok {
				break
			}
			if to := m.Servers[at].ID; s.Owner != to {
				questions[at] = append(questions[at], partition.Span{Start: start, End: end, Owner: to})
			}
		}
	}
	group := env.NewWaitGroup(c.Env)
	for at, spans := range questions {
		if len(spans) > 0 {
			group.Go("ask who serves keys", func() { questions[at] = c.serving(m.Servers[at], spans) })
		}
	}
	group.Wait(env.Forever) // each of them keeps to a limit
	return slices.Concat(questions...), nil
}

// serving returns those of spans that a server serves, by their first keys; none if it does not
// answer.
func (c *Engine) serving(to partition.Server, spans []partition.Span) (serves []partition.Span) {
	for part := range slices.Chunk(spans, MaxForward) {
		ops := make([]*rpcv1.Operation, len(part))
		for i, s := range part {
			key := s.Start
			if c.Index.KeyType == config.KeyUint64 && len(key) < 8 { // as it compares
				key = append(bytes.Clone(key), make([]byte, 8-len(key))...)
			}
			ops[i] = &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: key}
		}
		out, err := c.Peers.Do(context.Background(), to, ops, c.Limit/seekAfter, nil)
		if err != nil {
			return serves
		}
		for i, s := range part {
			if out[i].Code.Meaning().Pair { // a hash, or a sorted set, is served too
				serves = append(serves, s)
			}
		}
	}
	return serves
}
