package sim

import (
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// queuedCalls is how many calls may wait for each core of a server; who comes then is told that all
// are busy.
const queuedCalls = 8

// call executes r, whose request is data, in a goroutine of the server, and then calls answered
// there with the answer, unless over says meanwhile that nobody is to see anything of it.
func (s *Server) call(from *conn, r *verbs.Request, data []byte, over func() bool, answered func(status verbs.CallStatus, answer []byte, need int)) {
	f := s.fabric
	now := f.world.Now()
	if s.cores.wait(now) > queuedCalls*f.model.LookCost {
		answered(verbs.CallBusy, nil, 0)
		return
	}
	wait := s.cores.take(now, f.model.LookCost) - now
	s.process.Go("call of "+from.device.process.Name(), func() {
		s.process.Sleep(wait)
		if over() {
			return
		}
		answer := make([]byte, len(r.AnswerRoom()))
		near := &near{server: s, reach: from.reach, over: over}
		status, n := verbs.Execute(s.o.Executor, from.peer, near, data, answer)
		if !over() {
			answered(status, answer[:n], near.need)
		}
	})
}

// wait is how long what comes now waits for a core.
func (c cores) wait(now time.Duration) time.Duration {
	first := c[0]
	for _, free := range c[1:] {
		first = min(first, free)
	}
	return max(0, first-now)
}

// setAnswer is what a call leaves in its buffer.
func setAnswer(r *verbs.Request, status verbs.CallStatus, answer []byte) {
	copy(r.AnswerRoom(), answer)
	r.SetAnswer(status, len(answer))
}

// near is a server's memory as a call of it sees it: with an adversary each word at a moment of its
// own.
type near struct {
	server *Server
	reach  *verbs.Reach // of who asks
	over   func() bool
	at     []uint8
	need   int // position that the answer waits for: see Mirror
}

// Read implements verbs.Near.
func (n *near) Read(id verbs.RegionID, remote uint64, dst []byte) error {
	s := n.server
	r := verbs.Request{Op: verbs.Read, Region: id, Remote: remote, Local: dst}
	if id > verbs.RegionLocks || !r.InRange(uint64(len(s.regions[id]))) {
		return fmt.Errorf("sim: call reads %d bytes at %d:%#x: %w", len(dst), id, remote, verbs.ErrOutOfRange)
	}
	// No panic as for requests (checkReach): a walk may follow an address that was good when its
	// client asked.
	if !n.reach.Allows(id, remote, len(dst)) {
		return fmt.Errorf("sim: call reads %d bytes at %d:%#x, which is not granted to its client: %w", len(dst), id, remote, verbs.ErrOutOfRange)
	}
	e := s.fabric.enemy
	if e == nil || len(dst) == 0 {
		copy(dst, s.regions[id][remote:])
		return nil
	}
	units := e.units(&r)
	if len(n.at) < units {
		n.at = make([]uint8, units)
	}
	moments := e.tear(units, false, n.at)
	for m := range moments {
		if m > 0 {
			s.process.Sleep(e.gap())
		}
		if n.over() {
			return verbs.ErrClosed
		}
		for i := range units {
			if int(n.at[i]) == m {
				from, to := e.bounds(&r, i, 1)
				copy(dst[from:to], s.regions[id][remote+uint64(from):])
				if j := s.journal; j != nil && !j.flaws.Reads {
					n.need = max(n.need, j.seen(word{id, remote + uint64(from)}, to-from))
				}
			}
		}
	}
	s.process.Sleep(e.gap())
	return nil
}

// arriveCall executes the call of q without an adversary. It has passed the server NIC at q.at[0],
// and waits for a core from now on.
func (q *qp) arriveCall() {
	c := q.conn
	s, f, r := c.server, c.server.fabric, &q.list[0]
	list := q.lists // calls are answered by goroutines, which may outlive the list
	over := func() bool { return q.err != nil || q.lists != list }
	s.call(c, r, append([]byte(nil), r.Local[:r.Args]...), over, func(status verbs.CallStatus, answer []byte, _ int) {
		setAnswer(r, status, answer)
		back := s.nic.out.take(max(f.world.Now(), q.at[0]), f.model.message(f.model.ServerMessage, len(answer)))
		q.at[0] = back + f.model.BaseRTT/2
		q.answerAt(q.at[0])
	})
}

// call is the moment at which p, a call, reaches the server.
func (p *part) call() {
	f := p.flight
	s := f.qp.conn.server
	s.call(f.qp.conn, &p.r, p.data, func() bool { return f.stopped }, func(status verbs.CallStatus, answer []byte, need int) {
		setAnswer(&p.r, status, answer)
		p.needs(need)
		p.end()
		f.count()
	})
}
