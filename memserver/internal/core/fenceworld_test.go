package core

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// fenceWorld is one memory server, made of the core of this package, in a simulated world: with
// clients that hold leases and locks, a fencer, an adversary, and a judge who sees all of them at
// once.
type fenceWorld struct {
	*simtest.Stage
	fabric *sim.Fabric
	wrong  mistake
	main   *simenv.Process
	memory []verbs.Memory
	disk   simtest.Disk // with the ledger
	core   *Core        // of the server that serves; nil = none does
	half   *sim.Server  // of the process that runs
	server *simenv.Process
	over   bool // nobody begins anything any more

	lives    int
	living   []*simenv.Process
	explicit [simClients]bool // somebody asked for its fence
	expired  [simClients]bool // the server found its lease over
	taken    [simClients]bool // somebody waited until its lease was over, and answers in its place
	ended    [simClients]*remains
	estate
	answers int
	// answers that were not given because the lease was over when it was looked at again
	late int
}

// mistake is a fault put in on purpose.
type mistake string

const (
	noMistake    mistake = ""
	hastyFence   mistake = "the provider's Fence does not wait until all is quiet"
	lateLease    mistake = "the holder counts its lease from the reply"
	noSecondLook mistake = "the holder does not look at its lease again before it answers"
	forgetful    mistake = "the ledger is not stored"
	early        mistake = "nodes are used again one epoch early"
	hoarder      mistake = "a holder says that it passed an epoch and keeps what it held"
	unmirrored   mistake = "the server answers before its copy has the ledger"
)

const (
	simIndex   = "x"
	simLease   = 20 * time.Millisecond
	simClients = 48 // ids are below; who gets none does not come
	simLocks   = 64 // of the index

	// Each client has memory that nobody else writes: words in the data region, and a counter in
	// the lock region.
	ownBytes     = 128
	countersFrom = 256

	// simDrift is how fast or slow clocks are, in parts of a million. A holder takes 7/8 of its
	// lease, which suffices as long as no clock runs more than 8/7 as fast as another: up to
	// 66,000.
	simDrift = 60_000
)

// remains are what was there of a client when it was said that nothing of it takes effect any more.
type remains struct {
	own   [ownBytes]byte
	count uint64
}

// serve starts a process of the memory server, which finds what an earlier one left. When it dies
// another one takes its place.
func (w *fenceWorld) serve() {
	p := w.NewDrifting("memory server")
	w.server = p
	p.AtKill(func() {
		w.core, w.half, w.disk.Record = nil, nil, nil
		w.After(w.UpTo(2*simLease), nil, w.serve)
	})
	p.Go("serve", func() {
		if err := w.open(p); err != nil {
			w.Report("the server does not start: %v", err)
			return
		}
		w.core.Run()
	})
}

func (w *fenceWorld) open(p *simenv.Process) error {
	shape := ledger.Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: simChunks, Slots: 2, Locks: uint64(len(w.memory[1].Bytes)) / 2}
	var a *Accounts
	var err error
	if w.disk.Stored == nil {
		a, err = NewAccounts(p, simDisk{w, p}, shape)
		for errors.Is(err, ErrStore) {
			a, err = NewAccounts(p, simDisk{w, p}, shape)
		}
		for err == nil {
			err = a.Change(Grow, func(l *ledger.Ledger) error { _, err := l.Admit(simIndex, simChunks, simLocks); return err })
			if err == nil {
				break
			}
			if errors.Is(err, ErrStore) {
				err = nil
			}
		}
	} else {
		a, err = FoundAccounts(p, simDisk{w, p}, append([]byte(nil), w.disk.Stored...))
	}
	if err != nil {
		return err
	}
	random := func() (t verbs.Token) {
		binary.NativeEndian.PutUint64(t[:], p.Uint64())
		return t
	}
	c := New(p, a, random, w.memory[1].Bytes, simLease, slog.New(judge{w}))
	server, err := w.fabric.NewServerOf(p, "memory", verbs.ServerOptions{Memory: w.memory, Incarnation: 1, Admission: slowDoor{admission{c.tokens, "sim", nil}, w, p}})
	if err != nil {
		return err
	}
	w.half = server
	if sim.Mirrors(w.Seed()) {
		w.disk.Record = server.Record
		server.Keep(copyOf(w.memory, simLocks))
	}
	c.Offer(Provider{"sim", "memory", &moody{server, w, p}})
	for err = c.Start(); errors.Is(err, ErrStore); err = c.Start() {
	}
	if err == nil {
		w.served(a.ledger)
		w.core = c
	}
	return err
}

// copyOf is how a server is mirrored whose index has so many locks. The lock region is not
// recorded; see package poolsim.
func copyOf(memory []verbs.Memory, locks int) sim.Mirror {
	return sim.Mirror{
		Recorded: func(region verbs.RegionID, _ uint64) bool { return region == verbs.RegionData },
		Opened: func() {
			for i := range memory[1].Bytes[:2*locks] {
				memory[1].Bytes[i] = ledger.NoClient & 0xff
			}
		},
	}
}

// die ends the process of the server. If that has a copy, the copy takes its place.
func (w *fenceWorld) die() {
	if h := w.half; h != nil && h.Mirrored() {
		h.FailOver(w.UpTo(simLease))
	} else {
		w.server.Kill()
	}
}

// record notes how to take back what the judge knows of a change of the ledger, should the copy of
// the server not have it.
func (w *fenceWorld) record(undo func()) {
	if w.half != nil {
		w.half.Record(undo)
	}
}

// simDisk stores the ledger.
type simDisk struct {
	w *fenceWorld
	p *simenv.Process
}

func (d simDisk) Save(b []byte) error {
	w := d.w
	full := func() bool { return w.OneIn(40) }
	forgets := func() bool { return w.wrong == forgetful && w.disk.Stored != nil && w.Now() >= simLease }
	return w.disk.Save(w.Stage, d.p, b, full, forgets)
}

// slowDoor is an Admission after which some time goes by before there is a connection.
type slowDoor struct {
	admission
	w *fenceWorld
	p *simenv.Process
}

func (s slowDoor) Admit(t verbs.Token) (verbs.Peer, error) {
	peer, err := s.admission.Admit(t)
	if s.w.OneIn(4) {
		s.p.Sleep(s.w.UpTo(200 * time.Microsecond))
	}
	return peer, err
}

// moody is a provider that takes its time, and at times cannot report whether clients are quiet, as
// one whose clients map the memory.
type moody struct {
	*sim.Server
	w *fenceWorld
	p *simenv.Process
}

// CompareSwap implements verbs.LocalAtomics.
func (m *moody) CompareSwap(region verbs.RegionID, remote, compare, swap uint64) (old uint64, err error) {
	if m.w.OneIn(8) {
		m.p.Sleep(m.w.UpTo(500 * time.Microsecond))
	}
	return m.Server.CompareSwap(region, remote, compare, swap)
}

func (m *moody) Fence(match func(verbs.Peer) bool, limit time.Duration) error {
	if m.w.OneIn(2) {
		m.p.Sleep(m.w.UpTo(200 * time.Microsecond))
	}
	switch {
	case m.w.OneIn(4):
		m.p.Sleep(min(limit, m.w.UpTo(simLease)))
		return fmt.Errorf("%w: a bad mood", verbs.ErrTimeout)
	case m.w.wrong == hastyFence:
		m.w.cutOff(match)
		late := m.w.UpTo(100 * time.Microsecond)
		m.p.Go("cut later", func() {
			m.p.Sleep(late)
			m.Disconnect(match)
		})
		return nil
	}
	err := m.Server.Fence(match, limit)
	if err == nil {
		m.w.cutOff(match)
	}
	return err
}

// call makes a control call from a process.
func (w *fenceWorld) call(p *simenv.Process, limit time.Duration, f func(c *Core) error) error {
	err := errors.New("the server is starting")
	if e := w.fabric.Call(p, "memory", limit, func() {
		if c := w.core; c != nil {
			err = f(c)
		}
	}); e != nil {
		return e
	}
	return err
}

// judge hears what the server says.
type judge struct{ w *fenceWorld }

func (judge) Enabled(context.Context, slog.Level) bool { return true }
func (j judge) WithAttrs([]slog.Attr) slog.Handler     { return j }
func (j judge) WithGroup(string) slog.Handler          { return j }

func (j judge) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		switch ids, _ := a.Value.Any().([]uint32); {
		case r.Message == "fenced clients" && a.Key == "clients":
			j.w.quiet(ids)
		case r.Message == "fencing a client that did not renew its lease" && a.Key == "client":
			id := a.Value.Uint64()
			j.w.record(func() { j.w.expired[id] = false })
			j.w.expired[id] = true
		}
		return true
	})
	return nil
}

// quiet is told that nothing of these clients takes effect any more.
func (w *fenceWorld) quiet(ids []uint32) {
	for _, id := range ids {
		if int(id) < simClients && w.ended[id] == nil {
			w.record(func() { w.ended[id] = nil })
			w.ended[id] = w.remains(id)
		}
	}
	w.look()
}

func (w *fenceWorld) remains(id uint32) *remains {
	r := &remains{count: binary.NativeEndian.Uint64(w.memory[1].Bytes[countersFrom+8*int(id):])}
	copy(r.own[:], w.memory[0].Bytes[ownBytes*int(id):])
	return r
}

// look checks that nothing of those who are said to be quiet took effect since, and that no lock
// names them.
func (w *fenceWorld) look() {
	for id, before := range w.ended {
		if before == nil {
			continue
		}
		if now := w.remains(uint32(id)); *now != *before {
			w.Report("client %d changed memory after it was fenced: %x", id, now)
		}
	}
	for at := range simLocks {
		if holder := binary.NativeEndian.Uint16(w.memory[1].Bytes[2*at:]); int(holder) < simClients && w.ended[holder] != nil {
			w.Report("lock %d names client %d, which is fenced", at, holder)
		}
	}
}

// answered is told that a client gives an answer.
func (w *fenceWorld) answered(id uint32) {
	w.answers++
	switch {
	case w.taken[id]:
		w.Report("client %d answers, although it was fenced and its lease waited out", id)
	case w.expired[id]:
		w.Report("client %d answers after its lease expired", id)
	case !w.explicit[id] && w.core != nil && errors.Is(w.core.Accounts.ledger.Live(simIndex, id), ledger.ErrFenced):
		w.Report("client %d answers, although the server is just ending its lease", id)
	}
}
