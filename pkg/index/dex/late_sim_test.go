package dex_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestEntriesOfLateAnswers: between a lookup's READ of a leaf and its answer, another session changes the key, and the leaf leaves the cache again. What was READ must not be kept then: neither the entry, nor
// the leaf, by a change that comes next.
func TestEntriesOfLateAnswers(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 20_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Chunks: 40, ChunkBytes: 64 << 10, Locks: 64, Fabric: sim.Options{}})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(func(p *simenv.Process) {
		over := p.NewEvent()
		q := w.NewProcess("client")
		q.Go("run", func() {
			defer over.Set()
			if err := lateAnswers(t, c, q); err != nil {
				w.Fail(err)
			}
		})
		over.Wait(env.Forever)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func lateAnswers(t *testing.T, c *poolsim.Cluster, p *simenv.Process) error {
	const keys, node = 4000, 512
	late := &lateDevice{Device: c.Fabric.Device(p), node: node}
	opened, err := pool.Open(pool.Config{Env: p, Control: c.Control(p), Devices: []verbs.Device{late}, Identity: poolsim.Identity})
	if err != nil {
		return err
	}
	opts := index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: node, CacheBytes: 32 << 10}
	open, err := dex.Open(opened, opts)
	if err != nil {
		return err
	}
	x := open.(index.Partitioned)
	if err := x.Take(pool.Holding{Epoch: 1}); err != nil {
		return err
	}
	reader, err := x.Session()
	if err != nil {
		return err
	}
	writer, err := x.Session()
	if err != nil {
		return err
	}
	for n := range uint64(keys) {
		if err := writer.Upsert(simKey(n), fmt.Appendf(nil, "%d", n)); err != nil {
			return err
		}
	}
	reads := func() uint64 { n := reader.Counters(); return uint64(n.Requests[verbs.Read]) }
	changed, was, kept := 0, 0, 0
	for n := uint64(0); n < keys; n += 7 {
		for hot := uint64(0); hot < 1000; hot += 5 { // leaves that are worth their frames
			if _, err := reader.Lookup(simKey(hot), nil); err != nil {
				return err
			}
		}
		if n%2 == 0 {
			late.after = func(a pool.Addr) error {
				if dex.Framed(x, a) { // the reader has its lock
					return nil
				}
				changed++
				if err := writer.Upsert(simKey(n), []byte("new")); err != nil {
					return err
				}
				return dex.Forget(x, a)
			}
		}
		if _, err := reader.Lookup(simKey(n), nil); err != nil {
			return err
		}
		met := changed > was
		was, late.after = changed, nil
		if met && n%4 == 0 { // of the same leaf, most of the time
			if err := reader.Upsert(simKey(n+1), []byte("beside")); err != nil {
				return err
			}
		}
		before := reads()
		v, err := reader.Lookup(simKey(n), nil)
		if err != nil {
			return err
		}
		if !met && reads() == before {
			kept++
		}
		if met && string(v) != "new" {
			return fmt.Errorf("key %d is %q, and was changed before the lookup began", n, v)
		}
	}
	t.Logf("%d keys changed between READ and answer; %d others found in the cache the second time", changed, kept)
	if changed < 100 || kept < 100 {
		t.Errorf("%d keys changed between READ and answer; %d others found in the cache the second time: this tests nothing", changed, kept)
	}
	return nil
}

// lateDevice does something after a READ of a node, before its answer is there for whoever waits for it.
type lateDevice struct {
	verbs.Device
	node  int
	after func(pool.Addr) error
	close error // what closing a queue pair says
}

func (d *lateDevice) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	c, err := d.Device.Connect(t, limit)
	return &lateConn{c, d}, err
}

type lateConn struct {
	verbs.Conn
	d *lateDevice
}

func (c *lateConn) NewQP(a *verbs.Arena) (verbs.QP, error) {
	q, err := c.Conn.NewQP(a)
	return &lateQP{QP: q, d: c.d}, err
}

type lateQP struct {
	verbs.QP
	d    *lateDevice
	read pool.Addr // the node that the list under way READs last, on the only server
}

func (q *lateQP) Close() error { return errors.Join(q.QP.Close(), q.d.close) }

func (q *lateQP) Start(list []verbs.Request) error {
	q.read = pool.Nil
	for i := range list {
		if list[i].Op == verbs.Read && len(list[i].Local) == q.d.node {
			q.read = pool.NewAddr(1, list[i].Remote)
		}
	}
	return q.QP.Start(list)
}

func (q *lateQP) Wait() error {
	err := q.QP.Wait()
	if do := q.d.after; err == nil && q.read != pool.Nil && do != nil {
		q.d.after = nil
		err = do(q.read)
	}
	return err
}
