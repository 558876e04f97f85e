package sim_test

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// toyWorld is one memory server and its clients.
type toyWorld struct {
	*simenv.World
	plan    *sim.Plan
	f       *sim.Fabric
	main    *simenv.Process
	server  *sim.Server
	address string
	wrong   error
	stored  uint64 // by the server, besides its memory
}

// Admit lets everybody in: the token says who it is.
func (w *toyWorld) Admit(t verbs.Token) (verbs.Peer, error) {
	return verbs.Peer{Client: uint16(t[0])}, nil
}

func (w *toyWorld) report(format string, args ...any) {
	if w.wrong == nil {
		w.wrong = fmt.Errorf(format, args...)
	}
}

// player is one client.
type player struct {
	*simenv.Process
	w      *toyWorld
	number byte
	device verbs.Device
	arena  *verbs.Arena
	conn   verbs.Conn
	qp     verbs.QP
	word   []byte // of atomics
	buf    []byte
}

func (w *toyWorld) player(p *simenv.Process, n int) *player {
	c := &player{Process: p, w: w, number: byte(n + 1), device: w.f.Device(p)}
	c.arena, _ = c.device.NewArena(4096)
	c.word, _ = c.arena.Alloc(8)
	c.buf, _ = c.arena.Alloc(1024)
	c.connect()
	return c
}

// connect connects anew; the earlier queue pair is quiet then.
func (c *player) connect() {
	var err error
	if c.conn, err = c.device.Connect(verbs.Target{Address: c.w.address, Token: verbs.Token{c.number}}, time.Minute); err == nil {
		c.qp, err = c.conn.NewQP(c.arena)
	}
	if err != nil {
		c.w.report("client %d connects: %v", c.number, err)
	}
}

// together runs each of the functions in a process of its own and waits for those that live.
func (w *toyWorld) together(players ...func(c *player)) {
	g := env.NewWaitGroup(w.main)
	for n, f := range players {
		p := w.NewProcess(clients[n])
		ended := w.main.NewEvent()
		p.AtKill(ended.Set)
		p.Go("main", func() {
			f(w.player(p, n))
			ended.Set()
		})
		g.Go("wait for "+clients[n], func() { ended.Wait(env.Forever) })
	}
	g.Wait(env.Forever)
}

func (c *player) post(list ...verbs.Request) error { return verbs.Post(c.qp, list) }

func (c *player) must(err error) bool {
	if err != nil && !c.Dead() {
		c.w.report("client %d: %v", c.number, err)
	}
	return err == nil
}

func (c *player) read(at uint64, n int) verbs.Request {
	return verbs.Request{Op: verbs.Read, Remote: at, Local: c.buf[:n]}
}

// fill makes a WRITE of n bytes of v.
func (c *player) fill(at uint64, n int, v uint64) verbs.Request {
	for i := 0; i < n; i += 8 {
		binary.NativeEndian.PutUint64(c.buf[512+i:], v)
	}
	return verbs.Request{Op: verbs.Write, Remote: at, Local: c.buf[512 : 512+n]}
}

func (c *player) swap(from, to uint64) verbs.Request {
	return verbs.Request{Op: verbs.CompareSwap, Region: verbs.RegionLocks, Local: c.word, Compare: from, Swap: to}
}

func (c *player) at(i int) uint64 { return binary.NativeEndian.Uint64(c.buf[i:]) }
func (c *player) old() uint64     { return binary.NativeEndian.Uint64(c.word) }
