package poolsim_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// pointers is a world in which a client replaces what some pointers lead to, and others follow
// them, with or without a cache of pointers that they follow for as long as the floor lets them.
type pointers struct {
	caches bool
	retire func(p *pool.Pool, a pool.Addr)

	table    pool.Addr // pointers, side by side
	replaced int
	followed int  // from a cache
	reused   bool // memory came back
	floor    uint64
	fault    error
}

const (
	pointerCount = 4
	pointedBytes = 64
)

func retireCached(p *pool.Pool, a pool.Addr)   { p.Retire(a, pointedBytes) }
func retireUncached(p *pool.Pool, a pool.Addr) { p.RetireUncached(a, pointedBytes) }

func (w *pointers) run(t *testing.T, seed uint64) {
	simulate(t, seed, poolsim.Options{Servers: 2, Chunks: 2, ChunkBytes: 16 << 10, RenewEvery: 20 * time.Microsecond}, func(c *poolsim.Cluster, p *simenv.Process) {
		g := env.NewWaitGroup(p)
		ready, over := p.NewEvent(), false
		client(t, c, p, g, 1, func(cl *pool.Pool) error {
			defer func() { over = true }()
			return w.replace(cl, ready)
		})
		ready.Wait(env.Forever)
		for n := 2; n <= 3; n++ {
			client(t, c, p, g, n, func(cl *pool.Pool) error {
				err := w.follow(cl, &over)
				w.floor = max(w.floor, cl.Floor())
				return err
			})
		}
		g.Wait(env.Forever)
	})
}

// replace makes the pointers, and lets each of them lead to other memory again and again.
func (w *pointers) replace(cl *pool.Pool, ready env.Event) (err error) {
	defer ready.Set()
	s, err := cl.NewSession(1024)
	if err != nil {
		return err
	}
	defer s.Close()
	item, err := s.Buffer(pointedBytes)
	if err != nil {
		return err
	}
	word, err := s.Buffer(8)
	if err != nil {
		return err
	}
	if w.table, err = cl.AllocateBlock(8*pointerCount, pool.Nil); err != nil {
		return err
	}
	var old [pointerCount]pool.Addr
	for n := range 150 {
		s.Begin()
		cell := cl.Env().Uint64() % pointerCount
		if n < pointerCount {
			cell = uint64(n)
		}
		a, err := cl.AllocateBlock(pointedBytes, w.table)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(item, cell+1)
		s.Write(pool.Sole, a, item)
		binary.LittleEndian.PutUint64(word, uint64(a))
		s.Write(pool.Sole, w.table+pool.Addr(8*cell), word)
		if err := s.Post(); err != nil {
			return err
		}
		s.End()
		if old[cell] != pool.Nil {
			w.retire(cl, old[cell])
			w.replaced++
		}
		old[cell] = a
		if n == pointerCount {
			ready.Set()
		}
		cl.Env().Sleep(time.Duration(cl.Env().Uint64()%20) * time.Microsecond)
	}
	w.reused = cl.Reclaimed() > 0
	w.floor = max(w.floor, cl.Floor())
	return nil
}

// follow looks at what the pointers lead to.
func (w *pointers) follow(cl *pool.Pool, over *bool) error {
	s, err := cl.NewSession(1024)
	if err != nil {
		return err
	}
	defer s.Close()
	item, err := s.Buffer(8)
	if err != nil {
		return err
	}
	var cache [pointerCount]struct {
		a     pool.Addr
		stamp uint64
	}
	for !*over && w.fault == nil {
		s.Begin()
		cell := cl.Env().Uint64() % pointerCount
		k := &cache[cell]
		if w.caches && k.a != pool.Nil && k.stamp >= cl.Floor() {
			w.followed++
		} else {
			s.Read(w.table+pool.Addr(8*cell), item)
			if err := s.Post(); err != nil {
				return err
			}
			k.a, k.stamp = pool.Addr(binary.LittleEndian.Uint64(item)), s.Stamp()
		}
		cl.Env().Sleep(time.Duration(cl.Env().Uint64()%10) * time.Microsecond)
		s.Read(k.a, item)
		if err := s.Post(); err != nil {
			return err
		}
		if got := binary.LittleEndian.Uint64(item); got != cell+1 {
			w.fault = fmt.Errorf("pointer %d leads to what belongs to pointer %d", cell, got-1)
		}
		s.End()
	}
	return nil
}

// TestRetirementClasses: what is given up by its class is used again, and nobody who follows an old
// address meets other content, an operation under way or one that follows its cache. For memory
// that no cache leads to no floor rises.
func TestRetirementClasses(t *testing.T) {
	for _, x := range []struct {
		name   string
		caches bool
		retire func(*pool.Pool, pool.Addr)
	}{{"cached", true, retireCached}, {"uncached", false, retireUncached}} {
		t.Run(x.name, func(t *testing.T) {
			reused, followed := 0, 0
			for seed := range seeds / 3 {
				w := pointers{caches: x.caches, retire: x.retire}
				w.run(t, seed)
				if w.fault != nil {
					t.Fatalf("seed %d: %v", seed, w.fault)
				}
				if w.reused {
					reused++
				}
				followed += w.followed
				if !x.caches && w.floor != 0 {
					t.Fatalf("seed %d: the floor is %d", seed, w.floor)
				}
			}
			t.Logf("memory was used again in %d runs, and caches were followed %d times", reused, followed)
			if reused == 0 || x.caches && followed == 0 {
				t.Error("that proves nothing")
			}
		})
	}
}

// TestWrongClassIsFound: a fault put in on purpose. Memory to which caches lead is given up as if
// none did.
func TestWrongClassIsFound(t *testing.T) {
	for seed := range seeds {
		w := pointers{caches: true, retire: retireUncached}
		w.run(t, seed)
		if w.fault != nil {
			t.Logf("seed %d: %v", seed, w.fault)
			return
		}
	}
	t.Error("nobody meets the content of others")
}

// older is the control path to memory servers that know of one class only.
type older struct{ pool.Control }

func (o older) Connect(server uint16, client uint32, limit time.Duration) (pool.Grant, error) {
	g, err := o.Control.Connect(server, client, limit)
	g.UncachedEpoch = 0
	return g, err
}

func (o older) Renew(server uint16, client uint32, e pool.Epochs, limit time.Duration) (pool.Renewal, error) {
	e.UncachedPassed, e.UncachedWanted = 0, 0
	r, err := o.Control.Renew(server, client, e, limit)
	r.UncachedEpoch, r.UncachedSafe = 0, 0
	return r, err
}

// TestUncachedOfOlderServer: memory that no cache leads to comes back from memory servers, too,
// that have no epochs for it.
func TestUncachedOfOlderServer(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := pool.Open(pool.Config{
			Env: p, Control: older{c.Control(p)}, Devices: []verbs.Device{c.Fabric.Device(p)}, Identity: poolsim.Identity,
		})
		must(t, err)
		a, err := cl.AllocateBlock(pointedBytes, pool.Nil)
		must(t, err)
		cl.RetireUncached(a, pointedBytes)
		for i := 0; cl.Reclaimed() == 0; i++ {
			if i == 100 {
				t.Fatal("the block is never free")
			}
			p.Sleep(lease / 10)
		}
		must(t, cl.Close())
	})
}
