package redo

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// The logs of dead clients. The client that adopts a chunk of a dead client has its log, and only
// it can use the memory. So it frees the log when no client can need to replay it any more. That is
// so when
//
//  1. the log's client is fenced at the home server. The adopter fences it there if need be: it is
//     fenced where the chunk is, or the chunk could not have been adopted, so it is given up in any
//     case. From then on it acquires nothing, by no call however late;
//  2. after that, no holding names the log, neither as the holder's own nor as an inherited one.
//     Only holdings that name it can pass it on, so that stays true.
//
// Then the log's nonce is swapped away (Discard). Of two clients that do that, the late one
// cannot do it to the next log in that place. A client that dies in between has done nothing, or
// all of it: the next adopter of the chunk checks again. The same holds for a log whose client
// closed in order: a late call of its own may still name it.

// collectEvery is how often a client checks whether logs in its chunks are still needed.
const collectEvery = time.Second

// collectTries is how often in a row the collector may find a memory server disconnected before the
// client is given up: possibly nothing else uses that server for a long time.
const collectTries = 3

// Collector is the goroutine that frees logs.
type Collector struct {
	pool        *pool.Pool
	own         pool.Addr
	rings       []int
	stop, ended env.Event
}

// Start starts it. It frees logs with rings of these sizes, which clients of the pool have, those
// of other releases too; but not this client's own.
func (c *Collector) Start(own *Log, rings []int) {
	p := own.pool
	*c = Collector{pool: p, own: own.Ref().Addr, rings: rings, stop: p.Env().NewEvent(), ended: p.Env().NewEvent()}
	p.Env().Go("give logs back", c.run)
}

func (c *Collector) run() {
	defer c.ended.Set()
	failed := 0
	for pause := collectEvery; !c.stop.Wait(pause); {
		given, left, err := collectLogs(c.pool, c.rings, c.own)
		pause = collectEvery
		if failed++; !errors.Is(err, verbs.ErrDisconnected) {
			failed = 0
		}
		if failed == collectTries { // as when no session can be opened
			c.pool.Condemn(fmt.Errorf("give logs back: %w", err))
		}
		if err != nil || given == 0 && left > 0 {
			pause = 5 * collectEvery // a server is away, or it will take long
		}
		if c.pool.Alive() != nil {
			return
		}
	}
}

// End ends it, and returns an error if that takes too long.
func (c *Collector) End() error {
	c.stop.Set()
	if !c.ended.Wait(collectorStops) {
		return fmt.Errorf("the goroutine that gives logs back did not end within %v", collectorStops)
	}
	return nil
}

// collectLogs frees the logs in this client's chunks that are not needed, except its own log at
// own. left is how many are still needed.
func collectLogs(p *pool.Pool, rings []int, own pool.Addr) (given, left int, err error) {
	var found []pool.Addr
	for _, a := range logNodes(p, rings) {
		if a != own {
			found = append(found, a)
		}
	}
	return CollectFrom(p, rings, found)
}

// logNodes returns the nodes in this client's chunks that are as large as logs, and in use.
func logNodes(p *pool.Pool, rings []int) (nodes []pool.Addr) {
	for _, n := range rings {
		nodes = append(nodes, p.InUse(NodeBytes(n))...)
	}
	return nodes
}

// CollectFrom frees the logs among nodes that are not needed. A node that was this client's when
// the nodes were listed may have been freed since, and its chunk may belong to another, living
// client with its log there. So what was READ counts only if the node is this client's afterwards
// as well. At the READ its chunk was this client's, or that of a client from which this one has
// adopted it since, and which is fenced there. Either way a log in it is this client's or a dead
// one's.
func CollectFrom(p *pool.Pool, rings []int, found []pool.Addr) (given, left int, err error) {
	if len(found) == 0 {
		return 0, 0, nil
	}
	s, err := p.NewSession(64)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	logs, clients, err := readLogs(s, rings, found)
	if err != nil || len(logs) == 0 {
		return 0, 0, err
	}
	if _, err := p.Holdings(); err != nil {
		return 0, len(logs), err // ranges have no owners, or the home is unreachable
	}
	if err := p.FenceOthers(p.Servers()[0], clients); err != nil {
		return 0, len(logs), err
	}
	held, err := p.Holdings()
	if err != nil {
		return 0, len(logs), err
	}
	for _, r := range logs {
		if isNamed(held, r.Encode(nil)) {
			left++
			continue
		}
		if err := Discard(s, r); err != nil {
			return given, left, err
		}
		given++
	}
	return given, left, nil
}

// readLogs finds the logs of other clients that are in use among nodes.
func readLogs(s *pool.Session, rings []int, nodes []pool.Addr) (logs []Ref, clients []uint32, err error) {
	var of []uint32 // the client of each log
	head, err := s.Buffer(pool.HeadBytes)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range nodes {
		s.Begin()
		s.Read(a, head)
		err := s.Post()
		s.End()
		if err != nil {
			return nil, nil, err
		}
		r, client, ok := RefOf(a, head)
		if !ok || client == s.Pool().Client() {
			continue
		}
		logs, of = append(logs, r), append(of, client)
	}
	mine := logNodes(s.Pool(), rings)
	kept := logs[:0]
	for i, r := range logs {
		if !slices.Contains(mine, r.Addr) {
			continue
		}
		kept = append(kept, r)
		if !slices.Contains(clients, of[i]) {
			clients = append(clients, of[i])
		}
	}
	return kept, clients, nil
}

// isNamed reports whether a holding names the log, so that it may have to be replayed.
func isNamed(held []pool.Held, log []byte) bool {
	return slices.ContainsFunc(held, func(h pool.Held) bool {
		return bytes.Equal(h.Log, log) || slices.ContainsFunc(h.Inherits, func(in pool.Inherited) bool { return bytes.Equal(in.Log, log) })
	})
}

// CreateInTime makes this client's log, with a ring of rings[0] bytes. If the pool is full of logs
// that are not needed any more, with rings of any of these sizes, it waits for their memory.
func CreateInTime(p *pool.Pool, rings []int) (l *Log, err error) {
	for deadline := env.Deadline(p.Env(), logWaits); ; p.Env().Sleep(logLooks) {
		reclaimed := p.Reclaimed()
		l, err = Create(p, rings[0])
		if !errors.Is(err, pool.ErrPoolFull) || env.Remaining(p.Env(), deadline) == 0 || p.Alive() != nil {
			return l, err
		}
		if given, _, e := collectLogs(p, rings, pool.Nil); e != nil || given == 0 && !p.Reclaiming(reclaimed) {
			return nil, err
		}
	}
}

// How long CreateInTime waits for memory, how long End waits for the goroutine, and the pause
// between attempts.
const (
	logWaits       = 10 * time.Second
	collectorStops = 30 * time.Second
	logLooks       = 50 * time.Millisecond
)
