//go:build ibv

package ibv

/*
#include "verbs.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
	"github.com/dmindex/dmindex/pkg/verbs/internal/serve"
)

// answerLimit bounds writing a frame to a client that may not read.
const answerLimit = 5 * time.Second

// server is a verbs.Server, verbs.LocalAtomics and verbs.LocalReads.
type server struct {
	*serve.Server
	hca     *hca
	memory  []verbs.Memory
	regions [verbs.RegionLocks + 1]remoteRegion
	mrs     []*C.struct_ibv_mr
	dm      *C.struct_ibv_dm // the lock region's, if it lies in the NIC
	// of the queue pairs of all sessions, which post nothing if there are no calls
	cq *C.struct_ibv_cq
	callState
	loop *loopback

	closing  sync.Once
	closeErr error
}

// NewServer makes the memory server's half; its regions are registered with the NIC. Serve takes
// listeners of network "tcp", for the bootstrap connections. Errors: ErrNoDevice, ErrMemlock.
func NewServer(options Options, o verbs.ServerOptions) (verbs.Server, error) {
	s, err := newServer(options, o)
	if err != nil {
		return nil, fmt.Errorf("ibv server: %w", err)
	}
	return s, nil
}

func newServer(options Options, o verbs.ServerOptions) (*server, error) {
	space, err := mapped.NewSpace(o.Memory) // checks the regions
	if err != nil {
		return nil, err
	}
	s := &server{memory: o.Memory, callState: callState{callers: verbs.NewCallers(o), near: &near{Space: space}}}
	if err := s.open(options, o, space.Regions()); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// open takes what the server needs of the NIC.
func (s *server) open(options Options, o verbs.ServerOptions, list []verbs.Region) (err error) {
	if s.hca, err = openHCA(options); err != nil {
		return err
	}
	capabilities := capabilities(mtuBytes(uint8(s.hca.about.mtu)))
	capabilities.MaskedAtomics = s.hca.raw
	for _, m := range o.Memory {
		if m.ID == verbs.RegionLocks && options.DeviceMemory && s.registerOnChip(m) {
			capabilities.DeviceMemory, s.near.onChip = len(m.Bytes), true
			continue
		}
		mr, err := s.hca.register(fmt.Sprintf("region %d", m.ID), m.Bytes, true)
		if err != nil {
			return err
		}
		s.mrs = append(s.mrs, mr)
		s.regions[m.ID] = remoteRegion{
			base: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.Bytes)))), size: uint64(len(m.Bytes)), key: uint32(mr.rkey),
		}
	}
	if s.cq, err = C.ibv_create_cq(s.hca.ctx, 1, nil, nil, 0); s.cq == nil {
		return fmt.Errorf("completion queue on %s: %w", s.hca.name, err)
	}
	if s.loop, err = newLoopback(s.hca, s.regions); err != nil {
		return err
	}
	s.Server, err = serve.New(o, serve.Provider{
		Capabilities: capabilities,
		MaxQPs:       MaxQPs,
		Regions:      list,
		Answer:       func(e *serve.Session, answer []byte) error { return s.sendAnswer(e.Conn, answer, list) },
		Run:          func(e *serve.Session) { (&session{server: s, of: e, conn: e.Conn}).run() },
		Cut:          func(e *serve.Session) { e.Conn.Close() },
	})
	return err
}

// Serve implements verbs.Server. It returns an error that names the RDMA device once that is gone:
// nothing can be reached any more through this server, and only another one opens a device anew.
func (s *server) Serve(l net.Listener) error {
	owner := s.hca.owns(func(error) { l.Close() })
	defer s.hca.ownsNoMore(owner)
	err := s.Server.Serve(l)
	if gone := s.hca.lost(); gone != nil {
		return fmt.Errorf("ibv server: %w", gone)
	}
	return err
}

// registerOnChip puts the lock region, with what it holds, into the NIC's own memory; false = it
// has none, or not enough.
func (s *server) registerOnChip(m verbs.Memory) bool {
	size := C.uint64_t(len(m.Bytes))
	if s.hca.about.dm_bytes < size {
		return false
	}
	var rc C.int
	dm := C.dm_memory(s.hca.ctx, size, &rc)
	if dm == nil {
		return false
	}
	mr := C.dm_register_memory(s.hca.pd, dm, size, &rc)
	if mr == nil || C.dm_memory_in(dm, unsafe.Pointer(unsafe.SliceData(m.Bytes)), size) != 0 {
		if mr != nil {
			C.ibv_dereg_mr(mr)
		}
		C.ibv_free_dm(dm)
		return false
	}
	s.dm, s.mrs = dm, append(s.mrs, mr)
	s.regions[m.ID] = remoteRegion{base: 0, size: uint64(size), key: uint32(mr.rkey)}
	return true
}

// sendAnswer sends the answer, and where each region lies.
func (s *server) sendAnswer(c net.Conn, answer []byte, list []verbs.Region) error {
	keepAlive(c)
	for _, r := range list {
		where := s.regions[r.ID]
		where.calls = s.callers.Any()
		answer = appendRegion(answer, where)
	}
	_, err := c.Write(answer)
	return err
}

// Fence implements verbs.Server. Behind the READ of its own, what the NIC took of sessions that
// ended before is in memory too, whatever came of theirs.
func (s *server) Fence(match func(verbs.Peer) bool, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	if err := s.Server.Fence(match, limit); err != nil {
		return err
	}
	if err := s.loop.quiet(time.Until(deadline)); err != nil {
		return fmt.Errorf("ibv: queue pairs of the fenced client are destroyed, but a READ behind them failed: %w", err)
	}
	return nil
}

// CompareSwap implements verbs.LocalAtomics.
func (s *server) CompareSwap(region verbs.RegionID, remote, compare, swap uint64) (uint64, error) {
	return s.loop.compareSwap(region, remote, compare, swap)
}

// ReadLocal implements verbs.LocalReads.
func (s *server) ReadLocal(region verbs.RegionID, remote uint64, dst []uint64) error {
	return s.loop.read(region, remote, dst)
}

// DeviceName implements verbs.OfDevice.
func (s *server) DeviceName() string { return s.hca.name }

// OnChip implements verbs.OnChip.
func (s *server) OnChip() int {
	if s.dm == nil {
		return 0
	}
	return int(s.regions[verbs.RegionLocks].size)
}

// Close implements verbs.Server.
func (s *server) Close() error {
	s.closing.Do(func() { s.closeErr = errors.Join(s.Server.Close(), s.release()) })
	return s.closeErr
}

// release gives back what the server took of the NIC. There are no sessions any more.
func (s *server) release() error {
	if s.hca == nil {
		return nil
	}
	if s.loop != nil {
		s.loop.close()
	}
	var errs []error
	check := func(what string, rc C.int) {
		if rc != 0 {
			errs = append(errs, fmt.Errorf("ibv: %s: %w", what, syscall.Errno(rc)))
		}
	}
	if s.cq != nil {
		check("destroy a completion queue", C.ibv_destroy_cq(s.cq))
	}
	for _, mr := range s.mrs {
		check("release a region", C.ibv_dereg_mr(mr))
	}
	if s.dm != nil {
		errs = append(errs, s.saveLocks())
		check("release device memory", C.ibv_free_dm(s.dm))
	}
	return errors.Join(append(errs, s.hca.close())...)
}

// saveLocks copies the lock region out of the NIC. The memory of a device that is gone reads as
// zero, which would free all locks. So it looks before and after; the error tells the memory server
// that the locks are lost.
func (s *server) saveLocks() error {
	for _, m := range s.memory {
		if m.ID != verbs.RegionLocks || s.hca.lost() != nil {
			continue
		}
		if rc := C.dm_memory_out(s.dm, unsafe.Pointer(unsafe.SliceData(m.Bytes)), C.uint64_t(len(m.Bytes))); rc != 0 {
			return fmt.Errorf("ibv: copy the lock region out of the NIC: %w", syscall.Errno(rc))
		}
	}
	if gone := s.hca.lost(); gone != nil {
		return fmt.Errorf("ibv: the lock region in the NIC is lost: %w", gone)
	}
	return nil
}

// session is the server's side of one connection: its queue pairs, by slot.
type session struct {
	server  *server
	of      *serve.Session
	conn    net.Conn
	qps     [MaxQPs]*C.struct_ibv_qp
	callers [MaxQPs]*caller // of those that take calls
	calls   *calls          // nil = there are none, or no queue pair yet
	owner   uint64          // of the queue pairs: the end of one is that of the connection
}

// run makes and destroys queue pairs as the client asks, until the connection ends. When it
// returns, nothing of them takes effect any more.
func (e *session) run() {
	e.owner = e.server.hca.owns(func(error) { e.conn.Close() })
	defer e.server.hca.ownsNoMore(e.owner)
	clean := false
	defer func() {
		if !clean { // a panic: the queue pairs must not outlive the session
			e.end()
		}
	}()
	e.serve()
	clean = true
}

// serve is run, without its care for panics.
func (e *session) serve() {
	for {
		f, err := readFrame(e.conn)
		if err != nil || f.kind == frameBye {
			e.end()
			if err == nil {
				e.write(&frame{kind: frameBye})
			}
			return
		}
		if f.kind == frameDrop {
			e.drop(f.slot)
			continue
		}
		answer := frame{kind: f.kind, slot: f.slot, seq: f.seq}
		if f.kind == frameCalls {
			answer.code = e.allow(f.slot)
		} else {
			answer.endpoint, answer.code = e.pair(f.slot, &f.endpoint)
		}
		if e.write(&answer) != nil {
			e.end()
			return
		}
	}
}

func (e *session) write(f *frame) error {
	e.conn.SetWriteDeadline(time.Now().Add(answerLimit))
	_, err := e.conn.Write(f.append(nil))
	return err
}

// pair makes a queue pair and connects it with theirs.
func (e *session) pair(slot uint16, theirs *endpoint) (mine endpoint, code uint8) {
	h := e.server.hca
	if e.qps[slot] != nil {
		return mine, codeTooMany
	}
	cq := e.server.cq
	if e.server.callers.Any() {
		if e.calls == nil {
			if e.calls = e.server.newCalls(e.of); e.calls == nil {
				return mine, codeResource
			}
		}
		cq = e.calls.cq
	}
	var rc C.int
	qp := C.dm_passive_create(h.pd, cq, h.port, C.uint64_t(e.owner), &rc)
	if qp == nil {
		return mine, codeResource
	}
	mine = h.endpoint(qp.qp_num)
	if _, code := path(&mine, theirs); code != codeOK {
		C.dm_passive_destroy(qp)
		return endpoint{}, code
	}
	if h.connect(qp, &mine, theirs) != nil {
		C.dm_passive_destroy(qp)
		return endpoint{}, codeResource
	}
	e.qps[slot] = qp
	return mine, codeOK
}

// allow lets the queue pair of a slot take calls.
func (e *session) allow(slot uint16) (code uint8) {
	if e.calls == nil || e.qps[slot] == nil || e.callers[slot] != nil {
		return codeResource
	}
	e.callers[slot], code = e.calls.allow(e.qps[slot])
	return code
}

func (e *session) drop(slot uint16) {
	qp, w := e.qps[slot], e.callers[slot]
	if qp == nil {
		return
	}
	if w != nil {
		e.calls.forbid(w)
	}
	C.dm_passive_destroy(qp)
	if w != nil {
		w.free(e.server)
	}
	e.qps[slot], e.callers[slot] = nil, nil
}

// end destroys all queue pairs, by way of the error state, then waits until what the NIC took
// before is in memory. Where that cannot be known Fence says so; nothing else can be done about it.
func (e *session) end() {
	together(len(e.qps), func(slot int) { e.drop(uint16(slot)) })
	if e.calls != nil {
		e.calls.close()
		e.calls = nil
	}
	e.server.loop.quiet(loopLimit)
}

// capabilities are those of every connection without masked atomics and device memory. See the
// package comment.
func capabilities(mtu int) verbs.Capabilities {
	return verbs.Capabilities{WholeWrite: mtu, WholeAlways: true}
}
