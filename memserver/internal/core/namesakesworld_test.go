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
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// idWorld is an index on some memory servers, each made of the core of this package, with so few
// ids that they are given again and again. Clients come, hold locks, chunks and keys, and die;
// servers die, stand still and come back; calls of dead clients come late.
type idWorld struct {
	*simtest.Stage
	fabric  *sim.Fabric
	wrong   idMistake
	main    *simenv.Process
	servers []*idServer // the home first
	over    bool

	lives, again, late, missing, refused int

	latest   map[uint16]uint32 // which client got an id last
	living   map[uint32]bool   // clients whose process runs and did not end them
	dead     []uint32          // clients whose process is gone, or gave them up
	doomed   map[uint32]bool   // somebody asked for their fence, or their lease was over
	suspects map[uint32]suspicion
}

// suspicion says which server had a client fenced at which time, when it was not known why.
type suspicion struct {
	server *idServer // nil if the client was told so
	at     time.Duration
}

// idMistake is a fault put in on purpose.
type idMistake string

const (
	noGenerations idMistake = "calls name a client by its id"
	homeFirst     idMistake = "the home server forgets a client before the others"
	idUnmirrored  idMistake = "a server answers before its copy has the ledger"
	downForgets   idMistake = "a server that cannot be reached is taken to have forgotten"
)

const (
	idClients = 6 // ids
	idLocks   = 16
)

func idMemory() []verbs.Memory {
	return []verbs.Memory{
		{ID: verbs.RegionData, Bytes: make([]byte, 4096)},
		{ID: verbs.RegionLocks, Bytes: make([]byte, 4096)},
	}
}

// idServer is a memory server over the lives of its process.
type idServer struct {
	w       *idWorld
	n       int
	address string
	memory  []verbs.Memory
	disk    simtest.Disk
	core    *Core // nil while none serves
	half    *sim.Server
	process *simenv.Process
}

func (s *idServer) serve() {
	p := s.w.NewDrifting(s.address)
	s.process = p
	p.AtKill(func() {
		s.core, s.half, s.disk.Record = nil, nil, nil
		if l := s.ledgerOf(); l != nil { // it may have said nothing of a lease that was over
			for number := range s.w.living { //env:real all of them are looked at
				s.w.doomed[number] = s.w.doomed[number] || l.Fenced(simIndex, number)
			}
			s.w.undone(s, l)
		}
		s.w.After(s.w.UpTo(2*simLease), nil, s.serve)
	})
	p.Go("serve", func() {
		for {
			err := s.open(p)
			if err == nil {
				break
			}
			if !errors.Is(err, ErrStore) {
				s.w.Report("server %d does not start: %v", s.n, err)
				return
			}
		}
		s.core.Run()
	})
}

// die ends the process of the server. If that has a copy, the copy takes its place.
func (s *idServer) die() {
	if h := s.half; h != nil && h.Mirrored() {
		h.FailOver(s.w.UpTo(simLease))
	} else {
		s.process.Kill()
	}
}

// Save stores the ledger.
func (s *idServer) Save(b []byte) error {
	return s.disk.Save(s.w.Stage, s.process, b, func() bool { return s.w.OneIn(60) }, nil)
}

func (s *idServer) open(p *simenv.Process) (err error) {
	w := s.w
	var a *Accounts
	if s.disk.Stored == nil {
		a, err = NewAccounts(p, s, ledger.Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: simChunks, Slots: 1, Locks: idLocks, Clients: idClients})
	} else {
		a, err = FoundAccounts(p, s, append([]byte(nil), s.disk.Stored...))
	}
	if err == nil {
		err = a.Change(Grow, func(l *ledger.Ledger) error { _, err := l.Admit(simIndex, simChunks, idLocks); return err })
	}
	if err != nil {
		return err
	}
	random := func() (t verbs.Token) {
		binary.NativeEndian.PutUint64(t[:], p.Uint64())
		return t
	}
	c := New(p, a, random, s.memory[1].Bytes, simLease, slog.New(idHandler{w, s}))
	half, err := w.fabric.NewServerOf(p, s.address, verbs.ServerOptions{Memory: s.memory, Incarnation: 1, Admission: admission{c.tokens, "sim", nil}})
	if err != nil {
		return err
	}
	s.half = half
	if sim.Mirrors(w.Seed()) {
		s.disk.Record = half.Record
		half.Keep(copyOf(s.memory, idLocks))
	}
	c.Offer(Provider{"sim", s.address, &idProvider{half, w, p}})
	if err := c.Start(); err != nil {
		half.Close()
		return err
	}
	s.core = c
	return nil
}

// idProvider is slow at times, and at times unable to report whether clients are quiet.
type idProvider struct {
	*sim.Server
	w *idWorld
	p *simenv.Process
}

func (m *idProvider) Fence(match func(verbs.Peer) bool, limit time.Duration) error {
	m.p.Sleep(m.w.UpTo(300 * time.Microsecond))
	switch m.w.Random.IntN(8) {
	case 0:
		m.p.Sleep(m.w.UpTo(2 * simLease))
	case 1, 2:
		m.p.Sleep(min(limit, m.w.UpTo(simLease/2)))
		return fmt.Errorf("%w: a bad mood", verbs.ErrTimeout)
	}
	return m.Server.Fence(match, limit)
}

// idHandler hears of leases that are over.
type idHandler struct {
	w *idWorld
	s *idServer
}

func (idHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h idHandler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h idHandler) WithGroup(string) slog.Handler          { return h }

func (h idHandler) Handle(_ context.Context, r slog.Record) error {
	switch r.Message {
	case "clients whose lease is over cannot be fenced yet": // the ledger is what it was
		h.w.undone(h.s, h.s.ledgerOf())
	case "fencing a client that did not renew its lease":
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "client" {
				h.w.doomed[uint32(a.Value.Uint64())] = true
			}
			return true
		})
	}
	return nil
}

// call makes a control call from a process.
func (w *idWorld) call(p *simenv.Process, s *idServer, f func(c *Core) error) error {
	err := errors.New("the server is starting")
	if e := w.fabric.Call(p, s.address, simLease/2, func() {
		if c := s.core; c != nil {
			err = f(c)
		}
	}); e != nil {
		return e
	}
	return err
}

// allocate takes a chunk, if there is one of the dead.
func allocate(c *Core, client uint32) (chunk uint32, err error) {
	chunk, err = c.Adopt(simIndex, client, 64)
	if errors.Is(err, ledger.ErrExhausted) {
		err = c.Accounts.Change(Grow, func(l *ledger.Ledger) (err error) { chunk, err = l.Allocate(simIndex, client, 64); return err })
	}
	return chunk, err
}

// free gives a chunk back.
func free(c *Core, client, chunk uint32) error {
	err := c.Accounts.Change(Grow, func(l *ledger.Ledger) error { return l.Free(simIndex, client, chunk) })
	c.Accounts.Note(func(l *ledger.Ledger) {
		for n, ok := l.DirtyChunk(); ok; n, ok = l.DirtyChunk() {
			l.CleanedChunk(n)
		}
	})
	return err
}

// ledgerOf is what a server knows, or had stored.
func (s *idServer) ledgerOf() *ledger.Ledger {
	if s.core != nil {
		return s.core.Accounts.ledger
	}
	l, err := ledger.Decode(s.disk.Stored)
	if err != nil {
		return nil // it never served
	}
	return l
}

// born is told that the home server is about to answer a client its number.
func (w *idWorld) born(number uint32) {
	w.lives++
	id := uint16(number)
	before, again := w.latest[id]
	if again {
		w.again++
	}
	if again && number <= before {
		w.Report("client %d comes after client %d", number, before)
	}
	if half := w.servers[0].half; half != nil {
		half.Record(func() { w.unborn(number, before) })
	}
	w.latest[id], w.living[number] = number, true
	for _, s := range w.servers {
		l := s.ledgerOf()
		if l == nil {
			continue
		}
		if now, err := l.NumberOf(simIndex, id); err == nil && now != number {
			w.Report("client %d gets the id of client %d, which server %d did not forget", number, now, s.n)
		}
		if chunk := chunkOf(l, number); chunk > 0 {
			w.Report("client %d gets an id that has chunk %d of server %d", number, chunk, s.n)
		}
		if holder := s.holds(id); holder >= 0 {
			w.Report("client %d gets an id that lock %d of server %d holds", number, holder, s.n)
		}
		if s.core == nil {
			continue
		}
		s.core.Provider("sim").Server.Disconnect(func(p verbs.Peer) bool {
			if p.Client == id {
				w.Report("client %d gets an id that has a connection to server %d", number, s.n)
			}
			return false
		})
	}
}

// unborn takes born back: nobody has heard of the number.
func (w *idWorld) unborn(number, before uint32) {
	delete(w.living, number)
	if id := uint16(number); before == 0 {
		delete(w.latest, id)
	} else {
		w.latest[id] = before
	}
}

// chunkOf is a chunk that a new client could free, 0 if there is none.
func chunkOf(l *ledger.Ledger, client uint32) uint32 {
	copied := must(ledger.Decode(l.Append(nil)))
	_ = copied.Meet(simIndex, client) // or the home knows it already
	for chunk := range uint32(simChunks) {
		if copied.Free(simIndex, client, chunk+1) == nil {
			return chunk + 1
		}
	}
	return 0
}

// holds is a lock that holds an id, or -1.
func (s *idServer) holds(id uint16) int {
	for at := range idLocks {
		if binary.NativeEndian.Uint16(s.memory[1].Bytes[2*at:]) == id {
			return at
		}
	}
	return -1
}

// look checks that no client is refused that lives and of which nobody said otherwise, and that
// none is taken for dead.
func (w *idWorld) look() {
	for _, s := range w.servers {
		if s.core == nil {
			continue
		}
		l := s.core.Accounts.ledger
		for number := range w.living { //env:real any of them is a fault
			if l.Fenced(simIndex, number) || l.Complete(simIndex, number) {
				w.suspect(s, number)
			}
		}
		for peer := range s.core.Accounts.leases.dead { //env:real any of them is a fault
			if now, err := l.NumberOf(simIndex, peer.Client); err == nil && w.living[now] && !w.doomed[now] {
				w.Report("client %d lives, and server %d takes it for dead", now, s.n)
			}
		}
	}
}

// suspect is told that a server has a client fenced, or (nil) that the client heard so. The server
// says a little later that a lease was over, or when it goes on, if it stands still.
func (w *idWorld) suspect(s *idServer, number uint32) {
	if before, known := w.suspects[number]; known && (s != nil || before.server == nil) || w.doomed[number] {
		return
	}
	seen := suspicion{s, w.World.Now()}
	w.suspects[number] = seen
	w.After(2*simLease, nil, func() {
		if w.suspects[number] == seen && !w.doomed[number] {
			w.Report("client %d lives, and is fenced, and nobody asked for it", number)
		}
	})
}

// undone is told that a server takes a change back that it could not store. Nobody has heard of it
// but the judge, which looks at ledgers that are being stored.
func (w *idWorld) undone(s *idServer, l *ledger.Ledger) {
	for number, seen := range w.suspects { //env:real all of them are looked at
		if seen.server == s && !l.Fenced(simIndex, number) {
			delete(w.suspects, number)
		}
	}
}

// epochsOf says what a client knows of epochs: nothing.
func epochsOf(now Joined) pool.Epochs {
	return pool.Epochs{Passed: now.Epoch, UncachedPassed: now.Uncached}
}
