package computeserver

import (
	"bytes"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// The move of a range may be deferred (holder_defer.go). Its keys are then served by a server to
// which the map does not give them. A request that finds its keys nowhere makes its server ask the
// home memory server which client holds them, and ask the server of that client for one key of each
// such range. Requests go to a server that answers, until the map changes, this server's own ranges
// change, or the next look finds otherwise. The question keeps requests away from a holder that has
// died or stands still: they would have no outcome there.
//
// A forwarded request is still never sent on, so there are no loops: the owner by the map refuses
// it once it knows better, and the sender looks for itself.

const (
	// this part of a request's limit after a map came, keys are looked for: a handover is over by
	// then
	seekAfter = 5
	seekEvery = 10 // there is a pause of this part of it between looks
	seekMost  = 64 // ranges that are asked for in one look
)

// seeker is the state of that look.
type seeker struct {
	busy atomic.Bool
	next atomic.Int64 // no look begins earlier
}

// seek begins a look unless one is under way or has just been, or the map is too new. It does not
// wait.
func (c *core) seek() {
	h, now := c.holder.Load(), c.env.Now()
	if h == nil || now < time.Duration(c.seeker.next.Load()) {
		return
	}
	since, version := c.own.age()
	if now-since < c.limit/seekAfter || !c.seeker.busy.CompareAndSwap(false, true) {
		return
	}
	c.env.Go("look for the server of keys", func() {
		defer c.seeker.busy.Store(false)
		if seen, err := c.look(h.ix); err == nil {
			c.own.see(version, seen)
		}
		c.seeker.next.Store(int64(c.env.Now() + c.limit/seekEvery))
	})
}

// look returns the ranges that other servers serve although the map does not give them these, as
// far as it learns in the time that a request has.
func (c *core) look(ix Owner) (seen []partition.Span, err error) {
	deadline := env.Deadline(c.env, c.limit)
	held, err := ix.Holdings()
	if err != nil {
		return nil, err
	}
	m, asked := c.own.current(), 0
	if m == nil {
		return nil, nil
	}
	silent := map[uint32]bool{}
	for _, r := range held {
		at := slices.IndexFunc(m.Servers, func(s partition.Server) bool { return s.Name == r.Name })
		if r.Fenced || r.Name == "" || r.Client == ix.Client() || at < 0 || m.Servers[at].ID == c.self {
			continue
		}
		to := m.Servers[at]
		for i := m.At(r.Start); i < len(m.Ranges); i++ {
			s := m.Span(i)
			start, end, ok := overlap(s.Start, s.End, r.Start, r.End)
			if !ok {
				break
			}
			if s.Owner == to.ID || silent[to.ID] {
				continue
			}
			if asked++; asked > seekMost || env.Remaining(c.env, deadline) == 0 {
				return seen, nil
			}
			serves, err := c.answers(to, start)
			if silent[to.ID] = err != nil; serves {
				seen = append(seen, partition.Span{Start: start, End: end, Owner: to.ID})
			}
		}
	}
	return seen, nil
}

// answers reports whether a server serves a key. After an error it did not say.
func (c *core) answers(to partition.Server, key []byte) (bool, error) {
	if c.index.KeyType == config.KeyUint64 && len(key) < 8 { // as it compares
		key = append(bytes.Clone(key), make([]byte, 8-len(key))...)
	}
	out, err := c.peers.do(to, []*rpcv1.Operation{{Kind: rpcv1.Operation_LOOKUP, Key: key}}, c.limit/seekAfter)
	return err == nil && (out[0].Code == rpcv1.Outcome_OK || out[0].Code == rpcv1.Outcome_NOT_FOUND), err
}
