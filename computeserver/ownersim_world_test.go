package computeserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dmindex/dmindex/memserver"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// ownWorld is an index of a design whose ranges have owners, in a simulated world: memory servers,
// compute servers, programs that ask them, two operators, and trouble. Real are the ledger, leases
// and fences of the memory servers, the pool, the core of the compute servers with ownership,
// engine and forwarding, and the operator's step. The index is DEX (ownersim_dex_test.go) or a toy
// (ownersim_toy_test.go), which is fast and shows on its pages who wrote them. Kubernetes is a list
// of pods.
type ownWorld struct {
	*simenv.World
	fabric *sim.Fabric
	random *rand.Rand
	wrong  mistake
	main   *simenv.Process
	calm   bool      // there is no trouble but scaling
	dex    *dexShape // nil: the index is the toy

	memory  []*memoryServer
	pods    []*pod // in the order of their ids
	twins   []*pod // processes of theirs that were lost from sight
	lastPod uint32
	desired int
	cuts    []cut2 // connections that do not work

	load loadWorld
	doom doom
	wide wideWorld

	tight   bool // there is no memory to give ranges, most of the time
	kinds   int  // of trouble; below 3 only nodes are lost, below 2 in the worst way
	begun   bool // every key was served once
	quiet   bool // trouble is over
	over    bool
	log     *history
	granted map[uint64]bool         // epochs
	asked   int                     // requests so far
	serving map[*simenv.Process]int // requests under way
	problem error
	counts  struct{ grants, orphans, replays, gives, swaps, thaws, deaths, proven, lapses, blocks, deferred int }
}

// mistake is a fault put in on purpose.
type mistake string

const (
	noMistake     mistake = ""
	leaseTooLong  mistake = "a lease is not waited out"
	fencedHere    mistake = "an orphan's keys are taken without fencing it at the other memory servers"
	giveAtOnce    mistake = "keys are given without waiting for the sessions that use them"
	settleFirst   mistake = "what is inherited is settled before it is replayed"
	anyGeneration mistake = "the generation of a claim is not checked"
	giveUnflushed mistake = "keys are given without being written back"
	takenForDead  mistake = "a process is taken for dead that still answers"
	// limitations.md
	clockStops      mistake = "the clock of a compute server stands still while its machine is paused"
	releaseAnyEpoch mistake = "a late release takes what was granted since"
)

const (
	ownIndex   = "x"
	ownLease   = 2 * time.Second
	ownLimit   = time.Second
	ownDrift   = 60_000
	ownClients = 128 // ids are below, unless very many die
	ownLocks   = 64

	// Of the data region: a superblock, repair records, a page of 8 bytes for each key, and a log
	// for each client.
	ownRepairAt = 4 << 10
	ownPagesAt  = 16 << 10
	ownLogsAt   = 20 << 10
	ownLogWords = 1024
)

// cut2 is a compute server or operator that cannot reach a memory server.
type cut2 struct {
	process string
	server  uint16
}

// memoryServer is one of them, over the lives of its process.
type memoryServer struct {
	id      uint16
	process *simenv.Process
	bare    *memserver.Bare // nil while none serves
	disk    []byte
	memory  []verbs.Memory
	half    *sim.Server
	mute    time.Duration // until then its provider cannot say whether anybody is quiet
}

func (w *ownWorld) report(format string, args ...any) {
	if w.problem == nil {
		w.problem = fmt.Errorf("at %v: %w", w.Now(), fmt.Errorf(format, args...))
		w.Fail(w.problem)
	}
}

func (w *ownWorld) upTo(d time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(d) + 1))
}
func (w *ownWorld) oneIn(n int) bool { return w.random.IntN(n) == 0 }

// newProcess makes one whose clock drifts.
func (w *ownWorld) newProcess(name string) *simenv.Process {
	p := w.NewProcess(name)
	p.SetDrift(w.random.Int64N(2*ownDrift+1) - ownDrift)
	return p
}

func (m *memoryServer) address() string { return fmt.Sprint("memory-", m.id) }

// serve starts a process of a memory server, which finds what an earlier one left.
func (w *ownWorld) serve(m *memoryServer) {
	p := w.newProcess(m.address())
	m.process = p
	p.AtKill(func() {
		m.bare = nil
		w.After(w.upTo(time.Second), nil, func() { w.serve(m) })
	})
	p.Go("serve", func() {
		if err := w.open(m, p); err != nil {
			w.report("memory server %d does not start: %v", m.id, err)
			return
		}
		m.bare.Run()
	})
}

func (w *ownWorld) open(m *memoryServer, p *simenv.Process) error {
	save := func(b []byte) error {
		p.Sleep(w.upTo(100 * time.Microsecond))
		// a request of the toy never needs the ledger
		if !w.quiet && !(w.calm && w.dex != nil) && w.oneIn(60) {
			return errors.New("no space left on the simulated device")
		}
		m.disk = append(m.disk[:0:0], b...)
		p.Sleep(w.upTo(50 * time.Microsecond))
		return nil
	}
	again := func(f func() error) (err error) {
		for range 100 {
			if err = f(); err == nil {
				return nil
			}
			p.Yield()
		}
		return err
	}
	var bare *memserver.Bare
	err := again(func() (err error) {
		bare, err = memserver.NewBare(p, memserver.BareOptions{
			Locks: m.memory[1].Bytes, Shape: ledger.Shape{Incarnation: 1, ChunkBytes: w.chunkBytes(), Chunks: uint32(w.chunks()), Slots: 2, Locks: uint64(len(m.memory[1].Bytes)) / 2},
			Zero:   func(chunk uint32) { clear(m.memory[0].Bytes[w.chunkAt(chunk):][:w.chunkBytes()]) },
			Stored: append([]byte(nil), m.disk...), Save: save, Lease: ownLease, Log: slog.New(slog.DiscardHandler),
			Random: func() (t verbs.Token) {
				binary.NativeEndian.PutUint64(t[:], p.Uint64())
				return t
			},
		})
		return err
	})
	if err == nil {
		err = again(func() error { return bare.Admit(ownIndex, uint64(w.chunks()), ownLocks) })
	}
	if err != nil {
		return err
	}
	m.half, err = w.fabric.NewServerOf(p, m.address(), verbs.ServerOptions{Memory: m.memory, Incarnation: 1, Admission: bare.Admission("sim")})
	if err != nil {
		return err
	}
	bare.Offer("sim", m.address(), &unwilling{m.half, m, w, p})
	if err := again(bare.Start); err != nil {
		return err
	}
	m.bare = bare
	return nil
}

// unwilling is a provider that takes its time, and at times cannot say whether clients are quiet.
type unwilling struct {
	*sim.Server
	m *memoryServer
	w *ownWorld
	p *simenv.Process
}

// CompareSwap implements verbs.LocalAtomics.
func (u *unwilling) CompareSwap(region verbs.RegionID, remote, compare, swap uint64) (old uint64, err error) {
	return u.Server.CompareSwap(region, remote, compare, swap)
}

func (u *unwilling) Fence(match func(verbs.Peer) bool, limit time.Duration) error {
	u.p.Sleep(u.w.upTo(200 * time.Microsecond))
	if !u.w.quiet && (u.w.oneIn(4) || u.w.Now() < u.m.mute) {
		u.p.Sleep(min(limit, u.w.upTo(ownLease)))
		return fmt.Errorf("%w: it does not say", verbs.ErrTimeout)
	}
	return u.Server.Fence(match, limit)
}

// path is the way of a process to the memory servers: pool.Control and pool.Ranges.
type path struct {
	w    *ownWorld
	p    *simenv.Process
	name string // of the pod
	pod  uint32 // 0 = an operator

	guard pool.Guard // nil: it locked none

	client uint16 // that it registered last
}

var errStarting = errors.New("the memory server is starting")

func (k *path) call(id uint16, limit time.Duration, f func(b *memserver.Bare) error) error {
	m := k.w.memory[id-1]
	if k.w.isCut(k.p.Name(), id) {
		k.p.Sleep(limit)
		return fmt.Errorf("memory server %d: %w", id, verbs.ErrTimeout)
	}
	err := fmt.Errorf("%w: %w", errStarting, verbs.ErrDisconnected)
	if e := k.w.fabric.Call(k.p, m.address(), limit, func() {
		if b := m.bare; b != nil {
			err = f(b)
		}
	}); e != nil {
		return e
	}
	switch {
	case errors.Is(err, ledger.ErrFenced):
		return fmt.Errorf("%w: %w", pool.ErrFenced, err)
	case errors.Is(err, ledger.ErrNotOwned), errors.Is(err, ledger.ErrInUse):
		return fmt.Errorf("%w: %w", pool.ErrNotHeld, err)
	case errors.Is(err, ledger.ErrOtherMap):
		return fmt.Errorf("%w: %w", pool.ErrOtherMap, err)
	case errors.Is(err, pool.ErrEpoch), errors.Is(err, ledger.ErrUnknownClient):
		return fmt.Errorf("%w: %w", verbs.ErrRefused, err)
	}
	return err
}

func (w *ownWorld) isCut(process string, server uint16) bool {
	for _, c := range w.cuts {
		if c == (cut2{process, server}) {
			return true
		}
	}
	return false
}

func (k *path) Servers() []uint16 {
	var ids []uint16
	for _, m := range k.w.memory {
		ids = append(ids, m.id)
	}
	return ids
}

func (k *path) Register(limit time.Duration) (client uint16, err error) {
	var id uint16
	err = k.call(1, limit, func(b *memserver.Bare) (err error) { id, err = b.Register(ownIndex, k.name); return err })
	if err == nil && int(id) >= k.w.clients() {
		k.w.report("client %d is one too many", id)
	}
	k.client = id
	return id, err
}

func (k *path) Predecessors(client uint16, limit time.Duration) (ids []uint16, err error) {
	err = k.call(1, limit, func(b *memserver.Bare) error {
		ids = nil
		all, err := b.Clients(ownIndex, k.name)
		for _, c := range all {
			if !c.Fenced && c.ID != client {
				ids = append(ids, c.ID)
			}
		}
		return err
	})
	return ids, err
}

// believed is how long a client takes its lease to be.
func (k *path) believed(lease time.Duration) time.Duration {
	if k.w.wrong == leaseTooLong {
		return 4 * lease
	}
	return lease
}

func (k *path) Connect(id, client uint16, limit time.Duration) (g pool.Grant, err error) {
	err = k.call(id, limit, func(b *memserver.Bare) error {
		token, lease, epoch, err := b.Connect(ownIndex, client, "sim")
		g = pool.Grant{
			Provider: "sim", Target: verbs.Target{Address: k.w.memory[id-1].address(), Token: token, Incarnation: 1},
			Repair: ownRepairAt, Locks: ownLocks, ChunkBytes: k.w.chunkBytes(), Lease: k.believed(lease), Epoch: epoch,
		}
		return err
	})
	return g, err
}

func (k *path) Renew(id, client uint16, e pool.Epochs, limit time.Duration) (r pool.Renewal, err error) {
	err = k.call(id, limit, func(b *memserver.Bare) (err error) { r, err = b.Renew(ownIndex, client, e); return err })
	r.Lease = k.believed(r.Lease)
	return r, err
}

func (k *path) Fence(id uint16, clients []uint16, limit time.Duration) error {
	if k.w.wrong == fencedHere && id != 1 {
		return nil
	}
	return k.call(id, limit, func(b *memserver.Bare) error { return b.Fence(ownIndex, clients, limit*4/5) })
}

// FenceSilent is part of pool.Ranges.
func (k *path) FenceSilent(clients []uint16, limit time.Duration) error {
	if !slices.Contains(clients, k.client) {
		k.w.counts.proven += len(clients)
	}
	return k.call(1, limit, func(b *memserver.Bare) error { return b.FenceSilent(ownIndex, clients, limit*4/5) })
}

func (k *path) AllocateChunk(id, client uint16, nodeBytes int, adopt bool, limit time.Duration) (offset uint64, err error) {
	var number uint32
	err = k.call(id, limit, func(b *memserver.Bare) (err error) {
		number, err = b.Allocate(ownIndex, client, nodeBytes, adopt)
		offset = k.w.chunkAt(number)
		if err == nil && k.w.dex != nil {
			delete(k.w.dex.owner, chunkName{id, number})
		}
		return err
	})
	// else the answer may be lost, and then it is nobody's who knows
	if err == nil && k.w.dex != nil {
		k.w.dex.owner[chunkName{id, number}] = client
	}
	if errors.Is(err, ledger.ErrExhausted) || errors.Is(err, ledger.ErrCleaning) {
		err = fmt.Errorf("%w: %w", pool.ErrPoolFull, err)
	}
	return offset, err
}

func (k *path) FreeChunk(id, client uint16, offset uint64, limit time.Duration) error {
	return k.call(id, limit, func(b *memserver.Bare) error { return b.Free(ownIndex, client, k.w.chunkNumber(offset)) })
}

func (k *path) Acquire(c pool.Claim, limit time.Duration) (got pool.Acquired, err error) {
	err = k.call(1, limit, func(b *memserver.Bare) error {
		claim := c
		if k.w.wrong == anyGeneration {
			claim.Generation, _, _ = b.Map(ownIndex)
		}
		_, before, _ := b.Map(ownIndex)
		answer, err := b.Acquire(ownIndex, claim)
		if err == nil {
			k.w.isGranted(b, k.pod, c.Generation, before, answer)
			got = answer
		}
		return err
	})
	return got, err
}

func (k *path) Settle(client uint16, start, end []byte, epoch uint64, limit time.Duration) error {
	return k.call(1, limit, func(b *memserver.Bare) error { return b.Settle(ownIndex, client, start, end, epoch) })
}

func (k *path) Release(client uint16, start, end []byte, epoch uint64, limit time.Duration) error {
	return k.call(1, limit, func(b *memserver.Bare) error {
		if k.w.wrong == releaseAnyEpoch {
			all, _ := b.Holdings(ownIndex)
			for _, h := range all {
				if _, _, ok := overlap(h.Start, h.End, start, end); ok && h.Client == client {
					_ = b.Release(ownIndex, client, start, end, h.Epoch)
				}
			}
			return nil
		}
		return b.Release(ownIndex, client, start, end, epoch)
	})
}

func (k *path) Holdings(limit time.Duration) (all []pool.Held, err error) {
	err = k.call(1, limit, func(b *memserver.Bare) (err error) { all, err = b.Holdings(ownIndex); return err })
	return all, err
}

// Map implements MapSource: it asks often.
func (k *path) Map(newerThan uint64, wait time.Duration) (encoded []byte, err error) {
	for end := k.p.Now() + min(wait, 5*time.Second); ; k.p.Sleep(k.w.upTo(100 * time.Millisecond)) {
		var generation uint64
		err = k.call(1, ownLimit, func(b *memserver.Bare) (err error) { generation, encoded, err = b.Map(ownIndex); return err })
		if err != nil || generation > newerThan || k.p.Now() >= end || k.w.over {
			return encoded, err
		}
	}
}
