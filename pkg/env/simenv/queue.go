package simenv

import "time"

// Timer is an event in the queue of a world, once [World.Schedule] has put it there. It can be used
// again when it has fired, so that a provider needs no memory for each request.
type Timer struct {
	Do func() // what happens then; it must not wait

	process *Process // whose death or freezing concerns it; nil = none's
	task    *Task    // which goes on, instead of Do
	at      time.Duration
	id      uint64
	place   int // in the queue, counted from 1; 0 = not in it
}

// Schedule puts t into the queue, at the time at of the world's clock, or moves it there. With a
// process, t does not fire while that is frozen, and never once that is dead.
func (w *World) Schedule(t *Timer, at time.Duration, p *Process) {
	w.Cancel(t)
	t.process = p
	w.schedule(t, at)
}

// Cancel takes t out of the queue, if it is there.
func (w *World) Cancel(t *Timer) {
	if t.place != 0 {
		w.queue.remove(t)
	}
	if t.process != nil && t.process.frozen {
		t.process.release(t)
	}
}

// After calls do after d, of the world's clock. With a process, not while that is frozen, and not
// if that is dead.
func (w *World) After(d time.Duration, p *Process, do func()) {
	w.Schedule(&Timer{Do: do}, w.now+d, p)
}

func (w *World) schedule(t *Timer, at time.Duration) {
	w.Cancel(t)
	w.queue.seq++
	tie := w.queue.seq
	if !w.o.Ordered {
		tie = w.choices.Uint64()
	}
	w.queue.push(t, max(at, w.now), tie)
}

// queue is a heap with four children a node: by time, then by tie.
type queue struct {
	heap []entry
	seq  uint64 // of arrival
}

type entry struct {
	at  time.Duration
	tie uint64
	t   *Timer
}

func (a *entry) before(b *entry) bool {
	return a.at < b.at || a.at == b.at && a.tie < b.tie
}

// next is when the first event happens; false if there is none.
func (q *queue) next() (time.Duration, bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

func (q *queue) push(t *Timer, at time.Duration, tie uint64) {
	t.at = at
	q.heap = append(q.heap, entry{at, tie, t})
	q.siftUp(len(q.heap) - 1)
}

func (q *queue) pop() *Timer {
	if len(q.heap) == 0 {
		return nil
	}
	t := q.heap[0].t
	q.remove(t)
	return t
}

func (q *queue) remove(t *Timer) {
	i := t.place - 1
	t.place = 0
	last := len(q.heap) - 1
	moved := q.heap[last]
	q.heap[last] = entry{}
	q.heap = q.heap[:last]
	if i == last {
		return
	}
	q.heap[i] = moved
	moved.t.place = i + 1
	if q.siftDown(i); moved.t.place == i+1 {
		q.siftUp(i)
	}
}

func (q *queue) siftUp(i int) {
	e := q.heap[i]
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		q.heap[i].t.place = i + 1
		i = parent
	}
	q.heap[i] = e
	e.t.place = i + 1
}

func (q *queue) siftDown(i int) {
	h := q.heap
	e := h[i]
	for {
		c := 4*i + 1
		if c >= len(h) {
			break
		}
		least := c
		for end := min(c+4, len(h)); c+1 < end; {
			if c++; h[c].before(&h[least]) {
				least = c
			}
		}
		if !h[least].before(&e) {
			break
		}
		h[i] = h[least]
		h[i].t.place = i + 1
		i = least
	}
	h[i] = e
	e.t.place = i + 1
}
