//go:build ibv

package ibv

/*
#include "verbs.h"
*/
import "C"

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
	"github.com/dmindex/dmindex/pkg/verbs/internal/serve"
)

// A two-sided call is a SEND of its request, whose immediate is how many bytes the answer may have
// with its header, and a SEND of the answer back. The client's RECV is posted before its SEND, the
// server's next one before its answer, so neither side ever finds no buffer: one call of a queue
// pair is under way at a time.
//
// A queue pair takes calls after its client has asked for that once (frameCalls). Its request and
// its answer then have memory of their own, which lives and dies with the queue pair: there is no
// buffer that a dead peer could keep. A client whose server has none left makes its calls with
// one-sided requests (ErrBusy).
const callBytes = 2 * verbs.MaxCall // of a queue pair that takes calls

// callMemory bounds those of a server; a variable for tests.
var callMemory int64 = 64 << 20

// near is the memory of a server as executors see it.
type near struct {
	*mapped.Space
	onChip bool // the lock region lies in the NIC, where the CPU does not see it
}

// Read implements verbs.Near.
func (m *near) Read(region verbs.RegionID, remote uint64, dst []byte) error {
	if m.onChip && region == verbs.RegionLocks {
		return verbs.ErrUnsupported
	}
	return m.Space.Read(region, remote, dst)
}

// calls is what a session has for its client's calls: one completion queue, and one goroutine that
// handles what completes and executes, one call after the other, as tcp does on the goroutine of a
// connection. Who destroys a queue pair waits for its call.
type calls struct {
	server *server
	of     *serve.Session
	cq     *C.struct_ibv_cq
	handle uint64
	wake   chan struct{}
	stop   chan struct{}
	ended  sync.WaitGroup
	done   C.struct_dm_done // only the goroutine

	mu    sync.Mutex
	idle  *sync.Cond // a call has ended
	last  uint64     // id that was given out
	takes map[uint64]*caller
}

// caller is the calls' side of a queue pair. Under mu, but mem while calling.
type caller struct {
	// its completions have it: none of an earlier queue pair of the slot is taken for one of this
	id      uint64
	qp      *C.struct_ibv_qp
	mem     []byte // the request, then the answer
	mr      *C.struct_ibv_mr
	length  uint32 // of the request
	room    uint32 // for the answer, with its header
	calling bool   // the call is executed
	sending bool   // the answer is under way
	waiting bool   // the next request came before the NIC said that the answer is gone
}

func (s *server) newCalls(of *serve.Session) *calls {
	c := &calls{server: s, of: of, wake: make(chan struct{}, 1), stop: make(chan struct{}), takes: map[uint64]*caller{}}
	c.idle = sync.NewCond(&c.mu)
	c.handle = s.hca.waits(c.wake)
	// A request and an answer of each queue pair at most.
	if c.cq = C.dm_cq_create(s.hca.ctx, s.hca.channel, 2*MaxQPs, C.uint64_t(c.handle)); c.cq == nil {
		s.hca.waitsNoMore(c.handle)
		return nil
	}
	c.ended.Go(c.run)
	return c
}

// allow lets a queue pair take calls.
func (c *calls) allow(qp *C.struct_ibv_qp) (*caller, uint8) {
	s := c.server
	if s.callMemory.Add(callBytes) > callMemory {
		s.callMemory.Add(-callBytes)
		return nil, codeTooMany
	}
	w := &caller{qp: qp}
	if w.mem = s.callArea(); w.mem == nil {
		s.callMemory.Add(-callBytes)
		return nil, codeResource
	}
	var err error
	if w.mr, err = s.hca.register("calls", w.mem, false); err != nil {
		w.free(s)
		return nil, codeResource
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	w.id = c.last
	if w.receive() != 0 {
		w.free(s)
		return nil, codeResource
	}
	c.takes[w.id] = w
	return w, codeOK
}

// callArea is memory of a queue pair that takes calls; nil = there is none.
func (*server) callArea() []byte {
	b, err := mapPages(callBytes)
	if err != nil {
		return nil
	}
	return b
}

// forbid takes a queue pair away: when it returns nothing is executed for it, and nobody posts to
// it.
func (c *calls) forbid(w *caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w.calling {
		c.idle.Wait()
	}
	delete(c.takes, w.id)
}

// free gives the memory back. The queue pair is destroyed, or never knew of it.
func (w *caller) free(s *server) {
	if w.mr != nil {
		C.ibv_dereg_mr(w.mr)
	}
	unix.Munmap(w.mem)
	s.callMemory.Add(-callBytes)
}

// close ends the goroutine. All queue pairs are destroyed.
func (c *calls) close() {
	close(c.stop)
	c.ended.Wait()
	C.ibv_destroy_cq(c.cq)
	c.server.hca.waitsNoMore(c.handle)
}

// run handles completions until close.
func (c *calls) run() {
	for {
		for c.one() {
		}
		C.dm_cq_arm(c.cq)
		if c.one() { // it came before the event was asked for
			continue
		}
		select {
		case <-c.wake:
		case <-c.stop:
			return
		}
	}
}

// one handles a completion; false = there is none.
func (c *calls) one() bool {
	if C.dm_completion(c.cq, &c.done) <= 0 {
		return false
	}
	if w := c.arrived(); w != nil {
		c.execute(w)
	}
	return true
}

// arrived takes a completion in, and is whose request is to be executed; nil = nobody's.
func (c *calls) arrived() *caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.takes[uint64(c.done.id)>>1]
	switch {
	case w == nil, c.done.status != C.IBV_WC_SUCCESS:
		// the queue pair is dead, and its client hears of it
		return nil
	case c.done.id&1 != 0:
		w.sending = false
		if !w.waiting {
			return nil
		}
		w.waiting = false
	default:
		if w.length, w.room = uint32(c.done.bytes), uint32(c.done.room); w.room < uint32(verbs.CallBytes(0)) || w.room > verbs.MaxCall {
			return nil // of no client of ours: it gets no answer
		}
		if w.sending {
			w.waiting = true
			return nil
		}
	}
	w.calling = true
	return w
}

// execute executes a call and sends its answer.
func (c *calls) execute(w *caller) {
	request, answer := w.mem[:w.length], w.mem[verbs.MaxCall:][:w.room]
	status, n := c.answer(request, answer[verbs.CallBytes(0):])
	mapped.Barrier() // what the answer shows is seen by everybody (G3)
	binary.LittleEndian.PutUint32(answer, uint32(status))
	binary.LittleEndian.PutUint32(answer[4:], uint32(n))
	c.mu.Lock()
	defer c.mu.Unlock()
	w.calling = false
	c.idle.Broadcast()
	if w.receive() == 0 { // before the answer, which the next request follows
		w.sending = w.send(verbs.CallBytes(n)) == 0
	}
}

// answer lets the executor answer. A panic of it ends the session, whose queue pairs are destroyed
// as after any end.
func (c *calls) answer(request, answer []byte) (status verbs.CallStatus, n int) {
	status = verbs.CallFailed // unless the executor returns
	defer c.server.Recover(c.of)
	return c.server.callers.Call(c.of.Peer, c.server.near, request, answer)
}

// receive posts the buffer of requests.
func (w *caller) receive() C.int {
	return C.dm_receive(w.qp, w.at(0), verbs.MaxCall, w.mr.lkey, C.uint64_t(w.id<<1))
}

// send posts the answer.
func (w *caller) send(n int) C.int {
	return C.dm_answer(w.qp, w.at(verbs.MaxCall), C.uint32_t(n), w.mr.lkey, C.uint64_t(w.id<<1|1))
}

func (w *caller) at(offset int) C.uint64_t {
	return C.uint64_t(uintptr(unsafe.Pointer(&w.mem[offset])))
}

// callState is what a server has for calls.
type callState struct {
	callers    *verbs.Callers
	near       *near        // a pointer, which becomes an interface without an allocation
	callMemory atomic.Int64 // of queue pairs that take calls
}
