package poolsim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// The nodes of the toy that shows presence words. Each session of each client has a cell of its own
// in every node, and counts it up without a lock. Others move nodes to new places meanwhile.
//
//	word 0    1: whoever adopts a dead client's chunk takes nodes that begin with zeros for unused
//	word 1    the gate: 0 = open, 1 = shut, else where the node has moved to
//	word 2-   the cells
const (
	cellClients  = 3
	cellSessions = 3
	cellNode     = 8 * (2 + cellClients*cellSessions)
	gateAt       = 8
	cellsAt      = 16
	gateShut     = 1
)

// presenceFaults are faults that are put in on purpose.
type presenceFaults struct {
	waitFirst  bool // the node is shut when those who are there have left
	readFirst  bool // a session reads the node before it says that it is there
	leaveFirst bool // a cell is WRITTEN when its session has left
	noWait     bool // who moves a node waits for nobody
}

// cellWorld is a run: clients count cells of nodes and move nodes, while some of them die.
type cellWorld struct {
	w      *simenv.World
	c      *poolsim.Cluster
	faults presenceFaults
	nodes  []pool.Addr // where each was first
	// by node and cell: how often it was counted at least, and at most
	counted, most [][cellClients * cellSessions]uint64
	moved         int
}

func (cw *cellWorld) fail(format string, args ...any) { cw.w.Fail(fmt.Errorf(format, args...)) }

func (cw *cellWorld) build(t *testing.T, cl *pool.Pool, n int) {
	_, err := cl.DeclareStrip(cellNode)
	must(t, err)
	for range n {
		node, err := cl.Allocate(cellNode, pool.Nil)
		must(t, err)
		binary.LittleEndian.PutUint64(cw.c.Memory(node.Server(), verbs.RegionData)[node.Offset():], 1)
		cw.nodes = append(cw.nodes, node)
	}
	cw.counted, cw.most = make([][cellClients * cellSessions]uint64, n), make([][cellClients * cellSessions]uint64, n)
}

// celler is a session that counts its cell, and moves nodes.
type celler struct {
	cw         *cellWorld
	s          *pool.Session
	strips     *pool.Strips
	cell       int
	at         []pool.Addr // where it last found each node
	node, word []byte
}

func (cw *cellWorld) open(cl *pool.Pool, cell int) (*celler, error) {
	s, err := cl.NewSession(1024)
	if err != nil {
		return nil, err
	}
	k := &celler{cw: cw, s: s, cell: cell, at: append([]pool.Addr(nil), cw.nodes...)}
	if k.strips, err = cl.DeclareStrip(cellNode); err == nil {
		k.node, err = s.Buffer(cellNode)
	}
	if err == nil {
		k.word, err = s.Buffer(8)
	}
	return k, err
}

func (k *celler) gate() uint64 { return binary.LittleEndian.Uint64(k.node[gateAt:]) }

func (k *celler) count(cell int) uint64 {
	return binary.LittleEndian.Uint64(k.node[cellsAt+8*cell:])
}

// read reads node i where it is, and judges it.
func (k *celler) read(i int) error {
	least := k.cw.counted[i]
	for {
		k.s.Read(k.at[i], k.node)
		if err := k.s.Post(); err != nil {
			return err
		}
		if k.gate() <= gateShut {
			k.judge(i, &least)
			return nil
		}
		k.at[i] = pool.Addr(k.gate())
	}
}

// judge checks the cells of node i, which was READ when they had been counted to least.
func (k *celler) judge(i int, least *[cellClients * cellSessions]uint64) {
	for cell, n := range least {
		if got := k.count(cell); got < n || got > k.cw.most[i][cell] {
			k.cw.fail("cell %d of node %d is %d, it was counted %d to %d times", cell, i, got, n, k.cw.most[i][cell])
		}
	}
}

// add counts the session's cell of node i.
func (k *celler) add(i int) error {
	s, f := k.s, k.cw.faults
	for n := 0; ; n++ {
		at := k.at[i]
		if f.readFirst {
			s.Read(at, k.node)
			if err := s.Post(); err != nil {
				return err
			}
		}
		if err := s.Enter(at); err != nil {
			return err
		}
		if !f.readFirst {
			s.Read(at, k.node)
			if err := s.Post(); err != nil {
				return err
			}
		}
		open := k.gate() == 0
		next := k.cw.counted[i][k.cell] + 1
		if open {
			k.cw.most[i][k.cell] = next
			binary.LittleEndian.PutUint64(k.word, next)
		}
		if open && !f.leaveFirst {
			s.Write(pool.Shared, at+cellsAt+8*pool.Addr(k.cell), k.word)
		}
		if err := s.PostLeave(); err != nil {
			return err
		}
		if open && f.leaveFirst {
			s.Write(pool.Sole, at+cellsAt+8*pool.Addr(k.cell), k.word)
			if err := s.Post(); err != nil {
				return err
			}
		}
		switch {
		case open:
			k.cw.counted[i][k.cell] = next
			return nil
		case k.gate() != gateShut:
			k.at[i] = pool.Addr(k.gate())
		}
		if late := s.Overdue(); late != nil {
			return late
		}
		s.Pool().Env().Yield()
	}
}

// move moves node i to another place.
func (k *celler) move(i int) error {
	if err := k.read(i); err != nil {
		return err
	}
	s, f, at := k.s, k.cw.faults, k.at[i]
	to, err := s.Allocate(cellNode, pool.Nil)
	if err != nil {
		return err
	}
	word, err := k.strips.WordOf(at)
	if err != nil {
		return err
	}
	if _, err := s.Acquire(pool.Word{At: word, Node: at, InStrip: true}, pool.Span{At: at, Local: k.node}); err != nil {
		return err
	}
	if k.gate() > gateShut {
		return s.PostRelease(0, 0)
	}
	gate := func(to uint64) {
		binary.LittleEndian.PutUint64(k.word, to)
		s.Write(pool.Shared, at+gateAt, k.word)
	}
	if f.waitFirst {
		err = s.AwaitAbsent(at)
	}
	if err == nil {
		gate(gateShut)
		if f.waitFirst || f.noWait {
			err = s.Post()
		} else {
			err = s.AwaitAbsent(at)
		}
	}
	if err != nil {
		if s.Err() == nil {
			gate(0)
			err = errors.Join(err, s.PostRelease(0, 0))
		}
		return err
	}
	least := k.cw.counted[i]
	s.Read(at, k.node)
	if err := s.Post(); err != nil {
		return err
	}
	k.judge(i, &least)
	clear(k.node[gateAt:cellsAt])
	s.Write(pool.Sole, to, k.node)
	if err := s.Post(); err != nil {
		return err
	}
	gate(uint64(to))
	k.cw.moved++
	return s.PostRelease(0, 0)
}

// works does what a session of a client does.
func (k *celler) works(rounds int) error {
	env := k.s.Pool().Env()
	for n := range rounds {
		i := int(env.Uint64() % uint64(len(k.at)))
		k.s.Begin()
		var err error
		switch env.Uint64() % 4 {
		case 0:
			err = k.move(i)
		case 1:
			err = k.read(i)
		default:
			err = k.add(i)
		}
		k.s.End()
		if err != nil && (k.s.Err() != nil || !errors.Is(err, pool.ErrTimeout)) {
			return fmt.Errorf("round %d: %w", n, err)
		}
	}
	return k.s.Close()
}

// presenceRun is one run. In every third one no READ brings all presence words of a server.
func presenceRun(t *testing.T, seed uint64, faults presenceFaults) (moved int, err error) {
	t.Helper()
	const rounds = 12
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 4_000_000, Preempt: 6})
	plan := sim.NewPlan(w.Faults(), sim.Menu{
		Kinds: deadly, Processes: []string{"client-1", "client-2", "client-3"}, Parts: 1200, Most: 4, Longest: 3 * lease,
	})
	cw := &cellWorld{w: w, faults: faults}
	cw.c, err = poolsim.New(w, poolsim.Options{
		Servers: 1 + int(seed%2), Locks: 4, Lease: lease, RenewEvery: wordRenewal(seed), Intents: []int{20, 30, 1600}[seed%3], Chunks: 16, ChunkBytes: 64 << 10, Fabric: sim.Options{Plan: plan},
	})
	must(t, err)
	err = w.Run(func(p *simenv.Process) {
		cl, err := cw.c.Open(p)
		must(t, err)
		cw.build(t, cl, 1+int(seed%3))
		must(t, cl.Close()) // a fault may restart its memory server
		g := env.NewWaitGroup(p)
		for n := range cellClients {
			proc, done := w.NewProcess(fmt.Sprintf("client-%d", n+1)), p.NewEvent()
			proc.Go("main", func() {
				defer done.Set()
				cl, err := cw.c.Open(proc)
				if err != nil {
					return // it is met by a fault
				}
				inner := env.NewWaitGroup(proc)
				for i := range cellSessions {
					inner.Go(fmt.Sprint("session ", i), func() {
						k, err := cw.open(cl, n*cellSessions+i)
						if err == nil {
							k.s.SetLimit(4 * lease)
							err = k.works(rounds)
						}
						if err != nil && cl.Alive() == nil && len(plan.Faults) == 0 {
							cw.fail("client %d: %w", n, err)
						}
					})
				}
				inner.Wait(env.Forever)
				_ = cl.Close()
			})
			g.Go("wait", func() { done.Wait(env.Forever) })
		}
		g.Wait(env.Forever)
		p.Sleep(3 * lease) // whatever a dead client has under way; then it is fenced
		cl, err = cw.c.Open(p)
		must(t, err)
		k, err := cw.open(cl, 0)
		must(t, err)
		for i := range cw.nodes {
			// Nobody who died in a node keeps it from being moved.
			k.s.Begin()
			must(t, k.move(i))
			must(t, k.read(i))
			k.s.End()
		}
		must(t, errors.Join(k.s.Close(), cl.Alive(), cl.Close()))
	})
	if err != nil {
		err = fmt.Errorf("seed %d: %w\nplan %v", seed, err, plan)
	}
	return cw.moved, err
}

// TestPresence: no count of a cell is lost, and none comes back, while nodes are moved and clients
// die.
func TestPresence(t *testing.T) {
	moved := 0
	for seed := range uint64(150) {
		n, err := presenceRun(t, seed, presenceFaults{})
		must(t, err)
		moved += n
	}
	if moved < 1000 {
		t.Errorf("%d moves, the seeds are to have many", moved)
	}
}

// TestPresenceFaults: each of these is found.
func TestPresenceFaults(t *testing.T) {
	for name, faults := range map[string]presenceFaults{
		"shut after the wait": {waitFirst: true}, "read before the word": {readFirst: true},
		"write behind the word": {leaveFirst: true}, "nobody is waited for": {noWait: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(150) {
				if _, err := presenceRun(t, seed, faults); err != nil {
					t.Logf("found at seed %d: %.200v", seed, err)
					return
				}
			}
			t.Error("not found")
		})
	}
}

// TestSlotOfOneWhoDied: a client that gets the slot of one that died where it was clears its word,
// so nobody waits for it.
func TestSlotOfOneWhoDied(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Lease: lease, Intents: 1})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		cw := &cellWorld{w: w, c: c}
		cw.build(t, cl, 1)
		node, there := cw.nodes[0], p.NewEvent()
		proc := w.NewProcess("victim")
		proc.Go("main", func() {
			own, err := c.Open(proc)
			must(t, err)
			s, err := own.NewSession(64)
			must(t, err)
			s.Begin()
			must(t, s.Enter(node))
			must(t, s.Post())
			there.Set()
			proc.Sleep(time.Hour)
		})
		there.Wait(env.Forever)
		proc.Kill()
		p.Sleep(3 * lease) // it is fenced
		other, err := cl.Allocate(wordNode, pool.Nil)
		must(t, err)
		binary.LittleEndian.PutUint64(c.Memory(1, verbs.RegionData)[other.Offset():], 1)
		k, err := cw.open(cl, 0)
		must(t, err)
		k.s.SetLimit(lease)
		k.s.Begin()
		_, err = k.s.Acquire(pool.Word{At: other + wordImage, Node: other}) // claims the slot
		must(t, err)
		must(t, k.s.PostRelease(0, 0))
		must(t, k.move(0))
		k.s.End()
		must(t, errors.Join(k.s.Close(), cl.Close()))
	}))
}
