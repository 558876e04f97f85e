//go:build ibv

package ibv

/*
#include "verbs.h"
*/
import "C"

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

// NewDevice makes the client's half. Errors: ErrNoDevice, ErrMemlock.
func NewDevice(o Options) (verbs.Device, error) {
	h, err := openHCA(o)
	if err != nil {
		return nil, fmt.Errorf("ibv: %w", err)
	}
	return &device{options: o, hca: h, arenas: map[*verbs.Arena]*registered{}, conns: map[*conn]struct{}{}}, nil
}

type device struct {
	options Options
	earlier hello.Earlier

	mu     sync.Mutex
	closed bool
	hca    *hca // of new connections; presentLocked replaces one that is gone
	arenas map[*verbs.Arena]*registered
	conns  map[*conn]struct{} // that were not closed
}

// registered is an arena's memory and its registration with the hca of new connections.
type registered struct {
	pages []byte
	mr    *C.struct_ibv_mr
}

func (*device) Provider() string { return "ibv" }

// DeviceName implements verbs.OfDevice.
func (d *device) DeviceName() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hca.name
}

// presentLocked returns the hca of new connections. In place of one that is gone it opens what the
// options ask for now, and registers all arenas with that.
func (d *device) presentLocked() (*hca, error) {
	if d.closed {
		return nil, verbs.ErrClosed
	}
	gone := d.hca.lost()
	if gone == nil {
		return d.hca, nil
	}
	h, err := openHCA(d.options)
	if err != nil {
		return nil, fmt.Errorf("%w; open one anew: %w", gone, err)
	}
	mrs := map[*registered]*C.struct_ibv_mr{}
	for _, r := range d.arenas {
		mr, err := h.register("an arena", r.pages, false)
		if err != nil {
			for _, mr := range mrs {
				C.ibv_dereg_mr(mr)
			}
			h.close()
			return nil, fmt.Errorf("%w; open it anew: %w", gone, err)
		}
		mrs[r] = mr
	}
	for r, mr := range mrs {
		C.ibv_dereg_mr(r.mr) // fails at most because the kernel has done so before
		r.mr = mr
	}
	old := d.hca
	d.hca = h
	d.retireLocked(old)
	return h, nil
}

// retireLocked closes an hca that is gone once no connection has queue pairs there.
func (d *device) retireLocked(h *hca) {
	if h == d.hca {
		return
	}
	for c := range d.conns {
		if c.hca == h {
			return
		}
	}
	h.close()
}

// NewArena implements verbs.Device: the arena is registered with the NIC, on huge pages if there
// are any.
func (d *device) NewArena(size int) (*verbs.Arena, error) {
	a, err := d.newArena(size)
	if err != nil {
		return nil, fmt.Errorf("ibv: %w", err)
	}
	return a, nil
}

func (d *device) newArena(size int) (*verbs.Arena, error) {
	if size <= 0 {
		return nil, fmt.Errorf("arena of %d bytes: the size must be positive", size)
	}
	pages, err := mapPages(size)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h, err := d.presentLocked()
	if err != nil {
		unix.Munmap(pages)
		return nil, err
	}
	mr, err := h.register("an arena", pages, false)
	if err != nil {
		unix.Munmap(pages)
		return nil, err
	}
	var a *verbs.Arena
	a = verbs.NewArena(pages[:size:size], func([]byte) error { return d.release(a) })
	d.arenas[a] = &registered{pages, mr}
	return a, nil
}

// release gives back an arena.
func (d *device) release(a *verbs.Arena) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.arenas[a]
	delete(d.arenas, a)
	if rc := C.ibv_dereg_mr(r.mr); rc != 0 && d.hca.lost() == nil {
		return fmt.Errorf("ibv: release an arena: %w", syscall.Errno(rc))
	}
	return unix.Munmap(r.pages)
}

// key is the lkey of an arena that this device made.
func (d *device) key(a *verbs.Arena) (uint32, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.arenas[a]
	if r == nil {
		return 0, false
	}
	return uint32(r.mr.lkey), true
}

// Close implements verbs.Device. A connection that was not closed before is closed here: its queue
// pairs may be destroyed at this moment, since the server has ended it, and the NIC's library must
// not go away meanwhile.
func (d *device) Close() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	left := slices.Collect(maps.Keys(d.conns))
	d.mu.Unlock()
	if closed {
		return nil
	}
	together(len(left), func(i int) {
		left[i].Close() // an error where something may still arrive, of which nobody asks any more
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hca.close()
}

func (d *device) forget(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
	d.retireLocked(c.hca)
}

// Connect implements verbs.Device.
func (d *device) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	c, err := d.connect(t, limit)
	if err != nil {
		return nil, fmt.Errorf("ibv: connect to %s: %w", t.Address, err)
	}
	return c, nil
}

func (d *device) connect(t verbs.Target, limit time.Duration) (*conn, error) {
	deadline := time.Now().Add(limit)
	if err := d.earlier.Await(t.Address, limit); err != nil {
		return nil, err
	}
	socket, err := net.DialTimeout("tcp", t.Address, max(time.Until(deadline), 1))
	if err != nil {
		return nil, hello.StreamError(err)
	}
	named := d.earlier.Broken(t.Address)
	answer, regions, err := greet(socket, &hello.Hello{Token: t.Token, Incarnation: t.Incarnation, Earlier: named}, deadline)
	if err != nil {
		socket.Close()
		return nil, hello.StreamError(err)
	}
	d.earlier.Ended(t.Address, named)
	keepAlive(socket)
	d.mu.Lock()
	defer d.mu.Unlock()
	h, err := d.presentLocked()
	if err != nil {
		socket.Close()
		return nil, err
	}
	c := newConn(d, h, socket, answer, regions, hello.Session{Earlier: &d.earlier, Address: t.Address, ID: answer.Session})
	d.conns[c] = struct{}{}
	return c, nil
}

// greet exchanges the handshake. A server that is full answers without reading, so a failed write
// is not yet the end.
func greet(socket net.Conn, h *hello.Hello, deadline time.Time) (*hello.Answer, [verbs.RegionLocks + 1]remoteRegion, error) {
	var none [verbs.RegionLocks + 1]remoteRegion
	socket.SetDeadline(deadline)
	_, writeErr := socket.Write(h.Append(nil))
	answer, err := hello.ReadAnswer(socket)
	if err != nil {
		if writeErr != nil {
			err = writeErr
		}
		return nil, none, err
	}
	if err := answer.Err(h.Incarnation); err != nil {
		return nil, none, err
	}
	regions, err := readRegions(socket, answer.Regions)
	if err != nil {
		return nil, none, err
	}
	socket.SetDeadline(time.Time{})
	return answer, regions, nil
}

// keepAlive lets a connection to a machine that is gone end within half a minute.
func keepAlive(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4})
	}
}
