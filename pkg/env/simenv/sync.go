package simenv

import "time"

// mutex implements env.Mutex. Unlock gives it to one of those who wait, whom the seed chooses.
type mutex struct {
	world *World
	held  bool
	owner *Task
	queue []*Task
}

func (m *mutex) Lock() {
	w, t := m.world, m.world.current
	w.maybePass()
	switch {
	case !m.held:
		m.held, m.owner = true, t
	case t == nil:
		w.outside("Lock of a mutex that is held")
	case t.mayWait():
		m.queue = append(m.queue, t)
		t.mutex = m
		t.park("a mutex")
	}
}

func (m *mutex) Unlock() {
	w, t := m.world, m.world.current
	if t != nil && t.unwinding && m.owner != t || w.ended && !m.held {
		return // it had the lock for nothing
	}
	if !m.held {
		panic("simenv: Unlock of a mutex that is not locked")
	}
	if len(m.queue) == 0 {
		m.held, m.owner = false, nil
	} else {
		i := w.choose(len(m.queue))
		next := m.queue[i]
		m.queue = append(m.queue[:i], m.queue[i+1:]...)
		next.mutex, m.owner = nil, next
		w.schedule(&next.timer, w.now)
	}
	w.maybePass()
}

// choose is a number below n.
func (w *World) choose(n int) int {
	if w.o.Ordered || n == 1 {
		return 0
	}
	return w.choices.IntN(n)
}

// maybePass lets others run, if the seed says so.
func (w *World) maybePass() {
	if t := w.current; w.o.Preempt > 0 && t != nil && !t.unwinding && w.choices.IntN(w.o.Preempt) == 0 {
		t.mayRun()
		t.pass(w.now+time.Duration(w.choices.Int64N(int64(w.o.Tick)+1)), "its turn")
	}
}

// event implements env.Event.
type event struct {
	world  *World
	set    bool
	waiter *Task
}

func (e *event) Set() {
	e.set = true
	if t := e.waiter; t != nil {
		e.waiter, t.event = nil, nil
		e.world.schedule(&t.timer, e.world.now)
	}
	e.world.maybePass()
}

// Wait may find the event set although its limit woke it: both happened at the same moment.
func (e *event) Wait(limit time.Duration) bool {
	w, t := e.world, e.world.current
	if !e.set && limit > 0 {
		if t == nil {
			w.outside("Wait for an event that is not set")
			return false
		}
		if !t.mayWait() {
			return false
		}
		if e.waiter != nil {
			panic("simenv: two goroutines wait for one event: " + e.waiter.String() + " and " + t.String())
		}
		e.waiter, t.event = t, e
		if at := t.process.until(limit); limit < w.o.MaxTime && at > w.now {
			w.schedule(&t.timer, at)
		}
		t.park("an event")
		if e.waiter == t {
			e.waiter, t.event = nil, nil
		}
	}
	was := e.set
	e.set = false
	return was
}

// leaveQueues takes t out of what it waits in.
func (t *Task) leaveQueues() {
	if m := t.mutex; m != nil {
		for i, q := range m.queue {
			if q == t {
				m.queue = append(m.queue[:i], m.queue[i+1:]...)
				break
			}
		}
		t.mutex = nil
	}
	if t.event != nil {
		t.event.waiter, t.event = nil, nil
	}
}
