package engine

import (
	"context"
	"slices"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Some keys have no server for a while: they are being taken over, or their owner does not answer.
// Operations on them wait, and no other operation waits with them, though strangers share a batch.
// So a batch runs in lanes. A lane is operations that go the same way: to sessions of this server,
// or to one other server. It tries them until each has its outcome, and waits only for its own.
//
//   - A lane begins with all operations on a key that the batch has. It is divided by the map by
//     which it tries them, which gives a key to one server, so these stay together and keep their
//     order. Operations on different keys have none.
//   - A lane ends within the batch's limit: it tries nothing after the deadline, and nothing of it
//     waits for longer than that.
//   - There are no more lanes of a batch than operations, and of a stream no more than its Parts
//     admits.
//
// The worker of a stream runs what need not wait, and nothing else (DoParts): a lane that comes to
// wait is parked, with a goroutine of its own.

// Parts takes the outcomes of operations that wait (DoParts). Its methods are called by several
// goroutines, do not call the engine, and wait for nothing but the network.
type Parts interface {
	// Park counts one more lane. It returns false if too many wait already: then its operations are
	// answered UNAVAILABLE.
	Park() bool
	// Leave is called when a lane that Park counted has ended.
	Leave()
	// Answered takes the outcomes in out at some positions, which will not change. One that was
	// given before may be among them.
	Answered(at []int, out []*rpcv1.Outcome)
	// Gone reports whether what waits ends now: the way of its outcomes does, or nobody waits for
	// them any more. Nothing is tried then.
	Gone() bool
	// Context ends what waits for another server. It is done some time after Gone.
	Context() context.Context
}

// Lanes is one call of Begin, Do or DoParts.
type Lanes struct {
	c         *Engine
	ops       []*rpcv1.Operation
	forwarded bool
	inner     bool // of this server itself, not of a program
	term      uint64
	t         Timing
	out       []*rpcv1.Outcome // each is written by the lane that has its operation

	// Of Begin: what Wait runs, and what was sent of it. nil: nothing was divided yet.
	todo  []int
	first *round
	// Wait waits for its lanes. nil while there is none but the caller's.
	group *env.WaitGroup

	parts  Parts  // of DoParts
	parked []int  // what the caller's lane parked
	open   []bool // of end: is tried again
}

var errGone error = &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "nothing was done: the stream of this request ends; try again"}

var errParked error = &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "too many requests wait already for keys that have no server; try again"}

// begin gives outcomes to what cannot run, and returns what can.
func (l *Lanes) begin(limit time.Duration) (todo []int) {
	c := l.c
	l.out = make([]*rpcv1.Outcome, len(l.ops))
	if err := c.Blocked(); err != nil {
		fill(l.out, OutcomeOf(err))
		return nil
	}
	if limit <= 0 {
		fill(l.out, OutcomeOf(ErrLate))
		return nil
	}
	l.t = NewTiming(env.Deadline(c.Env, limit), limit)
	todo = make([]int, 0, len(l.ops))
	for i, op := range l.ops {
		err := c.check(op)
		if err == nil && !l.inner && !l.forwarded {
			err = c.Check(op)
		}
		if err != nil {
			l.out[i] = OutcomeOf(err)
			continue
		}
		todo = append(todo, i)
	}
	return todo
}

// runLane brings operations to their outcomes. Where it must not wait, what would wait is parked.
// first is its first round, if that was started.
func (l *Lanes) runLane(todo []int, waits bool, first *round) {
	c := l.c
	if todo = l.addMembers(todo, waits); len(todo) == 0 {
		return
	}
	for pause := retryFirst; ; pause = min(2*pause, retrySlowest) {
		if l.parts != nil && waits && l.parts.Gone() {
			for _, i := range todo {
				l.out[i] = OutcomeOf(errGone)
			}
			l.end(todo, nil)
			return
		}
		m := c.View.Route()
		mine, again := todo, []int(nil)
		if l.parts != nil {
			mine, again = l.tryOnce(m, todo, waits)
		} else {
			if first == nil {
				first = l.start(m, todo)
			}
			m, again, first = first.m, l.finish(first), nil
		}
		// With little or no time left, the reason of this failure says more than "too late". (None
		// may be left because the pause took longer.)
		if len(again) > 0 && l.isOver(pause) {
			again = nil
		}
		if !waits {
			l.park(again, waits, nil)
			return
		}
		l.end(mine, again)
		if todo = again; len(todo) == 0 {
			return
		}
		c.View.AwaitOther(m, pause)
		if env.Remaining(c.Env, l.t.Deadline) == 0 {
			l.end(todo, nil)
			return
		}
	}
}

// park lets operations of a lane go on in one of their own, after they were tried by a map, unless
// it is nil. It returns false, and gives them outcomes, if too many lanes are parked.
func (l *Lanes) park(todo []int, waits bool, tried *partition.Map) bool {
	c := l.c
	if len(todo) == 0 {
		return true
	}
	if l.parts == nil {
		if l.group == nil {
			l.group = env.NewWaitGroup(c.Env)
		}
		l.group.Go("lane of a batch", func() {
			if tried != nil {
				c.View.AwaitOther(tried, retryFirst)
			}
			l.runLane(todo, true, nil)
		})
		return true
	}
	if !l.parts.Park() {
		for _, i := range todo {
			l.out[i] = OutcomeOf(errParked)
		}
		return false
	}
	if l.open == nil { // before there is another lane
		l.open = make([]bool, len(l.ops))
	}
	if !waits {
		l.parked = append(l.parked, todo...)
	}
	c.Env.Go("lane of a batch", func() {
		defer l.parts.Leave()
		l.runLane(todo, true, nil)
	})
	return true
}

// end hands on the outcomes of operations but those that are tried again.
func (l *Lanes) end(todo, again []int) {
	if l.parts == nil || len(todo) == 0 {
		return
	}
	for _, i := range again {
		l.open[i] = true
	}
	done := make([]int, 0, len(todo))
	for _, i := range todo {
		if !l.open[i] {
			done = append(done, i)
		}
		l.open[i] = false
	}
	if len(done) == 0 {
		return
	}
	l.parts.Answered(done, l.out)
	for _, i := range done {
		if len(l.out[i].Value) > 0 {
			l.out[i] = handedOn
		}
	}
}

// handedOn stands for the outcome of a lookup in a batch of which other operations still wait: the
// value is not kept for as long.
var handedOn = &rpcv1.Outcome{Code: rpcv1.Outcome_OK}

// tryOnce tries operations once, by one map, so that all operations on a key go the same way. What
// goes another way than the lane's goes on in a lane of its own. It returns the others, and those
// of them that are worth another try.
func (l *Lanes) tryOnce(m *partition.Map, todo []int, waits bool) (mine, again []int) {
	here, again, there := l.divide(m, todo)
	if len(there) == 0 {
		return todo, append(again, l.runLocal(m, here, waits)...)
	}
	if err := l.c.Sessions.inTerm(l.term); err != nil {
		for _, i := range todo {
			l.out[i] = OutcomeOf(err)
		}
		return todo, nil
	}
	var own *remote
	if n := len(there) - 1; waits && len(here)+len(again) == 0 {
		own, there = &there[n], there[:n]
	}
	left := make([]bool, len(l.ops)) // for another lane
	for _, r := range there {
		if l.park(r.todo, waits, nil) {
			for _, i := range r.todo {
				left[i] = true
			}
		}
	}
	mine = slices.DeleteFunc(slices.Clone(todo), func(i int) bool { return left[i] })
	if own == nil {
		if len(here) > 0 {
			again = append(again, l.runLocal(m, here, waits)...)
		}
		return mine, again
	}
	l.runRemote(m, own)
	for _, i := range own.todo {
		l.c.failed(own.owner, l.ops[i].Key, false, l.out[i].Code)
	}
	return mine, own.again
}

// runLocal runs operations in sessions of this server.
func (l *Lanes) runLocal(m *partition.Map, todo []int, waits bool) (again []int) {
	t := l.t
	t.parked, t.parks = waits && l.parts != nil, !waits
	return l.c.runLocal(m, l.ops, l.out, todo, t, l.term)
}

// context ends what waits for another server.
func (l *Lanes) context() context.Context {
	if l.parts == nil {
		return context.Background()
	}
	return l.parts.Context()
}

// earlyAnswers returns a function for what another server answers before the rest; told says which
// outcomes it took. Both are nil if nobody takes outcomes before all are there.
func (l *Lanes) earlyAnswers(part []int) (early func(some []*rpcv1.Outcome), told []bool) {
	if l.parts == nil {
		return nil, nil
	}
	told = make([]bool, len(part))
	return func(some []*rpcv1.Outcome) {
		var done []int
		for n, o := range some {
			if i := part[n]; !told[n] && o.Code != rpcv1.Outcome_LATER && !repeatable(l.ops[i], o) {
				l.out[i], told[n], done = o, true, append(done, i)
			}
		}
		l.end(done, nil)
	}, told
}
