//go:build ibv

package ibv

/*
#cgo CFLAGS: -I${SRCDIR}
#cgo LDFLAGS: -libverbs -lmlx5
#cgo noescape dm_post
#cgo nocallback dm_post
#cgo noescape dm_poll
#cgo nocallback dm_poll
#cgo nocallback dm_arm
#cgo noescape dm_arm
#cgo noescape dm_call
#cgo nocallback dm_call
#cgo noescape dm_completion
#cgo nocallback dm_completion
#include "verbs.h"
*/
import "C"

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// hca is an open RDMA device with the port in use. Safe for concurrent use.
type hca struct {
	ctx     *C.struct_ibv_context
	pd      *C.struct_ibv_pd
	name    string
	port    C.int
	about   C.struct_dm_port
	gid     gidEntry // of a RoCE port
	raw     bool     // it executes raw work queue entries: see probeMasked
	channel *C.struct_ibv_comp_channel
	report  func(device, event string, note bool) // Options.Report
	notes   notes                                 // of the goroutine that reads asynchronous events
	events
}

// openHCA opens what o asks for.
func openHCA(o Options) (h *hca, err error) {
	h = &hca{report: o.Report}
	defer func() {
		if err != nil {
			h.close()
			h = nil
		}
	}()
	if err = h.open(o); err != nil {
		return h, err
	}
	if rc := C.dm_query_port(h.ctx, h.port, &h.about); rc != 0 {
		return h, fmt.Errorf("query %s/%d: %w", h.name, h.port, syscall.Errno(rc))
	}
	if h.about.atomics == 0 {
		return h, fmt.Errorf("%w: %s executes no atomics", ErrNoDevice, h.name)
	}
	if h.about.ethernet != 0 {
		if h.gid, err = h.chooseGID(); err != nil {
			return h, fmt.Errorf("%w: %s/%d: %w", ErrNoDevice, h.name, h.port, err)
		}
	}
	if h.pd, err = C.ibv_alloc_pd(h.ctx); h.pd == nil {
		return h, fmt.Errorf("protection domain on %s: %w", h.name, err)
	}
	if err = h.openEvents(); err != nil {
		return h, fmt.Errorf("events of %s: %w", h.name, err)
	}
	if C.dm_raw_supported(h.ctx) != 0 {
		h.raw = true
		h.raw = probeMasked(h) == nil
	}
	return h, nil
}

// open looks at all devices of the host and keeps the one whose port is chosen.
func (h *hca) open(o Options) error {
	var n C.int
	C.dm_allow_gone()
	list, err := C.ibv_get_device_list(&n)
	if list == nil {
		return fmt.Errorf("%w: list of devices: %w", ErrNoDevice, err)
	}
	defer C.ibv_free_device_list(list)
	devices := unsafe.Slice(list, n)
	open := map[string]*C.struct_ibv_context{}
	var ports []portState
	for _, d := range devices {
		name := C.GoString(C.ibv_get_device_name(d))
		ctx, err := C.ibv_open_device(d)
		if ctx == nil {
			ports = append(ports, portState{device: name, state: fmt.Sprintf("cannot be opened: %v", err)})
			continue
		}
		open[name] = ctx
		for port := C.int(1); port <= C.dm_ports(ctx); port++ {
			var about C.struct_dm_port
			if rc := C.dm_query_port(ctx, port, &about); rc != 0 {
				ports = append(ports, portState{device: name, port: int(port), state: syscall.Errno(rc).Error()})
				continue
			}
			ports = append(ports, portState{name, int(port), about.active != 0, C.GoString(&about.state_name[0])})
		}
	}
	chosen, err := choosePort(ports, o)
	if err == nil {
		h.ctx, h.name, h.port = open[chosen.device], chosen.device, C.int(chosen.port)
	}
	for _, ctx := range open {
		if ctx != h.ctx {
			C.ibv_close_device(ctx)
		}
	}
	return err
}

func (h *hca) chooseGID() (gidEntry, error) {
	entries := make([]C.struct_ibv_gid_entry, C.DM_MAX_GIDS)
	n := C.dm_gids(h.ctx, h.port, &entries[0])
	if n < 0 {
		return gidEntry{}, fmt.Errorf("table of GIDs: %w", syscall.Errno(-n))
	}
	var table []gidEntry
	for _, e := range entries[:n] {
		table = append(table, gidEntry{index: int(e.gid_index), kind: int(e.gid_type), gid: e.gid})
	}
	return chooseGID(table)
}

// openEvents opens the completion channel, and starts whoever reads that and the asynchronous
// events.
func (h *hca) openEvents() (err error) {
	if h.channel, err = C.ibv_create_comp_channel(h.ctx); h.channel == nil {
		return err
	}
	if err := h.listen(h.channel.fd, "completion channel", h.completions()); err != nil {
		return err
	}
	return h.listen(h.ctx.async_fd, "asynchronous events", h.asynchronous())
}

// close gives everything back. Queue pairs, arenas and regions must be gone. Of a device that is
// gone the kernel has taken everything back, and what fails here is that somebody says so.
func (h *hca) close() error {
	h.stopListening()
	var errs []error
	for _, rc := range []C.int{h.destroyChannel(), h.deallocatePD(), h.closeDevice()} {
		if rc != 0 {
			errs = append(errs, syscall.Errno(rc))
		}
	}
	if len(errs) > 0 && h.lost() == nil {
		return fmt.Errorf("close %s: %w", h.name, errors.Join(errs...))
	}
	return nil
}

func (h *hca) destroyChannel() C.int {
	if h.channel == nil {
		return 0
	}
	return C.ibv_destroy_comp_channel(h.channel)
}

func (h *hca) deallocatePD() C.int {
	if h.pd == nil {
		return 0
	}
	return C.ibv_dealloc_pd(h.pd)
}

func (h *hca) closeDevice() C.int {
	if h.ctx == nil {
		return 0
	}
	return C.ibv_close_device(h.ctx)
}

// register pins b and makes it known to the NIC; remote lets other machines reach it.
func (h *hca) register(what string, b []byte, remote bool) (*C.struct_ibv_mr, error) {
	if err := mayLock(what, uint64(len(b))); err != nil {
		return nil, err
	}
	access := C.int(0)
	if remote {
		access = 1
	}
	var rc C.int
	mr := C.dm_register(h.pd, unsafe.Pointer(unsafe.SliceData(b)), C.uint64_t(len(b)), access, &rc)
	if mr == nil {
		return nil, fmt.Errorf("register %d bytes of %s with %s: %w", len(b), what, h.name, syscall.Errno(rc))
	}
	return mr, nil
}

// endpoint describes a new queue pair of this side.
func (h *hca) endpoint(qpn C.uint32_t) endpoint {
	var psn [4]byte
	rand.Read(psn[:])
	return endpoint{
		qpn: uint32(qpn), psn: binary.LittleEndian.Uint32(psn[:]) >> 8, mtu: uint8(h.about.mtu), reads: uint8(h.about.reads_in),
		lid: uint16(h.about.lid), gid: h.gid.gid,
	}
}

// connect takes a queue pair from INIT to where it sends and receives.
func (h *hca) connect(qp *C.struct_ibv_qp, mine, theirs *endpoint) error {
	if _, code := path(mine, theirs); code != codeOK {
		return codeErr(code)
	}
	from, to := h.cEndpoint(mine), h.cEndpoint(theirs)
	if rc := C.dm_connect(qp, &from, &to); rc != 0 {
		return fmt.Errorf("connect a queue pair of %s: %w: %w", h.name, syscall.Errno(rc), verbs.ErrDisconnected)
	}
	return nil
}

func (h *hca) cEndpoint(e *endpoint) C.struct_dm_endpoint {
	c := C.struct_dm_endpoint{
		qpn: C.uint32_t(e.qpn), psn: C.uint32_t(e.psn), mtu: C.uint8_t(e.mtu), reads_in: C.uint8_t(e.reads),
		reads_out: h.about.reads_out, port: C.uint8_t(h.port), gid_index: C.uint8_t(h.gid.index), global: h.about.ethernet,
		lid: C.uint16_t(e.lid),
	}
	for i, b := range e.gid {
		c.gid[i] = C.uint8_t(b)
	}
	return c
}
