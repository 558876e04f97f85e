//go:build ibv

package ibv

/*
#include "verbs.h"
*/
import "C"

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// events are what the NIC says without being asked. Two goroutines of an hca read them: one the
// completion channel, the other the asynchronous events of the device.
//
// A device can go away under its programs: its driver is started anew, its firmware is reset, the
// card is pulled. The kernel then says DEVICE_FATAL, and this end is for good; a device of the same
// name that comes back is another one. Everybody who has something on the device hears of it once,
// by end. A client's Device opens an hca anew for its next connection. A server does not, since its
// clients hold keys of regions that are registered with this one: Serve returns the error, and
// whoever called it ends.
type events struct {
	files []*os.File // of the library's descriptors, for Go's poller
	ended sync.WaitGroup

	mu      sync.Mutex
	handle  uint64                   // the last one given out, of either kind
	waiters map[uint64]chan struct{} // whom completion events wake, by handle
	owners  map[uint64]func(error)   // whose queue pairs are here, by handle: who ends with them
	gone    error                    // not nil once the device is gone
}

// listen starts a goroutine that calls take for what comes through a descriptor of the library,
// until the hca is closed. take is handed to the poller: EAGAIN says that there is nothing. Any
// other error but EINTR says that the device is gone.
func (h *hca) listen(fd C.int, name string, take func() C.int) error {
	// A descriptor of our own for the poller: the library closes the other one.
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(own, true); err != nil {
		unix.Close(own)
		return err
	}
	file := os.NewFile(uintptr(own), name)
	h.files = append(h.files, file)
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	h.ended.Go(func() { h.dispatch(raw, name, take) })
	return nil
}

// dispatch is the goroutine of listen. The descriptors of a device that is gone are always ready
// and every read of them fails, so it ends with the first failure.
func (h *hca) dispatch(raw syscall.RawConn, name string, take func() C.int) {
	rc := C.int(0)
	read := func(uintptr) bool {
		rc = take()
		return rc != C.EAGAIN
	}
	for {
		if raw.Read(read) != nil {
			return // closed
		}
		if rc != 0 && rc != C.EINTR {
			h.goneBy(fmt.Sprintf("%s: %v", name, syscall.Errno(rc)))
			return
		}
	}
}

// completions returns what takes a completion event and wakes its waiter.
func (h *hca) completions() (take func() C.int) {
	handle := new(C.uint64_t)
	return func() C.int {
		rc := C.dm_event(h.channel, handle)
		if rc == 0 {
			h.mu.Lock()
			wake := h.waiters[uint64(*handle)]
			h.mu.Unlock()
			nudge(wake)
		}
		return rc
	}
}

// asynchronous returns what takes an asynchronous event. The C half acknowledges each, since
// destroying what it names waits for that.
func (h *hca) asynchronous() (take func() C.int) {
	event := new(C.struct_dm_async)
	return func() C.int {
		rc := C.dm_async(h.ctx, event)
		if rc == 0 {
			h.happened(eventKind(event.kind), uint64(event.owner))
		}
		return rc
	}
}

// happened acts on an asynchronous event; owner is the handle with which its queue pair was made.
func (h *hca) happened(k eventKind, owner uint64) {
	if h.report != nil {
		h.report(h.name, k.String(), h.notes.due(k, time.Now()))
	}
	switch k.ends() {
	case endsDevice:
		h.goneBy(k.String())
	case endsOwner:
		h.mu.Lock()
		end := h.owners[owner]
		h.mu.Unlock()
		if end != nil {
			end(fmt.Errorf("RDMA device %s reports %v for a queue pair: %w", h.name, k, verbs.ErrDisconnected))
		}
	}
}

// goneBy ends everything on the device, the first time.
func (h *hca) goneBy(reason string) {
	h.mu.Lock()
	if h.gone != nil {
		h.mu.Unlock()
		return
	}
	h.gone = fmt.Errorf("RDMA device %s is gone (%s): %w", h.name, reason, verbs.ErrDisconnected)
	err, ends := h.gone, slices.Collect(maps.Values(h.owners))
	h.mu.Unlock()
	for _, end := range ends {
		end(err)
	}
}

// lost is nil as long as the device is there.
func (h *hca) lost() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// owns gives a handle for queue pairs, by which end is called when the NIC ends one of them, and
// when the device is gone; at once if it is gone already. end may be called several times and at
// the same time, also shortly after ownsNoMore, and does not wait for events.
func (h *hca) owns(end func(error)) (handle uint64) {
	h.mu.Lock()
	h.handle++
	handle = h.handle
	if h.owners == nil {
		h.owners = map[uint64]func(error){}
	}
	h.owners[handle] = end
	gone := h.gone
	h.mu.Unlock()
	if gone != nil {
		end(gone)
	}
	return handle
}

// ownsNoMore takes a handle of owns back.
func (h *hca) ownsNoMore(handle uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owners, handle)
}

// waits gives a handle whose completion events wake somebody.
func (h *hca) waits(wake chan struct{}) (handle uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handle++
	if h.waiters == nil {
		h.waiters = map[uint64]chan struct{}{}
	}
	h.waiters[h.handle] = wake
	return h.handle
}

// waitsNoMore takes a handle of waits back.
func (h *hca) waitsNoMore(handle uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters, handle)
}

// nudge wakes who waits, if anybody does or will.
func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // nil, or woken already
	}
}

// stopListening ends the goroutines of listen.
func (e *events) stopListening() {
	for _, f := range e.files {
		f.Close()
	}
	e.ended.Wait()
}
