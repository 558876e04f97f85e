package poolsim_test

import (
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// hookedDevice is asked before each list of requests is posted, and after it took effect, before
// the goroutine that posted it knows. A hook that waits stops that goroutine alone, which no fault
// of a plan does: these meet whole processes.
type hookedDevice struct {
	verbs.Device
	posts func(list []verbs.Request) error // an error: the list is lost
	done  func(list []verbs.Request)
}

// Connect implements verbs.Device.
func (d *hookedDevice) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	c, err := d.Device.Connect(t, limit)
	return hookedConn{c, d}, err
}

type hookedConn struct {
	verbs.Conn
	d *hookedDevice
}

// NewQP implements verbs.Conn.
func (c hookedConn) NewQP(a *verbs.Arena) (verbs.QP, error) {
	q, err := c.Conn.NewQP(a)
	return &hookedQP{QP: q, d: c.d}, err
}

type hookedQP struct {
	verbs.QP
	d    *hookedDevice
	list []verbs.Request
}

// Start implements verbs.QP.
func (q *hookedQP) Start(list []verbs.Request) error {
	if q.d.posts != nil {
		if err := q.d.posts(list); err != nil {
			return err
		}
	}
	q.list = append(q.list[:0], list...)
	return q.QP.Start(list)
}

// Wait implements verbs.QP.
func (q *hookedQP) Wait() error {
	err := q.QP.Wait()
	if err == nil && q.d.done != nil {
		q.d.done(q.list)
	}
	return err
}
