package verbstest

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The tests of Poll.
var pollTests = []test{
	{"ListsEndWhilePolled", pollsTogether},
}

// pollsTogether: queue pairs of one connection, some of which look only for a moment, each get
// their own answers.
func pollsTogether(f *fixture) {
	const goroutines = 4
	c, rounds := f.connect(1), f.repeats()/4
	var run []func()
	for n := range uint64(goroutines) {
		q, own, old := f.qp(c), rand.New(rand.NewPCG(f.rand.Uint64(), n)), f.buffer(8)
		run = append(run, func() {
			for round := range uint64(rounds) {
				if err := q.Start([]verbs.Request{fetchAdd(8*n, old, 1)}); err != nil {
					f.Errorf("round %d: %v", round, err)
					return
				}
				for n != 0 && !q.Poll(time.Duration(own.IntN(60)-20)*time.Microsecond) && own.IntN(4) > 0 {
					f.env.Yield()
				}
				if err := q.Wait(); err != nil || get(old) != round {
					f.Errorf("round %d: found %d, %v", round, get(old), err)
					return
				}
			}
			if !q.Poll(0) {
				f.Errorf("a list is under way after its Wait")
			}
		})
	}
	f.together(run...)
}

// serverFreezesPolls: a Poll of a list that a suspended server has to answer ends at its own limit.
// The queue pair and the list outlive it: others see the end, or the limit of Wait.
func serverFreezesPolls(f *fixture) {
	s, c := f.remoteServer()
	var run []func()
	var qps []verbs.QP
	for range 3 {
		q, b := f.qp(c), f.buffer(8)
		qps = append(qps, q)
		run = append(run, func() {
			if err := q.Start([]verbs.Request{read(0, b)}); err != nil {
				f.Error(err)
				return
			}
			began := f.env.Now()
			over := q.Poll(20 * time.Millisecond)
			if took := f.env.Now() - began; over != (took < 20*time.Millisecond) || q.Err() != nil {
				f.Errorf("a Poll of 20 ms says %v after %v; the queue pair %v", over, took, q.Err())
			}
		})
	}
	f.freeze(s)
	f.together(run...)
	over := qps[0].Poll(0) // the memory needs no server
	f.thaw(s)
	for _, q := range qps[:2] {
		if !q.Poll(soon) {
			f.Fatalf("no end within %v", soon)
		}
		if err := q.Wait(); err != nil {
			f.Fatal(err)
		}
	}
	if err := qps[2].Wait(); err != nil {
		f.Fatalf("Wait after a Poll that ended before the list: %v", err)
	}
	f.freeze(s)
	f.together(run[:2]...)
	for _, q := range qps[:2] {
		q.SetLimit(10 * time.Millisecond)
		if err := q.Wait(); over != (err == nil) || !over && !errors.Is(err, verbs.ErrTimeout) || !q.Poll(soon) {
			f.Errorf("Wait after a Poll, with a limit: %v", err)
		}
	}
	f.thaw(s)
}
