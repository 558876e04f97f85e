package indexsim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// unsteady is a client's device of which single queue pairs are late now and then, and lists have
// no answer. What an operation waits for then is over only when its limit is, in the middle of it,
// and its session lives: the limit of a queue pair counts from when a list is on its way. A list
// without an answer ends its session; one of READs does before it is on its way, one that changes
// something before or after.
type unsteady struct {
	verbs.Device
	p    *simenv.Process
	rand *rand.Rand
	late int           // one of how many lists is late
	most time.Duration // by how much at most
	each time.Duration // every list is late by that much; 0 = by chance
	fail int           // one of how many lists has no answer; 0 = all have
	over bool          // nothing happens any more
}

// Connect implements verbs.Device.
func (d *unsteady) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	c, err := d.Device.Connect(t, limit)
	if err != nil {
		return nil, err
	}
	return &unsteadyConn{c, d}, nil
}

type unsteadyConn struct {
	verbs.Conn
	d *unsteady
}

// NewQP implements verbs.Conn.
func (c *unsteadyConn) NewQP(a *verbs.Arena) (verbs.QP, error) {
	q, err := c.Conn.NewQP(a)
	if err != nil {
		return nil, err
	}
	return &unsteadyQP{QP: q, d: c.d}, nil
}

type unsteadyQP struct {
	verbs.QP
	d      *unsteady
	lost   bool // the list under way has no answer
	failed error
}

// Start implements verbs.QP.
func (q *unsteadyQP) Start(list []verbs.Request) error {
	d := q.d
	switch {
	case q.failed != nil:
		return q.failed
	case d.over:
	case d.each > 0:
		d.p.Sleep(d.each)
	case d.rand.IntN(d.late) == 0:
		d.p.Sleep(d.most >> d.rand.IntN(12))
	case d.fail > 0 && d.rand.IntN(d.fail) == 0:
		q.lost = !onlyReads(list) && d.rand.IntN(2) == 0
		if !q.lost {
			q.failed = fmt.Errorf("a list fails: %w", verbs.ErrDisconnected)
			return q.failed
		}
	}
	return q.QP.Start(list)
}

// Wait implements verbs.QP.
func (q *unsteadyQP) Wait() error {
	err := q.QP.Wait()
	if q.lost && err == nil {
		q.failed = fmt.Errorf("a list has no answer: %w", verbs.ErrTimeout)
		return q.failed
	}
	return err
}

// Err implements verbs.QP.
func (q *unsteadyQP) Err() error {
	if q.failed != nil {
		return q.failed
	}
	return q.QP.Err()
}

// onlyReads reports whether the list has READs only.
func onlyReads(list []verbs.Request) bool {
	for i := range list {
		if list[i].Op != verbs.Read {
			return false
		}
	}
	return true
}
