//go:build ibv

package ibv

/*
#include "verbs.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// How long a wait polls before it sleeps: some 20 microseconds, a few times what a NIC takes.
const (
	pollSpins  = 200 // polls in one call of the C half
	pollRounds = 8   // such calls; between them other goroutines may run
)

var (
	errGone  = errors.New("queue pair is destroyed")
	errLimit = errors.New("limit is over")
)

// requester is a queue pair that posts, and the completion queue that it waits at. It belongs to
// one goroutine at a time; destroy may be called by others.
type requester struct {
	hca      *hca
	handle   uint64
	wake     chan struct{} // an event, or the end
	timer    *time.Timer
	encoder  encoder
	requests []workRequest // of c

	mu sync.Mutex      // held in calls of the C half, so that destroy comes between them
	c  *C.struct_dm_qp // nil = destroyed
}

// newRequester makes a queue pair of owner, a handle of owns; 0 = of nobody who ends with it.
func (h *hca) newRequester(owner uint64) (*requester, error) {
	r := &requester{hca: h, wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	r.timer.Stop()
	r.handle = h.waits(r.wake)
	raw := C.int(0)
	if h.raw {
		raw = 1
	}
	if rc := C.dm_qp_create(h.pd, h.channel, h.port, C.uint64_t(r.handle), C.uint64_t(owner), raw, &r.c); rc != 0 {
		r.destroy()
		return nil, fmt.Errorf("make a queue pair on %s: %w", h.name, syscall.Errno(rc))
	}
	r.requests = unsafe.Slice((*workRequest)(unsafe.Pointer(&r.c.requests[0])), verbs.MaxList)
	r.encoder.inline, r.encoder.qpn = int(r.c.inlined), uint32(r.c.qp.qp_num)
	return r, nil
}

// connect connects the queue pair with theirs.
func (r *requester) connect(mine, theirs *endpoint) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == nil {
		return errGone
	}
	return r.hca.connect(r.c.qp, mine, theirs)
}

// post posts a list that was checked. It is one doorbell, and one call of the C half.
func (r *requester) post(list []verbs.Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == nil {
		return errGone
	}
	r.encoder.encode(r.requests, list)
	if rc := C.dm_post(r.c, C.int(len(list))); rc != 0 {
		return fmt.Errorf("post %d requests: %w: %w", len(list), syscall.Errno(rc), verbs.ErrDisconnected)
	}
	return nil
}

// poll looks for the end of the list that is under way. With arm, the next completion raises an
// event if there is none yet.
func (r *requester) poll(spins int, arm bool) (done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == nil {
		return true, errGone
	}
	if arm {
		if rc := C.dm_arm(r.c); rc != 0 {
			return true, fmt.Errorf("ask for a completion event: %w: %w", syscall.Errno(rc), verbs.ErrDisconnected)
		}
	}
	switch end := C.dm_poll(r.c, C.int(spins)); end {
	case C.DM_NONE:
		return false, nil
	case C.DM_FAULT:
		return true, fmt.Errorf("poll for completions: %w", verbs.ErrDisconnected)
	default:
		return true, status(end).Err()
	}
}

// wait waits for the end of the list that is under way: it polls for a moment, then sleeps until an
// event, at most for limit. errGone: destroyed; errLimit: the list is still under way; other
// errors: the list failed.
func (r *requester) wait(limit time.Duration) error {
	for range pollRounds {
		if done, err := r.poll(pollSpins, false); done {
			return err
		}
		runtime.Gosched()
	}
	r.timer.Reset(max(0, limit))
	defer r.timer.Stop()
	for late := false; ; {
		// A completion that came before the event was asked for raises none, so this looks again.
		if done, err := r.poll(1, true); done {
			return err
		}
		if late {
			return errLimit
		}
		select {
		case <-r.wake:
		case <-r.timer.C:
			late = true
		}
	}
}

// call posts a call that was checked.
func (r *requester) call(list []verbs.Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == nil {
		return errGone
	}
	local := list[0].Local
	at := C.uint64_t(uintptr(unsafe.Pointer(unsafe.SliceData(local))))
	if rc := C.dm_call(r.c, at, C.uint32_t(list[0].Args), C.uint32_t(len(local)), C.uint32_t(r.encoder.lkey)); rc != 0 {
		return fmt.Errorf("post a call: %w: %w", syscall.Errno(rc), verbs.ErrDisconnected)
	}
	return nil
}

// received is how many bytes the answer of the last call had.
func (r *requester) received() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == nil {
		return 0
	}
	return int(r.c.received)
}

// destroy ends the queue pair: when it returns, the NIC touches no local buffer for it any more.
// Safe for concurrent use.
func (r *requester) destroy() {
	r.mu.Lock()
	if r.c != nil {
		C.dm_qp_destroy(r.c)
		r.c, r.requests = nil, nil
	}
	r.mu.Unlock()
	r.hca.waitsNoMore(r.handle)
	nudge(r.wake)
}
