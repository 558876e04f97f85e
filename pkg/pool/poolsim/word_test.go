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

// The nodes of the toy that shows lock words: 31 words that all say how often the node was counted,
// so that a torn node shows. The last word of a node is its own lock word, or is not used: then the
// lock word lies in another node, or in a strip. Own bits of a lock word:
//
//	bit 0-39   what derived makes of the node's count
//	bit 40-47  visits, which anybody adds to without the lock
const (
	wordNode    = 256
	stripNode   = 320 // of nodes with a strip
	wordImage   = wordNode - 8
	derivedBits = 40
	derivedMask = 1<<derivedBits - 1
	visit       = 1 << (derivedBits + 16) // in the whole word
)

func derived(count uint64) uint64 { return count * 0x10001 & derivedMask }

// wordFaults are faults that are put in on purpose.
type wordFaults struct {
	releaseFirst bool // the node is WRITTEN behind the release
	toFree       bool // a fence frees a word instead
	ownLost      bool // a fence clears own bits
	nothingOwed  bool // a fence marks no change as owed
	noRebuild    bool // own bits are not made from the data

	flaws sim.Flaws // of memory servers that have copies
}

func (f wordFaults) meddle(m pool.WordMemory) pool.WordMemory { return meddler{m, f} }

type meddler struct {
	pool.WordMemory
	f wordFaults
}

func (m meddler) SwapWord(at, compare, swap uint64) (uint64, error) {
	switch toRepair := uint16(swap) == pool.Repair; {
	case toRepair && m.f.toFree:
		swap &^= pool.Repair
	case toRepair && m.f.ownLost:
		swap = pool.Repair
	case !toRepair && swap > compare && m.f.nothingOwed:
		return compare, nil
	}
	return m.WordMemory.SwapWord(at, compare, swap)
}

// wordWorld is a run: clients count nodes under lock words, while some of them die.
type wordWorld struct {
	w      *simenv.World
	c      *poolsim.Cluster
	faults wordFaults
	words  []pool.Word
	// by node: how often it was counted, at least and at most, and visited
	counted, most, visited []uint64
	seen                   map[[2]uint64]bool // node and count that somebody brought about
	repaired               uint64
}

func (ww *wordWorld) fail(format string, args ...any) { ww.w.Fail(fmt.Errorf(format, args...)) }

// build makes the nodes, counted once: whoever adopts their chunk takes those that begin with zeros
// for unused.
func (ww *wordWorld) build(t *testing.T, cl *pool.Pool, n int) {
	strips, err := cl.DeclareStrip(stripNode)
	must(t, err)
	for i := range n {
		size := wordNode
		if i%3 == 2 {
			size = stripNode
		}
		node, err := cl.Allocate(size, pool.Nil)
		must(t, err)
		w := pool.Word{At: node + wordImage, Node: node}
		switch i % 3 {
		case 2:
			w.At, err = strips.WordOf(node)
			must(t, err)
			w.InStrip = true
		case 1: // anywhere on the node's server
			strip, err := cl.Allocate(wordNode, node)
			for strip.Server() != node.Server() && err == nil {
				strip, err = cl.Allocate(wordNode, node)
			}
			must(t, err)
			binary.LittleEndian.PutUint64(ww.memory(strip), 1)
			w.At = strip + pool.HeadBytes + pool.Addr(8*(i%28))
		}
		for at := pool.Addr(0); at < wordImage; at += 8 {
			binary.LittleEndian.PutUint64(ww.memory(node+at), 1)
		}
		binary.LittleEndian.PutUint64(ww.memory(w.At), derived(1)<<16)
		ww.words = append(ww.words, w)
		ww.counted, ww.most = append(ww.counted, 1), append(ww.most, 1)
	}
	ww.visited = make([]uint64, n)
	ww.seen = map[[2]uint64]bool{}
}

// memory is what lies at a, as its memory server sees it.
func (ww *wordWorld) memory(a pool.Addr) []byte {
	return ww.c.Memory(a.Server(), verbs.RegionData)[a.Offset():]
}

// counter is a session that counts.
type counter struct {
	ww          *wordWorld
	s           *pool.Session
	node, image []byte
	old         []byte
}

func (ww *wordWorld) open(cl *pool.Pool) (*counter, error) {
	if !ww.faults.noRebuild {
		cl.SetRebuild(ww.rebuild)
	}
	s, err := cl.NewSession(4096)
	if err != nil {
		return nil, err
	}
	k := &counter{ww: ww, s: s}
	for _, b := range []struct {
		b *[]byte
		n int
	}{{&k.node, wordImage}, {&k.image, wordImage}, {&k.old, 8}} {
		if *b.b, err = s.Buffer(b.n); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (ww *wordWorld) rebuild(s *pool.Session, w pool.Word, _ uint64, room []byte) (mask, bits uint64, err error) {
	b := room[:wordImage]
	s.Read(w.Node, b)
	if err := s.Post(); err != nil {
		return 0, 0, err
	}
	return derivedMask, derived(ww.whole("after repair", w, b)), nil
}

// whole is the count of a node.
func (ww *wordWorld) whole(when string, w pool.Word, node []byte) uint64 {
	n := binary.LittleEndian.Uint64(node)
	for at := 8; at < wordImage; at += 8 {
		if got := binary.LittleEndian.Uint64(node[at:]); got != n {
			ww.fail("node %v is torn %s: %d and %d", w.Node, when, n, got)
		}
	}
	return n
}

// judge checks a node and its own bits, as found under the lock.
func (k *counter) judge(i int, own uint64) uint64 {
	n := k.ww.whole("under its lock", k.ww.words[i], k.node)
	if own&derivedMask != derived(n) {
		k.ww.fail("own bits of node %d are %#x, its count is %d", i, own, n)
	}
	return n
}

// count counts node i once. try: only if it can be had at once.
func (k *counter) count(i int, try bool, guess uint64) error {
	ww, s, w := k.ww, k.s, k.ww.words[i]
	w.Own = guess
	s.Begin()
	defer s.End()
	var own uint64
	var err error
	ok := true
	if span := (pool.Span{At: w.Node, Local: k.node}); try {
		own, ok, err = s.TryAcquire(w, span)
	} else {
		own, err = s.Acquire(w, span)
	}
	if err != nil || !ok {
		return err
	}
	n := k.judge(i, own)
	if err := s.ReserveRewrite(w.Node, wordImage); err != nil {
		return errors.Join(err, s.PostRelease(0, 0))
	}
	for at := 0; at < wordImage; at += 8 {
		binary.LittleEndian.PutUint64(k.image[at:], n+1)
	}
	ww.most[i]++
	if ww.faults.releaseFirst {
		err = s.PostRelease(derivedMask, derived(n+1))
		s.Write(pool.Sole, w.Node, k.image)
		err = errors.Join(err, s.Post())
	} else {
		s.Rewrite(w.Node, k.image)
		err = s.PostRelease(derivedMask, derived(n+1))
	}
	if err != nil {
		return err
	}
	if ww.counted[i]++; ww.seen[[2]uint64{uint64(i), n + 1}] {
		ww.fail("node %d was counted to %d twice", i, n+1)
	}
	ww.seen[[2]uint64{uint64(i), n + 1}] = true
	return nil
}

// visit adds a visit to the own bits of node i's word.
func (k *counter) visit(i int) error {
	if k.ww.visited[i] >= 100 { // there are 8 bits
		return nil
	}
	k.s.Begin()
	defer k.s.End()
	k.s.FetchAdd(k.ww.words[i].At, visit, k.old)
	err := k.s.Post()
	if err == nil {
		k.ww.visited[i]++
	}
	return err
}

// retire takes a node and retires it, so that epochs grow, and slots forget their words.
func (k *counter) retire() error {
	k.s.Begin()
	defer k.s.End()
	a, err := k.s.Allocate(wordNode, pool.Nil)
	if err == nil {
		k.s.Pool().Retire(a, wordNode)
	}
	return err
}

// works does what a session of a client does.
func (k *counter) works(rounds, which int) error {
	env := k.s.Pool().Env()
	for n := range rounds {
		i := int(env.Uint64() % uint64(len(k.ww.words)))
		var err error
		switch x := env.Uint64() % 8; {
		case x == 0:
			err = k.visit(i)
		case x == 1:
			err = k.count(i, true, 0)
		case x == 2:
			err = k.retire()
		default:
			err = k.count(i, false, derived(k.ww.counted[i]))
		}
		if err != nil && (k.s.Err() != nil || !errors.Is(err, pool.ErrTimeout)) {
			return fmt.Errorf("round %d of session %d: %w", n, which, err)
		}
	}
	return k.s.Close()
}

// deadly are the faults that clients of a run may meet.
var deadly = []sim.Kind{sim.Crash, sim.Crash, sim.Crash, sim.Freeze, sim.Drop, sim.Restart, sim.Jump, sim.Drift}

// wordRun is one run.
type wordRun struct {
	seed     uint64
	plan     *sim.Plan // nil = the seed's own; then it is filled in
	faults   wordFaults
	repaired uint64
}

func (r *wordRun) do(t *testing.T) (err error) {
	t.Helper()
	seed, faults := r.seed, r.faults
	const clients, sessions, rounds = 3, 3, 12
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 4_000_000, Preempt: 6})
	plan := sim.NewPlan(w.Faults(), sim.Menu{
		Kinds: sim.OrFailOvers(seed, faults.flaws, deadly...), Processes: []string{"client-1", "client-2", "client-3"}, Parts: 1200, Most: 6, Longest: 3 * lease,
	})
	if r.plan != nil {
		plan = r.plan
	}
	r.plan = plan
	ww := &wordWorld{w: w, faults: faults}
	ww.c, err = poolsim.New(w, poolsim.Options{
		Servers: 1 + int(seed%2), Locks: 4, Lease: lease, RenewEvery: wordRenewal(seed), Intents: 40, Chunks: 16, ChunkBytes: 64 << 10, Fabric: sim.Options{Plan: plan, Flaws: faults.flaws}, Meddle: faults.meddle,
	})
	must(t, err)
	err = w.Run(func(p *simenv.Process) {
		cl, err := ww.c.Open(p)
		must(t, err)
		ww.build(t, cl, 2+int(seed%4))
		must(t, cl.Close()) // a fault may restart its memory server
		g := env.NewWaitGroup(p)
		for n := range clients {
			proc, done := w.NewProcess(fmt.Sprintf("client-%d", n+1)), p.NewEvent()
			proc.Go("main", func() {
				defer done.Set()
				cl, err := ww.c.Open(proc)
				if err != nil {
					return // it is met by a fault
				}
				inner := env.NewWaitGroup(proc)
				for i := range sessions {
					inner.Go(fmt.Sprint("session ", i), func() {
						k, err := ww.open(cl)
						if err == nil {
							k.s.SetLimit(4 * lease)
							err = k.works(rounds, i)
						}
						if err != nil && cl.Alive() == nil && len(plan.Faults) == 0 {
							ww.fail("client %d: %w", n, err)
						}
					})
				}
				inner.Wait(env.Forever)
				ww.repaired += cl.Repaired()
				_ = cl.Close()
			})
			g.Go("wait", func() { done.Wait(env.Forever) })
		}
		g.Wait(env.Forever)
		p.Sleep(lease) // whatever a dead client has under way
		if cl, err = ww.c.Open(p); err == nil {
			ww.end(t, cl)
		}
		must(t, err)
	})
	if err != nil {
		err = fmt.Errorf("seed %d: %w\nplan %v", seed, err, plan)
	}
	r.repaired = ww.repaired
	return err
}

// end judges what is left when the clients have ended or died.
func (ww *wordWorld) end(t *testing.T, cl *pool.Pool) {
	k, err := ww.open(cl)
	must(t, err)
	for i, w := range ww.words {
		k.s.Begin()
		own, err := k.s.Acquire(w, pool.Span{At: w.Node, Local: k.node})
		must(t, err)
		n := k.judge(i, own)
		if n < ww.counted[i] || n > ww.most[i] {
			ww.fail("node %d says %d, it was counted %d to %d times", i, n, ww.counted[i], ww.most[i])
		}
		if got := own >> derivedBits; got < ww.visited[i] {
			ww.fail("node %d says %d visits, of %d", i, got, ww.visited[i])
		}
		must(t, k.s.PostRelease(0, 0))
	}
	// Clients that died may be known as alive for a while.
	cl.Env().Sleep(3 * lease)
	must(t, k.s.RepairWords())
	for i, w := range ww.words {
		if word := binary.LittleEndian.Uint64(ww.c.Memory(w.At.Server(), verbs.RegionData)[w.At.Offset():]); uint16(word) != 0 {
			ww.fail("the lock word of node %d is %#x in the end", i, word)
		}
	}
	ww.repaired += cl.Repaired()
	must(t, k.s.Close())
	must(t, cl.Alive())
	must(t, cl.Close())
	for id := range uint16(ww.c.Options.Servers) {
		if used := ww.c.UsedIntents(id + 1); used != 0 {
			ww.fail("%d intent slots of server %d are not free when all clients have ended", used, id+1)
		}
	}
}

// wordRenewal is how often leases are renewed in a seed, and so how soon an idle session gives its
// slot back: in every second one so often that sessions lose theirs between two operations.
func wordRenewal(seed uint64) time.Duration {
	if seed%2 == 0 {
		return 0
	}
	return 100 * time.Microsecond
}
