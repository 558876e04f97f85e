package lock

// A session that waits for a lock may say which change of the node it wants the lock for. Then
// another session of its client that has the lock may take the waiter out of the queue, and carry
// out the change in its stead. All calls are made under the mutex of the queue's owner. The states
// of a waiter with a change:
//
//	waits --Grant--> granted            as without a change
//	waits --Take--> taken --Answer--> answered: it never gets the lock
//	                  |
//	                  +--PutBack--> waits, before all others
//	waits --Remove--> withdrawn         its limit went by, or its waiting was ended
//
// Taking and withdrawing exclude each other, since both are done under the mutex. A waiter whose
// limit goes by while it is taken waits on: its change is being carried out, and the holder still
// looks at it. The holder answers, or puts the waiter back, within the limit of its own request.
// After that the waiter is not taken again.

// Change is what the session of w wants to do with the node at its lock; nil = nobody else may do
// it.
func (w *Waiter) Change() any { return w.change }

// Offer says what the session of w wants to do with the node that it wants (Wants), until the next
// Offer. From Push on until the session has the lock, or its answer, or has given up, the change
// belongs to who takes it.
func (w *Waiter) Offer(change any) { w.change = change }

// Answered reports whether the change of w was carried out when it waited last, or failed with
// Failure.
func (w *Waiter) Answered() bool { return w.answered }

// Failure is nil if the change of w took effect as its taker has written there.
func (w *Waiter) Failure() error { return w.failure }

// Take takes those out of the queue that want that node and offer a change, first come first, as
// many as list has capacity for, and returns list with them. Each is answered, or put back. It
// leaves those whose limit went by while they were taken: an operation waits for one list only
// beyond its limit.
func (q *WaitQueue) Take(node uint64, list []*Waiter) []*Waiter {
	var before *Waiter
	for w := q.head; w != nil; w = w.next {
		if w.node != node || w.change == nil || w.over || len(list) == cap(list) {
			before = w
			continue
		}
		if before == nil {
			q.head = w.next
		} else {
			before.next = w.next
		}
		w.taken = true
		list = append(list, w)
	}
	q.tail = before
	return list
}

// PutBack lets those in list, which were taken, wait again, in their order and before all others.
// ended: nobody waits any more.
func (q *WaitQueue) PutBack(list []*Waiter, ended bool) {
	for i := len(list) - 1; i >= 0; i-- {
		w := list[i]
		w.taken = false
		if w.next = q.head; q.head == nil {
			q.tail = w
		}
		q.head = w
		if w.over || ended {
			w.event.Set() // it woke before, or would not be woken
		}
	}
}

// Answer ends the waiting of those in list, which were taken.
func Answer(list []*Waiter, failure error) {
	for _, w := range list {
		w.taken, w.answered, w.failure = false, true, failure
		w.event.Set()
	}
}
