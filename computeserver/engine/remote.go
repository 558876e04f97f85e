package engine

import (
	"sync/atomic"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Operations of Do that belong to other servers are sent to all of these by the goroutine of the
// call, which then runs what is this server's, and then takes what was answered, in any order: no
// goroutine is begun for them. What is to be tried again while another server has not answered goes
// on in a lane, with a goroutine of its own, as it does in DoParts.
//
// A goroutine that wakes costs more than an operation, so the caller wakes once, when all have
// answered; after patience, when any of them does.

// patience is how long an answer may wait for others before it is looked at.
const patience = 10 * time.Millisecond

// round is one try of operations by one map.
type round struct {
	m     *partition.Map
	here  []int // of this server
	again []int // to be tried again, without a server so far
	there []remote
	ended arrivals
}

// arrivals wakes the goroutine that waits for other servers.
type arrivals struct {
	open  atomic.Int32 // calls that are not over
	each  atomic.Bool  // it wakes for each of them
	event env.Event
}

// Set implements Waker.
func (a *arrivals) Set() {
	if a.open.Add(-1) == 0 || a.each.Load() {
		a.event.Set()
	}
}

// remote is the operations of one round that belong to one other server, in order.
type remote struct {
	owner uint32
	count int // of todo
	todo  []int
	again []int   // those of them that were not done and are worth another try
	call  Started // nil before it is sent, and when it is over
}

// MaxForward bounds the operations that are forwarded in one call.
const MaxForward = 1024

// runRemote runs operations at their owner. What it answers before the rest, and is not tried
// again, is handed on at once.
func (l *Lanes) runRemote(m *partition.Map, r *remote) {
	c, ops, out := l.c, l.ops, l.out
	to, _ := m.Server(r.owner)
	for rest := r.todo; len(rest) > 0; {
		part := rest[:min(len(rest), MaxForward)]
		rest = rest[len(part):]
		send := l.appendOps(make([]*rpcv1.Operation, 0, len(part)), part)
		early, told := l.earlyAnswers(part)
		outcomes, err := c.Peers.Do(l.context(), to, send, env.Remaining(c.Env, l.t.Deadline), early)
		c.Count.Forwarded.Add(uint64(len(part)))
		for n, i := range part {
			if told == nil || !told[n] {
				l.take(m, i, n, outcomes, err)
			}
		}
		if !r.selectRetries(ops, out, part, rest) {
			return
		}
	}
}

// appendOps appends the operations at some positions.
func (l *Lanes) appendOps(to []*rpcv1.Operation, at []int) []*rpcv1.Operation {
	for _, i := range at {
		to = append(to, l.ops[i])
	}
	return to
}

// take takes the outcome of operation i, the nth one of a call that another server answered, or
// that failed.
func (l *Lanes) take(m *partition.Map, i, n int, outcomes []*rpcv1.Outcome, err error) {
	if err == nil {
		l.out[i] = outcomes[n]
		return
	}
	l.out[i] = OutcomeOf(err)
	l.out[i].Message = l.c.At(m, l.ops[i].Key, l.out[i].Message)
}

// start divides operations by a map, and hands those of other servers to these.
func (l *Lanes) start(m *partition.Map, todo []int) *round {
	c := l.c
	r := &round{m: m}
	if r.here, r.again, r.there = l.divide(m, todo); len(r.there) == 0 {
		return r
	}
	if err := c.Sessions.inTerm(l.term); err != nil {
		o := OutcomeOf(err)
		for _, i := range todo {
			l.out[i] = o
		}
		return &round{m: m}
	}
	r.ended.event = c.Env.NewEvent()
	r.ended.open.Store(int32(len(r.there)))
	most, limit := 0, env.Remaining(c.Env, l.t.Deadline)
	for i := range r.there {
		most += len(r.there[i].todo)
	}
	sent := make([]*rpcv1.Operation, 0, most)
	for i := range r.there {
		at, to := &r.there[i], len(sent)
		if len(at.todo) > MaxForward {
			r.ended.Set()
			l.park(at.todo, true, nil)
			continue
		}
		sent = l.appendOps(sent, at.todo)
		server, _ := m.Server(at.owner)
		c.Count.Forwarded.Add(uint64(len(at.todo)))
		at.call = c.Peers.Start(server, sent[to:len(sent):len(sent)], limit, &r.ended)
	}
	return r
}

// finish runs what a round has for this server, waits for the others, and returns what is to be
// tried again.
func (l *Lanes) finish(r *round) (again []int) {
	again = r.again
	if len(r.here) > 0 {
		again = append(again, l.runLocal(r.m, r.here, true)...)
	}
	for limit, late := patience, false; ; limit = env.Forever {
		open := 0
		for i := range r.there {
			at := &r.there[i]
			if at.call == nil {
				continue
			}
			if l.taken(r.m, at, late) {
				again = append(again, at.again...)
			} else {
				open++
			}
		}
		if open == 0 {
			return again
		}
		if len(again) > 0 && !l.isOver(retryFirst) {
			l.park(again, true, r.m)
		}
		again = nil
		left := env.Remaining(l.c.Env, l.t.Deadline)
		if !r.ended.event.Wait(min(limit, left)) {
			late = left <= limit
			r.ended.each.Store(true)
		}
	}
}

// taken takes what another server answered, and reports whether the call is over.
func (l *Lanes) taken(m *partition.Map, r *remote, giveUp bool) bool {
	outcomes, err, over := r.call.Take(giveUp)
	if !over {
		return false
	}
	r.call = nil
	for n, i := range r.todo {
		l.take(m, i, n, outcomes, err)
	}
	r.selectRetries(l.ops, l.out, r.todo, nil)
	for _, i := range r.todo {
		l.c.failed(r.owner, l.ops[i].Key, false, l.out[i].Code)
	}
	return true
}

// isOver reports whether nothing is tried any more after a pause.
func (l *Lanes) isOver(pause time.Duration) bool {
	return env.Remaining(l.c.Env, l.t.Deadline) <= 2*pause || l.c.ending()
}

// divide divides operations into those of this server, those whose server is not known yet, and
// those of each other server. What was forwarded here and belongs elsewhere has its outcome then,
// and so has a group of keys that belong to several servers.
func (l *Lanes) divide(m *partition.Map, todo []int) (here, again []int, there []remote) {
	c, n := l.c, 0
	for ; n < len(todo); n++ {
		if place, _, other := c.placeOf(m, l.ops[todo[n]]); place != ownership.Here || other != nil {
			break
		}
	}
	if here = todo[:n:n]; n == len(todo) { // the usual case
		return here, nil, nil
	}
	var few [dividedFew]int16
	to := few[:0] // the remote of each operation from the nth on, and one more; 0: none
	for _, i := range todo[n:] {
		of := 0
		place, owner, other := c.placeOf(m, l.ops[i])
		switch {
		case other != nil && !l.forwarded:
			l.out[i] = OutcomeOf(SplitGroup(l.ops[i].Key, other))
		case other != nil: // by this map; the sender has another one
			l.out[i] = &rpcv1.Outcome{Code: rpcv1.Outcome_NOT_OWNER, Message: c.At(m, other, "this server is not in charge of them")}
		case place == ownership.Here:
			here = append(here, i)
		case place == ownership.Unknown:
			l.out[i] = OutcomeOf(c.unowned())
			if !l.forwarded {
				again = append(again, i)
			}
		case l.forwarded:
			l.out[i] = &rpcv1.Outcome{Code: rpcv1.Outcome_NOT_OWNER, Message: c.At(m, l.ops[i].Key, "this server is not in charge of them")}
		default:
			there, of = addRemote(there, owner, min(len(m.Servers), len(todo)-n))
		}
		to = append(to, int16(of))
	}
	if len(there) > 0 {
		fillRemotes(there, todo[n:], to)
	}
	return here, again, there
}

// dividedFew is how many operations are divided without memory of their own for that.
const dividedFew = 64

// addRemote counts an operation of an owner, and returns which remote of most that is, from 1 on.
func addRemote(there []remote, owner uint32, most int) ([]remote, int) {
	for n := range there {
		if there[n].owner == owner {
			there[n].count++
			return there, n + 1
		}
	}
	if there == nil {
		there = make([]remote, 0, most)
	}
	there = append(there, remote{owner: owner, count: 1})
	return there, len(there)
}

// fillRemotes gives each remote its operations, which are those of todo that to has.
func fillRemotes(there []remote, todo []int, to []int16) {
	all := make([]int, len(todo))
	for n := range there {
		there[n].todo, all = all[:0:there[n].count], all[there[n].count:]
	}
	for n, of := range to {
		if of > 0 {
			there[of-1].todo = append(there[of-1].todo, todo[n])
		}
	}
}
