package poolsim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// joining is a run in which a server joins beside clients at work, one of which is fenced meanwhile
// at all servers. Two operators let the server join at the same time, and die between any two
// steps. In half of the seeds memory servers have copies, and fail over; then clients open anew.
//
// The clients replace nodes that the words of a directory name. So whoever follows a word finds a
// node of that word, or its memory was used again too early; and meets no server that it does not
// reach. Nothing of the client that was fenced changes anything when its fencer is through.
type joining struct {
	seed  uint64
	wrong joinMistake

	random  *rand.Rand
	c       *poolsim.Cluster
	dir     pool.Addr
	over    bool
	victim  uint32
	fencing bool // the victim is being fenced
	fenced  bool // it is, at all servers
	stamped int  // nodes that say that the victim changed them, when it was fenced
	onNew   int  // nodes that were written on the server that joined
	late    int  // nodes there that the victim changed
	died    int  // memory servers that failed over
}

// joinMistake is a step that is left out, or in the wrong place.
type joinMistake string

const (
	noWait       joinMistake = "the quota is raised before all clients reach the server"
	noFenceThere joinMistake = "clients that are fenced at the home are not fenced at the new server"
	oldList      joinMistake = "a fencer reads the list before the client is fenced at the home"
)

const (
	joinLease = time.Second
	joinWords = 8
	joinNode  = 4096
	joinLimit = 50 * time.Millisecond
)

func (x *joining) run() error {
	x.random = rand.New(rand.NewPCG(x.seed, 14))
	w := simenv.New(simenv.Options{Seed: x.seed, Preempt: 6, MaxEvents: 3_000_000})
	plan := &sim.Plan{Capabilities: verbs.Capabilities{WholeWrite: 8}, Reorder: true, Delay: 20 * time.Microsecond, Gap: 2 * time.Microsecond, Stall: 60, StallFor: 20 * time.Millisecond}
	for range 4 {
		if sim.Mirrors(x.seed) {
			plan.Faults = append(plan.Faults, sim.Fault{
				Kind: sim.FailOver, Process: fmt.Sprint("client-", 1+x.random.IntN(2)), Part: x.random.IntN(8000), For: time.Duration(x.random.Int64N(int64(joinLease))),
			})
		}
	}
	c, err := poolsim.New(w, poolsim.Options{Locks: 16, Chunks: 3, ChunkBytes: 64 << 10, Lease: joinLease, RenewEvery: 10 * time.Millisecond, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		return err
	}
	x.c = c
	return w.Run(func(p *simenv.Process) {
		if err := x.in(w, p); err != nil {
			w.Fail(err)
		}
	})
}

func (x *joining) in(w *simenv.World, p *simenv.Process) error {
	first, err := x.c.Open(p)
	if err != nil {
		return err
	}
	for x.dir.Server() != 2 { // where the victim is fenced last
		if x.dir, err = first.AllocateBlock(joinNode, pool.Nil); err != nil {
			return err
		}
	}
	g := env.NewWaitGroup(p)
	var failed error
	start := func(name string, f func(p *simenv.Process) error) {
		proc, done := w.NewProcess(name), p.NewEvent()
		proc.Go("main", func() {
			defer done.Set()
			if err := f(proc); err != nil && failed == nil {
				failed = fmt.Errorf("%s: %w", name, err)
				x.over = true
			}
		})
		g.Go("wait for "+name, func() { done.Wait(env.Forever) })
	}
	for n := range 3 {
		start(fmt.Sprint("client-", n), func(p *simenv.Process) error { return x.client(p, n) })
	}
	for x.victim == 0 {
		p.Sleep(time.Millisecond)
	}
	p.Sleep(time.Duration(x.random.IntN(20)) * time.Millisecond)
	added, err := x.c.Start()
	if err != nil {
		return err
	}
	for n := range 2 {
		start(fmt.Sprint("operator-", n), func(p *simenv.Process) error { return x.operator(p, added) })
	}
	start("fencer", x.fencer)
	g.Wait(env.Forever)
	if failed != nil {
		return failed
	}
	x.late = x.countStamps(added)
	x.died, _, _ = x.c.Fabric.FailOvers()
	if n := x.countStamps(1, 2, added); n > x.stamped {
		return fmt.Errorf("the fenced client changed %d nodes, and %d when it was fenced", n, x.stamped)
	}
	return x.noLock(1, 2, added)
}

// wrongNode is what a client says that follows a word to another one's node.
const wrongNode = "it was used again too early"

// stamp is what the victim leaves in nodes that it changes.
const stamp = 0x7fb5_11ce_d00d_0001

func (x *joining) countStamps(servers ...uint16) (n int) {
	for _, id := range servers {
		data := x.c.Memory(id, verbs.RegionData)
		for at := 0; at+64 <= len(data); at += 64 {
			if binary.LittleEndian.Uint64(data[at+16:]) == stamp {
				n++
			}
		}
	}
	return n
}

// noLock reports whether no lock names the fenced client, by an error.
func (x *joining) noLock(servers ...uint16) error {
	for _, id := range servers {
		locks := x.c.Memory(id, verbs.RegionLocks)
		for i := 0; i < len(locks); i += 2 {
			if binary.LittleEndian.Uint16(locks[i:]) == uint16(x.victim) {
				return fmt.Errorf("lock %d of memory server %d names client %d, which was fenced at all servers", i/2, id, x.victim)
			}
		}
	}
	return nil
}

// renewEvery is how often the clients renew their leases. The first one is the victim: it learns
// last of everything.
var renewEvery = []time.Duration{800 * time.Millisecond, 50 * time.Millisecond, 5 * time.Millisecond}

// client is a client until the run is over. It opens anew where memory servers failed over, but for
// the victim.
func (x *joining) client(p *simenv.Process, n int) error {
	for {
		err := x.work(p, n)
		if died, _, _ := x.c.Fabric.FailOvers(); err == nil || died == 0 || strings.Contains(err.Error(), wrongNode) {
			return err
		}
		if x.over || n == 0 && x.victim != 0 {
			return nil
		}
		p.Sleep(joinLease / 100)
	}
}

// work replaces nodes until the run is over.
func (x *joining) work(p *simenv.Process, n int) error {
	victim := n == 0
	cl, err := pool.Open(pool.Config{Env: p, Control: x.c.Control(p), Devices: []verbs.Device{x.c.Fabric.Device(p)}, Identity: poolsim.Identity, RenewEvery: renewEvery[n]})
	if err != nil {
		return err
	}
	if victim {
		x.victim = cl.Client()
	}
	s, err := cl.NewSession(joinNode + 4096)
	if err != nil {
		return err
	}
	word, err := s.Buffer(8)
	if err != nil {
		return err
	}
	node, err := s.Buffer(64)
	if err != nil {
		return err
	}
	for !x.over && err == nil {
		s.Begin()
		err = x.replace(cl, s, victim, word, node)
		s.End()
		p.Sleep(time.Duration(x.random.IntN(3000)) * time.Microsecond)
	}
	if victim && x.fencing || errors.Is(err, pool.ErrTimeout) {
		return nil
	}
	return err
}

func (x *joining) replace(cl *pool.Pool, s *pool.Session, victim bool, word, node []byte) error {
	n := x.random.IntN(joinWords)
	at := x.dir + pool.Addr(64+8*n)
	s.Read(at, word)
	if err := s.Post(); err != nil {
		return err
	}
	old := pool.Addr(binary.LittleEndian.Uint64(word))
	if old != pool.Nil {
		if err := s.Lock(old, node); err != nil {
			return err
		}
		if self, of := binary.LittleEndian.Uint64(node), binary.LittleEndian.Uint64(node[8:]); self != uint64(old) || of != uint64(n+1) {
			return fmt.Errorf("word %d names node %v, which is %v of word %d: "+wrongNode, n, old, pool.Addr(self), int(of)-1)
		}
		if victim {
			binary.LittleEndian.PutUint64(node[16:], stamp)
		}
		s.Write(pool.Shared, old, node)
		if err := s.PostUnlock(); err != nil {
			return err
		}
	}
	fresh, err := s.AllocateBlock(joinNode, pool.Nil)
	if errors.Is(err, pool.ErrPoolFull) {
		return nil
	}
	if err != nil {
		return err
	}
	clear(node)
	binary.LittleEndian.PutUint64(node, uint64(fresh))
	binary.LittleEndian.PutUint64(node[8:], uint64(n+1))
	s.Write(pool.Sole, fresh, node)
	if err := s.Post(); err != nil {
		return err
	}
	if fresh.Server() > 2 {
		x.onNew++
	}
	found, err := s.SwapWord(at, uint64(old), uint64(fresh))
	switch {
	case err != nil:
		return err
	case found != uint64(old):
		cl.Free(fresh, joinNode) // nobody saw it
	case old != pool.Nil:
		cl.Retire(old, joinNode)
	}
	return nil
}

// operator lets the server join. It dies between steps now and then, and the next one begins anew.
func (x *joining) operator(p *simenv.Process, id uint16) error {
	behind := func() error {
		if x.wrong == noWait {
			return nil
		}
		n, err := x.c.Behind(p, joinLimit)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d clients do not reach server %d", n, id)
		}
		return err
	}
	steps := []func() error{
		func() error { return x.c.Note(p, id, pool.Joining, joinLimit) },
		behind,
		func() error { return x.c.Note(p, id, pool.Member, joinLimit) },
		behind,
		func() error { return x.c.FenceAtNew(p, id, joinLimit) },
		func() error { return x.c.Grant(p, id, joinLimit) },
	}
	for try := 0; try < 2000; try++ {
		done := true
		for _, step := range steps {
			if err := step(); err != nil || x.random.IntN(12) == 0 {
				done = false
				break
			}
			p.Sleep(time.Duration(x.random.IntN(1000)) * time.Microsecond)
		}
		if done {
			p.Sleep(joinLease / 2)
			x.over = x.over || x.fenced
			return nil
		}
		p.Sleep(time.Duration(x.random.IntN(2000)) * time.Microsecond)
	}
	return errors.New("the server never joined")
}

// fencer fences the victim at all servers.
func (x *joining) fencer(p *simenv.Process) error {
	cl, err := x.openAgain(p)
	if err != nil {
		return err
	}
	p.Sleep(time.Duration(x.random.IntN(1500)) * time.Millisecond)
	k := x.c.Control(p)
	fence := func(id uint16) {
		for k.Fence(id, []uint32{x.victim}, joinLimit) != nil {
			p.Sleep(time.Millisecond)
		}
		p.Sleep(time.Duration(x.random.IntN(100)*x.random.IntN(10_000)) * time.Microsecond)
	}
	x.fencing = true
	fence(1)
	others, err := cl.Others()
	for died, _, _ := x.c.Fabric.FailOvers(); err != nil && died > 0; {
		if cl, err = x.openAgain(p); err == nil {
			others, err = cl.Others()
		}
	}
	if err != nil {
		return err
	}
	for _, id := range others {
		fence(id)
	}
	x.stamped, x.fenced = x.countStamps(1, 2, 3), true
	for n := 0; n < 100 && !x.over; n++ {
		if err := x.noLock(1, 2, 3); err != nil {
			return err
		}
		p.Sleep(joinLease / 100)
	}
	x.over = true
	return nil
}

// openAgain opens a client, again and again where memory servers failed over.
func (x *joining) openAgain(p *simenv.Process) (*pool.Pool, error) {
	for {
		cl, err := x.c.Open(p)
		if died, _, _ := x.c.Fabric.FailOvers(); err == nil || died == 0 {
			return cl, err
		}
		p.Sleep(joinLease / 100)
	}
}

// TestJoinBesideWork: whatever the clients, the operators and a fencer do at the same time, nobody
// meets an unknown server, no memory is used again too early, and a fence is complete.
func TestJoinBesideWork(t *testing.T) {
	onNew, late, died := 0, 0, 0
	for seed := range uint64(16) {
		x := joining{seed: seed}
		if err := x.run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		onNew += x.onNew
		late += x.late
		died += x.died
	}
	if onNew < 20 || late == 0 || died < 8 {
		t.Errorf("%d nodes were made on servers that joined, and a client changed %d before it was fenced, and %d servers failed over: the test shows little", onNew, late, died)
	}
}

// TestWaitsForClients: without the wait for clients somebody meets a server that it does not reach.
func TestWaitsForClients(t *testing.T) {
	const within = 20
	for seed := range uint64(within) {
		x := joining{seed: seed, wrong: noWait}
		if err := x.run(); err != nil {
			t.Logf("found by seed %d: %.200v", seed, err)
			return
		}
	}
	t.Errorf("%d seeds do not find it", within)
}
