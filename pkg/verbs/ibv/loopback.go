//go:build ibv

package ibv

/*
#include "verbs.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
)

const (
	loopLimit = 5 * time.Second // for a request through the loopback
	loopBytes = 4096            // read at once
)

// loopback is a queue pair of this host that is connected to another one on the same port. What
// goes through it meets the requests of other machines in the NIC. Safe for concurrent use.
type loopback struct {
	hca     *hca
	regions [verbs.RegionLocks + 1]remoteRegion

	mu      sync.Mutex
	mr      *C.struct_ibv_mr
	mem     []byte // the first loopBytes receive; of the rest probeMasked makes its target
	cq      *C.struct_ibv_cq
	request *requester // nil = to be made anew
	answer  *C.struct_ibv_qp
}

// newLoopback makes a loopback that reaches regions.
func newLoopback(h *hca, regions [verbs.RegionLocks + 1]remoteRegion) (*loopback, error) {
	l := &loopback{hca: h, regions: regions}
	if err := l.prepare(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *loopback) prepare() (err error) {
	if l.mem, err = mapPages(2 * loopBytes); err != nil {
		return err
	}
	if l.mr, err = l.hca.register("the server's own buffer", l.mem, true); err != nil {
		return err
	}
	if l.cq, err = C.ibv_create_cq(l.hca.ctx, 1, nil, nil, 0); l.cq == nil {
		return fmt.Errorf("completion queue on %s: %w", l.hca.name, err)
	}
	return l.open()
}

// open makes and connects the two queue pairs. l.mu is held, or l is not shared yet.
func (l *loopback) open() (err error) {
	h := l.hca
	if l.request, err = h.newRequester(0); err != nil {
		return err
	}
	var rc C.int
	if l.answer = C.dm_passive_create(h.pd, l.cq, h.port, 0, &rc); l.answer == nil {
		err = fmt.Errorf("make a queue pair on %s: %w", h.name, syscall.Errno(rc))
	} else {
		l.request.encoder.lkey, l.request.encoder.regions = uint32(l.mr.lkey), l.regions
		mine, theirs := h.endpoint(l.request.c.qp.qp_num), h.endpoint(l.answer.qp_num)
		if err = h.connect(l.answer, &theirs, &mine); err == nil {
			err = l.request.connect(&mine, &theirs)
		}
	}
	if err != nil {
		l.drop()
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}

// drop destroys the queue pairs.
func (l *loopback) drop() {
	if l.request != nil {
		l.request.destroy()
		l.request = nil
	}
	if l.answer != nil {
		C.dm_passive_destroy(l.answer)
		l.answer = nil
	}
}

// post posts a list and waits for it. After an error the queue pairs are made anew for the next
// one.
func (l *loopback) post(limit time.Duration, list ...verbs.Request) error {
	if err := l.hca.lost(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if l.request == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	err := l.request.post(list)
	if err == nil {
		err = l.request.wait(limit)
	}
	if err == nil {
		return nil
	}
	l.drop()
	if errors.Is(err, errLimit) {
		err = verbs.ErrTimeout
	}
	return fmt.Errorf("loopback: %w", err)
}

// quiet returns nil once every WRITE and atomic that the NIC took before is in memory: READs of all
// regions do not overtake them.
func (l *loopback) quiet(limit time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mem == nil {
		return fmt.Errorf("loopback: %w", verbs.ErrClosed)
	}
	var list []verbs.Request
	for id := range l.regions {
		if l.regions[id].size >= 8 {
			list = append(list, verbs.Request{Op: verbs.Read, Region: verbs.RegionID(id), Local: l.mem[:8]})
		}
	}
	return l.post(limit, list...)
}

// compareSwap is verbs.LocalAtomics.
func (l *loopback) compareSwap(region verbs.RegionID, remote, compare, swap uint64) (old uint64, err error) {
	r := verbs.Request{Op: verbs.CompareSwap, Region: region, Remote: remote, Compare: compare, Swap: swap}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mem == nil {
		return 0, fmt.Errorf("loopback: %w", verbs.ErrClosed)
	}
	r.Local = l.mem[:8]
	switch {
	case remote%8 != 0 || region > verbs.RegionLocks:
		err = verbs.ErrMalformed
	case !r.InRange(l.regions[region].size):
		err = verbs.ErrOutOfRange
	default:
		err = l.post(loopLimit, r)
	}
	if err != nil {
		return 0, fmt.Errorf("ibv: compare-and-swap at %d:%#x: %w", region, remote, err)
	}
	return binary.NativeEndian.Uint64(l.mem), nil
}

// read is verbs.LocalReads.
func (l *loopback) read(region verbs.RegionID, remote uint64, dst []uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(dst) > 0 {
		n := min(len(dst), loopBytes/8)
		if err := l.readSome(region, remote, dst[:n]); err != nil {
			return fmt.Errorf("ibv: READ of %d words at %d:%#x: %w", n, region, remote, err)
		}
		dst, remote = dst[n:], remote+8*uint64(n)
	}
	return nil
}

// readSome reads what fits into the buffer. l.mu is held.
func (l *loopback) readSome(region verbs.RegionID, remote uint64, dst []uint64) error {
	if l.mem == nil {
		return fmt.Errorf("loopback: %w", verbs.ErrClosed)
	}
	r := verbs.Request{Op: verbs.Read, Region: region, Remote: remote, Local: l.mem[:8*len(dst)]}
	switch {
	case remote%8 != 0 || region > verbs.RegionLocks:
		return verbs.ErrMalformed
	case !r.InRange(l.regions[region].size):
		return verbs.ErrOutOfRange
	}
	if err := l.post(loopLimit, r); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = binary.NativeEndian.Uint64(l.mem[8*i:])
	}
	return nil
}

func (l *loopback) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
	if l.cq != nil {
		C.ibv_destroy_cq(l.cq)
		l.cq = nil
	}
	if l.mr != nil {
		C.ibv_dereg_mr(l.mr)
		l.mr = nil
	}
	if l.mem != nil {
		unix.Munmap(l.mem)
		l.mem = nil
	}
}

// probeMasked executes both masked atomics on a word of this host's own and compares what they
// leave and return, byte order included. nil = they do what package verbs says.
func probeMasked(h *hca) error {
	l, err := newLoopback(h, [verbs.RegionLocks + 1]remoteRegion{})
	if err != nil {
		return err
	}
	defer l.close()
	l.request.encoder.regions[verbs.RegionData] = remoteRegion{base: uint64(uintptr(l.mr.addr)), size: uint64(len(l.mem)), key: uint32(l.mr.rkey)}
	const start = 0x0123456789abcdef
	swap := verbs.Request{Op: verbs.MaskedCompareSwap, Remote: loopBytes, Local: l.mem[:8],
		Compare: 0xcd00, CompareMask: 0xff00, Swap: 0x1111111111111111, SwapMask: 0xff00ff}
	add := verbs.Request{Op: verbs.MaskedFetchAdd, Remote: loopBytes, Local: l.mem[:8], Add: 0x0101010101f00101, Boundary: 1<<23 | 1<<55 | 1<<63}
	want := uint64(start)
	binary.NativeEndian.PutUint64(l.mem[loopBytes:], want)
	for _, r := range []verbs.Request{swap, add} {
		clear(l.mem[:8])
		if err := l.post(loopLimit, r); err != nil {
			return err
		}
		if old := binary.NativeEndian.Uint64(l.mem); old != want {
			return fmt.Errorf("%v found %#x, not %#x", r.Op, old, want)
		}
		if r.Op == verbs.MaskedFetchAdd {
			want = r.MaskedSum(want)
		} else {
			want, _ = r.MaskedSwap(want)
		}
		if now := binary.NativeEndian.Uint64(l.mem[loopBytes:]); now != want {
			return fmt.Errorf("%v left %#x, not %#x", r.Op, now, want)
		}
	}
	return nil
}
