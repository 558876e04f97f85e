package poolsim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// The nodes of the toy that shows presence words. Each session of each client has a cell of its own
// in every node, and counts it up without a lock. Others move nodes to new places meanwhile, or
// rewrite them where they are.
//
//	word 0    not 0: whoever adopts a dead client's chunk takes nodes that begin so for unused
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
	waitFirst   bool // the node is shut when those who are there have left
	readFirst   bool // a session reads the node before it says that it is there
	leaveFirst  bool // a cell is WRITTEN when its session has left
	noWait      bool // who moves a node waits for nobody
	opensWithin bool // the image that a node is rewritten with is open
	trusts      bool // who finds a node shut, by a holder that died, waits for nobody

	flaws sim.Flaws // of memory servers that have copies
}

// cellWorld is a run: clients count cells of nodes and move nodes, while some of them die.
type cellWorld struct {
	w      *simenv.World
	c      *poolsim.Cluster
	faults presenceFaults
	nodes  []pool.Addr // where each was first
	other  pool.Addr   // a node whose lock word is of no strip
	// by node and cell: how often it was counted at least, and at most
	counted, most [][cellClients * cellSessions]uint64
	changed       int // moves and rewrites
}

func (cw *cellWorld) fail(format string, args ...any) { cw.w.Fail(fmt.Errorf(format, args...)) }

func (cw *cellWorld) build(t *testing.T, cl *pool.Pool, n int) {
	_, err := cl.DeclareStrip(cellNode)
	must(t, err)
	allocate := func(size int) pool.Addr {
		node, err := cl.Allocate(size, pool.Nil)
		must(t, err)
		binary.LittleEndian.PutUint64(cw.c.Memory(node.Server(), verbs.RegionData)[node.Offset():], 1)
		return node
	}
	for range n {
		cw.nodes = append(cw.nodes, allocate(cellNode))
	}
	cw.other = allocate(wordNode)
	cw.counted, cw.most = make([][cellClients * cellSessions]uint64, n), make([][cellClients * cellSessions]uint64, n)
}

// celler is a session that counts its cell, and moves nodes.
type celler struct {
	cw         *cellWorld
	s          *pool.Session
	strips     *pool.Strips
	cell       int
	ends       bool        // it may end in the middle of something
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

// judge checks the cells of node i, which was READ when they had been counted to least. What was
// found was answered, so nobody finds less from now on.
func (k *celler) judge(i int, least *[cellClients * cellSessions]uint64) {
	for cell, n := range least {
		if got := k.count(cell); got < n || got > k.cw.most[i][cell] {
			k.cw.fail("cell %d of node %d is %d, it was counted %d to %d times", cell, i, got, n, k.cw.most[i][cell])
		}
		k.cw.counted[i][cell] = max(k.cw.counted[i][cell], k.count(cell))
	}
}

var errEnds = errors.New("the session ends where it is")

// lingers stands still for a while, or tells the session to end: then its client is given up.
func (k *celler) lingers() error {
	e := k.s.Pool().Env()
	switch e.Uint64() % 64 {
	case 0:
		if k.ends {
			return errEnds
		}
	case 1, 2, 3, 4, 5, 6, 7, 8:
		e.Sleep(time.Duration(e.Uint64() % uint64(lease/2)))
	}
	return nil
}

// add counts the session's cell of node i.
func (k *celler) add(i int) error {
	s, f := k.s, k.cw.faults
	for n := 0; ; n++ {
		at, least := k.at[i], k.cw.counted[i]
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
		if k.gate() <= gateShut {
			k.judge(i, &least)
		}
		if err := k.lingers(); err != nil {
			return err
		}
		open := k.gate() == 0
		next := k.count(k.cell) + 1
		if open {
			if next <= k.cw.counted[i][k.cell] || next > k.cw.most[i][k.cell]+1 {
				k.cw.fail("cell %d of node %d is %d for its own session", k.cell, i, next-1)
			}
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

// gateTo queues what the gate of the node at at says from now on.
func (k *celler) gateTo(at pool.Addr, to uint64) {
	binary.LittleEndian.PutUint64(k.word, to)
	k.s.Write(pool.Shared, at+gateAt, k.word)
}

// alone locks node i, waits until nobody else is in it, and READs it. ok is false if it has moved,
// and nothing is locked then.
func (k *celler) alone(i int) (ok bool, err error) {
	if err := k.read(i); err != nil {
		return false, err
	}
	s, f, at := k.s, k.cw.faults, k.at[i]
	word, err := k.strips.WordOf(at)
	if err != nil {
		return false, err
	}
	if _, err := s.Acquire(pool.Word{At: word, Node: at, InStrip: true}, pool.Span{At: at, Local: k.node}); err != nil {
		return false, err
	}
	if k.gate() > gateShut {
		return false, s.PostRelease(0, 0)
	}
	if f.waitFirst {
		err = s.AwaitAbsent(at)
	}
	found := k.gate()
	if err == nil {
		k.gateTo(at, gateShut)
		if k.s.Pool().Env().Uint64()%4 == 0 {
			if err := errors.Join(s.Post(), k.lingers()); err != nil {
				return false, err
			}
		}
		if f.waitFirst || f.noWait || f.trusts && found == gateShut {
			err = s.Post()
		} else {
			err = s.AwaitAbsent(at)
		}
	}
	if err != nil {
		return false, k.open(at, err)
	}
	least := k.cw.counted[i]
	s.Read(at, k.node)
	if err := s.Post(); err != nil {
		return false, err
	}
	k.judge(i, &least)
	return true, nil
}

// open opens a node that stays as it was, since err ended what was about to be done.
func (k *celler) open(at pool.Addr, err error) error {
	if k.s.Err() == nil {
		k.gateTo(at, 0)
		err = errors.Join(err, k.s.PostRelease(0, 0))
	}
	return err
}

// move moves node i to another place.
func (k *celler) move(i int) error {
	s := k.s
	to, err := s.Allocate(cellNode, pool.Nil)
	if err != nil {
		return err
	}
	if ok, err := k.alone(i); !ok || err != nil {
		return err
	}
	clear(k.node[gateAt:cellsAt])
	s.Write(pool.Sole, to, k.node)
	if err := s.Post(); err != nil {
		return err
	}
	k.gateTo(k.at[i], uint64(to))
	k.cw.changed++
	return s.PostRelease(0, 0)
}

// rewrite changes node i where it is. Its image is shut: the WRITE that opens it comes when nothing
// is owed any more. Else who repairs the rewrite takes counts back.
func (k *celler) rewrite(i int) error {
	if ok, err := k.alone(i); !ok || err != nil {
		return err
	}
	s, at := k.s, k.at[i]
	if err := s.ReserveRewrite(at, cellNode); err != nil {
		return k.open(at, err)
	}
	binary.LittleEndian.PutUint64(k.node, binary.LittleEndian.Uint64(k.node)+1)
	if k.cw.faults.opensWithin {
		clear(k.node[gateAt:cellsAt])
	}
	s.Rewrite(at, k.node)
	if !k.cw.faults.opensWithin {
		k.gateTo(at, 0)
	}
	k.cw.changed++
	return s.PostRelease(0, 0)
}

// name acquires a lock word that is of no strip, so that the session's slot names it.
func (k *celler) name() error {
	_, err := k.s.Acquire(pool.Word{At: k.cw.other + wordImage, Node: k.cw.other})
	if err == nil {
		err = k.s.PostRelease(0, 0)
	}
	return err
}

// works does what a session of a client does.
func (k *celler) works(rounds int) error {
	env := k.s.Pool().Env()
	for n := range rounds {
		i := int(env.Uint64() % uint64(len(k.at)))
		k.s.Begin()
		var err error
		switch env.Uint64() % 8 {
		case 0:
			err = k.move(i)
		case 1:
			err = k.rewrite(i)
		case 2:
			err = k.read(i)
		case 3:
			err = k.name()
		default:
			err = k.add(i)
		}
		k.s.End()
		if env.Uint64()%8 == 0 {
			env.Sleep(time.Millisecond) // its slot is given back where renewals are fast
		}
		if err != nil && (k.s.Err() != nil || !errors.Is(err, pool.ErrTimeout)) {
			return fmt.Errorf("round %d: %w", n, err)
		}
	}
	return nil
}
