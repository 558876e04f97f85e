package dex_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// inSimulation runs f as a process of a simulated cluster.
func inSimulation(t *testing.T, o poolsim.Options, f func(c *poolsim.Cluster, p *simenv.Process) error) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 20_000_000})
	c, err := poolsim.New(w, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(func(p *simenv.Process) {
		over := p.NewEvent()
		client := w.NewProcess("client")
		client.Go("run", func() {
			defer over.Set()
			if err := f(c, client); err != nil {
				w.Fail(err)
			}
		})
		over.Wait(env.Forever)
	}); err != nil {
		t.Fatal(err)
	}
}

// openAll opens the index of a client that takes all keys, and a session of it. Its requests go
// through device d; nil = none but the cluster's.
func openAll(c *poolsim.Cluster, p *simenv.Process, d verbs.Device, o index.Options) (index.Partitioned, index.Session, error) {
	if d == nil {
		d = c.Fabric.Device(p)
	}
	pl, err := pool.Open(pool.Config{Env: p, Control: c.Control(p), Devices: []verbs.Device{d}, Identity: poolsim.Identity, RenewEvery: c.Options.RenewEvery})
	if err != nil {
		return nil, nil, err
	}
	i, err := dex.Open(pl, o)
	if err != nil {
		return nil, nil, err
	}
	x := i.(index.Partitioned)
	if err := x.Take(pool.Holding{Epoch: 1}); err != nil {
		return nil, nil, err
	}
	s, err := x.Session()
	return x, s, err
}

// hookedDevice does something before a list of requests is posted, and when it is over, before
// whoever waits for it goes on.
type hookedDevice struct {
	verbs.Device
	over  func(list []verbs.Request) error // of lists that succeed
	begin func(list []verbs.Request) error // before a list is posted
	close error                            // what closing a queue pair returns
}

// Connect implements verbs.Device.
func (d *hookedDevice) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	c, err := d.Device.Connect(t, limit)
	return &hookedConn{c, d}, err
}

type hookedConn struct {
	verbs.Conn
	d *hookedDevice
}

// NewQP implements verbs.Conn.
func (c *hookedConn) NewQP(a *verbs.Arena) (verbs.QP, error) {
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
	q.list = append(q.list[:0], list...)
	if q.d.begin != nil {
		if err := q.d.begin(list); err != nil {
			return err
		}
	}
	return q.QP.Start(list)
}

// Wait implements verbs.QP.
func (q *hookedQP) Wait() error {
	err := q.QP.Wait()
	if err == nil && q.d.over != nil {
		err = q.d.over(q.list)
	}
	return err
}

// Close implements verbs.QP.
func (q *hookedQP) Close() error { return errors.Join(q.QP.Close(), q.d.close) }
