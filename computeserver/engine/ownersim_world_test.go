package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/memservertest"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
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
	*simtest.Stage
	fabric *sim.Fabric
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

	load   loadWorld
	doom   doom
	scarce scarcity
	wide   wideWorld

	additions additions
	groups    groupWorld
	sets      setsWorld

	kinds   int  // of trouble; below 3 only nodes are lost, below 2 in the worst way
	begun   bool // every key was served once
	quiet   bool // trouble is over
	over    bool
	log     *history
	granted map[uint64]bool         // epochs
	asked   int                     // requests so far
	serving map[*simenv.Process]int // requests under way
	ids     uint16                  // there are so few for clients; 0 = many
	// there are so few holdings of keys; 0 = many
	holdings int
	counts   struct{ grants, orphans, replays, gives, swaps, thaws, deaths, confirmed, lapses, blocks, deferred, forgotten, crowded int }
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
	replyEarly    mistake = "changes are answered before the log is durable"
	unmirrored    mistake = "a memory server answers before its copy has the ledger"
	readNotHeld   mistake = "reads are answered before the log is durable up to what they saw"
	halfGroups    mistake = "a group is two steps"
	lookEarly     mistake = "a group decides on what its keys had before it can change them"
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
	fewIDs     = 30 // with which ids are given again and again

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
	bare    *memservertest.Bare // nil while none serves
	disk    simtest.Disk        // with the ledger
	memory  []verbs.Memory
	half    *sim.Server   // of the process that runs
	mute    time.Duration // until then its provider cannot report whether anybody is quiet

	step    joinStep
	granted bool  // it joined, and has its quota
	waits   error // why it has not joined yet
}

func (m *memoryServer) address() string { return fmt.Sprint("memory-", m.id) }

// serve starts a process of a memory server, which finds what an earlier one left.
func (w *ownWorld) serve(m *memoryServer) {
	p := w.NewDrifting(m.address())
	m.process = p
	p.AtKill(func() {
		m.bare, m.half, m.disk.Record = nil, nil, nil
		w.After(w.UpTo(time.Second), nil, func() { w.serve(m) })
	})
	p.Go("serve", func() {
		if err := w.open(m, p); err != nil {
			w.Report("memory server %d does not start: %v", m.id, err)
			return
		}
		m.bare.Run()
	})
}

func (w *ownWorld) open(m *memoryServer, p *simenv.Process) error {
	// a request of the toy never needs the ledger
	full := func() bool { return !w.quiet && !(w.calm && w.dex != nil) && w.OneIn(60) }
	save := func(b []byte) error { return m.disk.Save(w.Stage, p, b, full, nil) }
	again := func(f func() error) (err error) {
		for range 100 {
			if err = f(); err == nil {
				return nil
			}
			p.Yield()
		}
		return err
	}
	var bare *memservertest.Bare
	err := again(func() (err error) {
		bare, err = memservertest.NewBare(p, memservertest.BareOptions{
			Locks: m.memory[1].Bytes, Shape: ledger.Shape{Incarnation: 1, ChunkBytes: w.chunkBytes(), Chunks: uint32(w.chunks()), Slots: 2, Locks: uint64(len(m.memory[1].Bytes)) / 2, Clients: w.ids},
			Zero: func(chunk uint32) {
				b := m.memory[0].Bytes[w.chunkAt(chunk):][:w.chunkBytes()]
				if m.half.Mirrored() {
					before := bytes.Clone(b)
					m.half.Record(func() { copy(b, before) })
				}
				clear(b)
			},
			Stored: append([]byte(nil), m.disk.Stored...), Save: save, Holdings: w.holdings, Lease: ownLease, Log: slog.New(slog.DiscardHandler),
			Random: func() (t verbs.Token) {
				binary.NativeEndian.PutUint64(t[:], p.Uint64())
				return t
			},
		})
		return err
	})
	if err == nil {
		err = again(func() error { return bare.Admit(ownIndex, w.quota(m), ownLocks) })
	}
	if err != nil {
		return err
	}
	m.half, err = w.fabric.NewServerOf(p, m.address(), verbs.ServerOptions{Memory: m.memory, Incarnation: 1, Admission: bare.Admission("sim")})
	if err != nil {
		return err
	}
	w.mirror(m)
	bare.Offer("sim", m.address(), &unwilling{m.half, m, w, p})
	if err := again(bare.Start); err != nil {
		return err
	}
	m.bare = bare
	return nil
}
