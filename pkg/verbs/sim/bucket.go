package sim

import (
	"encoding/binary"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// buckets is how many classes of conflicting atomics a NIC has: addresses of words with the same
// low 12 bits (Sherman, section 3.2.2).
const buckets = 4096 / 8

// bucket is the queue of atomics on host memory that a NIC takes to conflict. It is served one by
// one, in the order of arrival:
//
//   - An atomic takes one PCIe transaction to fetch its word. Only then it is known whether it
//     changes the word: then it takes a second one to write it back. A compare-and-swap that fails
//     takes one.
//   - A WRITE of a word where locks are waits in the same queue and takes one transaction. That is
//     an assumption: the specification orders WRITEs and atomics of one queue pair only, and the
//     papers do not say. If WRITEs overtook the atomics of others, the release of a popular lock
//     would never wait for those who spin on it. The baseline of Sherman's paper would then do 6.1
//     million skewed write-intensive operations a second; with the queue it does 0.95 million, and
//     the paper measured 0.34 million.
type bucket struct {
	server *Server
	queue  []waiter
	timer  simenv.Timer
	wrote  bool // the first of the queue has fetched its word, and writes it back
}

// waiter is a list whose next request is in a bucket. It is void once its queue pair has ended the
// list.
type waiter struct {
	q    *qp
	list uint64
	at   time.Duration // when it has passed the server's incoming line
}

func (w waiter) void() bool { return w.q.lists != w.list }

// queues reports whether r waits in a bucket.
func (s *Server) queues(r *verbs.Request) bool {
	if r.Region == verbs.RegionLocks && r.Remote < uint64(s.fabric.caps.DeviceMemory) {
		return false
	}
	return r.Op.Atomic() || r.Op == verbs.Write && r.Region == verbs.RegionLocks && len(r.Local) <= 8
}

// bucketOf is the bucket that r waits in.
func (s *Server) bucketOf(r *verbs.Request) *bucket {
	b := &s.buckets[r.Remote>>3%buckets]
	if *b == nil {
		*b = &bucket{server: s}
		(*b).timer.Do = (*b).serve
	}
	return *b
}

// enter puts the next request of q into the queue.
func (b *bucket) enter(q *qp) {
	b.queue = append(b.queue, waiter{q, q.lists, q.at[q.next]})
	if len(b.queue) == 1 {
		b.fetch()
	}
}

// fetch begins to serve the first of the queue.
func (b *bucket) fetch() {
	w := b.server.fabric.world
	w.Schedule(&b.timer, max(w.Now(), b.queue[0].at)+b.server.fabric.model.AtomicPCIe, nil)
}

// serve is the end of a PCIe transaction for the first of the queue.
func (b *bucket) serve() {
	first, w := b.queue[0], b.server.fabric.world
	if !first.void() {
		r := &first.q.list[first.q.next]
		if r.Op.Atomic() && !b.wrote && b.server.changes(r) {
			b.wrote = true
			w.Schedule(&b.timer, w.Now()+b.server.fabric.model.AtomicPCIe, nil)
			return
		}
	}
	b.wrote = false
	b.queue = b.queue[:copy(b.queue, b.queue[1:])]
	if len(b.queue) > 0 {
		b.fetch()
	}
	if !first.void() {
		first.q.served(w.Now())
	}
}

// changes reports whether atomic r would change its word now.
func (s *Server) changes(r *verbs.Request) bool {
	old := binary.NativeEndian.Uint64(s.regions[r.Region][r.Remote:])
	return r.Outcome(old) != old
}

// served is when the request that waited in a bucket takes effect.
func (q *qp) served(at time.Duration) {
	q.apply(at)
	q.next++
	q.takeEffect(at)
}
