package bench

import "sync/atomic"

// queue is the operations of a phase that wait for the same clients: all of them, or with owners
// those that one compute server has to do.
type queue struct {
	of     []uint32 // places of its operations in the phase; nil = all
	length uint64
	next   atomic.Uint64 // the first that is nobody's yet
	ended  atomic.Int64  // when the first client found nothing left; 0 = not yet
	done   uint64        // operations that were over before that; once the phase is over
}

// begun is how many operations were begun.
func (q *queue) begun() uint64 { return min(q.next.Load(), q.length) }

// place of the i-th operation in the phase.
func (q *queue) place(i uint64) uint64 {
	if q.of == nil {
		return i
	}
	return uint64(q.of[i])
}

// queues divides n operations among the compute servers, by the items that they are on.
func (b *bencher) queues(n uint64, item func(i uint64) uint64) []*queue {
	if b.owners == nil {
		return []*queue{{length: n}}
	}
	list := make([]*queue, b.owners.n)
	for s := range list {
		list[s] = &queue{of: make([]uint32, 0, n/uint64(b.owners.n)+n/16)}
	}
	for i := range n {
		q := list[b.owners.of(item(i))]
		q.of = append(q.of, uint32(i))
	}
	for _, q := range list {
		q.length = uint64(len(q.of))
	}
	return list
}

// skew is how many times the mean share of all servers the busiest one has; 1 where all do
// everything.
func skew(list []*queue) float64 {
	most, sum := uint64(0), uint64(0)
	for _, q := range list {
		most, sum = max(most, q.length), sum+q.length
	}
	if sum == 0 {
		return 1
	}
	return float64(most) * float64(len(list)) / float64(sum)
}
