package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/memserver/keeper"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// copied ends the name of a side whose memory servers are kept twice: each has two processes, and
// answers nothing before both have what the answer depends on.
const copied = "-2"

// copyRows are beside the same index without copies.
func copyRows() []row {
	dex, sherman := "dex-tcp"+copied, "sherman-tcp"+copied
	return []row{
		{name: "copy-set", what: "SET as in the row set, of memory servers that are kept twice; anchor: kept once", anchor: "dex-tcp", only: dex,
			goal: map[string]float64{dex: 0.85}, needs: "redis-benchmark", keys: nearKeys, operations: 400_000, run: benchmark("SET", nearKeys, 50, 32)},
		{name: "copy-owner", what: fmt.Sprintf("SET, pipelines of 32 to one compute server that has %g processors; memory servers have what they need; anchor: kept once", scaleShare),
			anchor: "dex-tcp", only: dex, goal: map[string]float64{dex: 0.85}, cgroups: true, operations: 60_000, run: scaled(1, 1, 0)},
		{name: "copy-update", what: "the same as copy-set with Sherman", anchor: "sherman-tcp", only: sherman,
			goal: map[string]float64{sherman: 0.7}, needs: "redis-benchmark", keys: nearKeys, operations: 100_000, run: benchmark("SET", nearKeys, 50, 32)},
		{name: "copy-get", what: "GET as in the row get; anchor: kept once", anchor: "dex-tcp", only: dex,
			needs: "redis-benchmark", keys: nearKeys, operations: 400_000, run: benchmark("GET", nearKeys, 50, 32)},
		{name: "copy-p99", what: "1 over the 99th percentile of GET, one at a time on each of 8 connections, beside SETs in pipelines of 32 on 16; anchor: kept once", anchor: "dex-tcp", only: dex,
			keys: nearKeys, operations: 20_000, run: slowestReads},
	}
}

// slowestReads is a run of GETs beside SETs. Its time is as if each GET took as long as the 99th
// percentile.
func slowestReads(m *machine, t *target, operations int) (time.Duration, error) {
	const writers, readers, depth = 16, 8, 32
	var over atomic.Bool
	var writing sync.WaitGroup
	var failed error
	writing.Go(func() {
		pickers := make([]*picker, writers)
		for i := range pickers {
			pickers[i] = newPicker(nearKeys, m.o.keys, readers+i)
		}
		for !over.Load() && failed == nil { // some tenths of a second each
			failed = crowd(t.resp[:1], writers, 40_000, func(c *client, of int) (int, error) {
				for range depth {
					c.begin(3)
					c.arg([]byte("SET"))
					c.arg(pickers[of].next())
					c.arg([]byte("xxx"))
				}
				return depth, c.send(depth)
			})
		}
	})
	pickers, took := make([]*picker, readers), make([][]time.Duration, readers)
	for i := range pickers {
		pickers[i] = newPicker(nearKeys, m.o.keys, i)
	}
	err := crowd(t.resp[:1], readers, operations, func(c *client, of int) (int, error) {
		c.begin(2)
		c.arg([]byte("GET"))
		c.arg(pickers[of].next())
		began := time.Now()
		err := c.send(1)
		took[of] = append(took[of], time.Since(began))
		return 1, err
	})
	over.Store(true)
	writing.Wait()
	all := slices.Concat(took...)
	slices.Sort(all)
	if err = errors.Join(err, failed); err != nil || len(all) == 0 {
		return 0, err
	}
	return all[len(all)*99/100] * time.Duration(operations), nil
}

// keepTwice lets the second of two processes have a copy of what the first one has, and keeps it so
// until the target ends.
func (m *machine) keepTwice(t *target, id int, controls []string) error {
	var pods []keeper.Pod
	for i, control := range controls {
		pods = append(pods, keeper.Pod{Name: podOf(id, i), Control: control})
	}
	k := keeper.New(keeper.Config{
		Volume: uint32(id), Copies: 2, Suspect: 2 * time.Second, Look: 100 * time.Millisecond, Pods: func() []keeper.Pod { return pods },
		Make: func() error { return errors.New("there are two processes, and no third one") }, Delete: func(string) {}, Logger: slog.New(slog.DiscardHandler),
	})
	keeping, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { k.Run(keeping) })
	t.keepers = append(t.keepers, func() { stop(); running.Wait() })
	soon, cancel := context.WithTimeout(m.ctx, startLimit)
	defer cancel()
	if err := k.Await(soon, func(_ volumes.View, s volumes.Status) bool { return s == volumes.InSync }); err != nil {
		return fmt.Errorf("%w; %s", err, m.logs(t))
	}
	return nil
}

func podOf(id, copy int) string { return fmt.Sprintf("memory-%d-%d", id, copy) }
