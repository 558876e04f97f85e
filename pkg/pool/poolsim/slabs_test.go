package poolsim_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// scarce is a device that has no arenas for a while.
type scarce struct {
	verbs.Device
	none *bool
}

var errNoArena = errors.New("no arena is left")

func (d scarce) NewArena(bytes int) (*verbs.Arena, error) {
	if *d.none {
		return nil, errNoArena
	}
	return d.Device.NewArena(bytes)
}

// TestSlabsThatWereNotOpened: where a client has no session to open slabs with, these are to be had
// when it has.
func TestSlabsThatWereNotOpened(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Chunks: 1, ChunkBytes: 16 << 10})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		none := false
		cl, err := pool.Open(pool.Config{
			Env: p, Control: c.Control(p), Devices: []verbs.Device{scarce{c.Fabric.Device(p), &none}}, Identity: poolsim.Identity,
		})
		must(t, err)
		_, err = cl.AllocateBlock(64, pool.Nil)
		must(t, err)
		none = true
		for range 100 {
			if _, err := cl.AllocateBlock(1024, pool.Nil); !errors.Is(err, errNoArena) {
				t.Fatalf("slabs were opened without a session: %v", err)
			}
		}
		none = false
		for n := range 14 {
			if _, err := cl.AllocateBlock(1024, pool.Nil); err != nil {
				t.Fatalf("slab %d of the chunk: %v", n, err)
			}
		}
		must(t, cl.Close())
	}))
}

// stumbling is a device whose WRITEs fail for a while. They take effect late, when the test says
// so.
type stumbling struct {
	verbs.Device
	fails *bool
	late  *[]verbs.Request
}

type stumblingConn struct {
	verbs.Conn
	d stumbling
}

type stumblingQP struct {
	verbs.QP
	d      stumbling
	failed bool
}

func (d stumbling) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	c, err := d.Device.Connect(t, limit)
	return stumblingConn{c, d}, err
}

func (c stumblingConn) NewQP(a *verbs.Arena) (verbs.QP, error) {
	q, err := c.Conn.NewQP(a)
	return &stumblingQP{QP: q, d: c.d}, err
}

func (q *stumblingQP) Start(list []verbs.Request) error {
	if !*q.d.fails || list[0].Op != verbs.Write {
		return q.QP.Start(list)
	}
	for _, r := range list {
		r.Local = slices.Clone(r.Local)
		*q.d.late = append(*q.d.late, r)
	}
	q.failed = true
	return nil
}

func (q *stumblingQP) Wait() error {
	if q.failed {
		return verbs.ErrTimeout
	}
	return q.QP.Wait()
}

// halfOpened lets do work with a client whose WRITEs fail while fails is true. Then those take
// effect, one after the other. Before the first one and behind each, all nodes that do returned
// must be in the tables, with the content that they have got.
func halfOpened(t *testing.T, chunks int, do func(cl *pool.Pool, fails *bool) map[pool.Addr]int) {
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Chunks: chunks, ChunkBytes: 16 << 10})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		fails, late := false, []verbs.Request{}
		cl, err := pool.Open(pool.Config{
			Env: p, Control: c.Control(p), Devices: []verbs.Device{stumbling{c.Fabric.Device(p), &fails, &late}}, Identity: poolsim.Identity,
		})
		must(t, err)
		cl.GiveUpInDoubt() // but for the openings of slabs
		nodes := do(cl, &fails)
		memory := c.Memory(1, verbs.RegionData)
		for a, size := range nodes {
			for i := range size {
				memory[a.Offset()+uint64(i)] = 0xA5
			}
		}
		if len(late) == 0 {
			t.Fatal("nothing failed")
		}
		for came := 0; !t.Failed(); came++ {
			said := map[pool.Addr]int{}
			for _, k := range c.Chunks() {
				for a, node := range k.Nodes() {
					said[a] = len(node)
				}
			}
			for a, size := range nodes {
				if said[a] != size {
					t.Errorf("%d of %d WRITEs came late: node %v of %d bytes is in no table, which say %d there", came, len(late), a, size, said[a])
				}
				if bytes.Contains(memory[a.Offset():][:size], []byte{0}) {
					t.Errorf("%d of %d WRITEs came late: node %v of %d bytes was overwritten", came, len(late), a, size)
				}
			}
			if came == len(late) {
				break
			}
			copy(memory[late[came].Remote:], late[came].Local)
		}
		must(t, cl.Close())
	}))
}

// TestSlabsWhoseWordFailed: slabs that were not used before serve when their words can be written,
// and stay what they are: a WRITE of a word that comes late changes nothing.
func TestSlabsWhoseWordFailed(t *testing.T) {
	halfOpened(t, 1, func(cl *pool.Pool, fails *bool) map[pool.Addr]int {
		_, err := cl.AllocateBlock(64, pool.Nil)
		must(t, err)
		*fails = true
		for range 20 {
			if _, err := cl.AllocateBlock(1024, pool.Nil); !errors.Is(err, verbs.ErrTimeout) {
				t.Fatalf("slabs were opened without a word: %v", err)
			}
		}
		*fails = false
		nodes := map[pool.Addr]int{}
		for n := range 14 {
			a, err := cl.AllocateBlock(1024, pool.Nil)
			if err != nil {
				t.Fatalf("slab %d of the chunk: %v", n, err)
			}
			nodes[a] = 1024
		}
		for a := range nodes {
			cl.Free(a, 1024)
		}
		clear(nodes)
		for {
			a, err := cl.AllocateBlock(512, pool.Nil)
			if err != nil {
				break
			}
			nodes[a] = 512
		}
		if len(nodes) < 13*2 { // one slab stays what it is
			t.Errorf("%d nodes of another size", len(nodes))
		}
		return nodes
	})
}

// TestSlabsWhoseZeroFailed: where slabs were used before, no node lies where a late WRITE of zero
// would meet it, or the word of its run.
func TestSlabsWhoseZeroFailed(t *testing.T) {
	halfOpened(t, 2, func(cl *pool.Pool, fails *bool) map[pool.Addr]int {
		two, err := cl.AllocateBlock(640, pool.Nil) // slabs 0 and 1
		must(t, err)
		cl.Free(two, 640)
		nodes := map[pool.Addr]int{}
		for range 14 { // slabs 2 to 15
			a, err := cl.AllocateBlock(1024, pool.Nil)
			must(t, err)
			nodes[a] = 1024
		}
		other, err := cl.AllocateBlock(8000, pool.Nil)
		must(t, err)
		*fails = true
		if _, err := cl.AllocateBlock(1024, pool.Nil); !errors.Is(err, verbs.ErrTimeout) {
			t.Fatalf("slab 1 was opened without a word: %v", err)
		}
		*fails = false
		cl.Free(other, 8000)
		for range 10 { // slab 0 has room for them
			a, err := cl.AllocateBlock(64, pool.Nil)
			must(t, err)
			nodes[a] = 64
		}
		a, err := cl.AllocateBlock(1024, pool.Nil)
		must(t, err)
		nodes[a] = 1024
		return nodes
	})
}

// TestSlabsBesideOneThatFailed: the word of a closed run of two slabs is to be cleared, by an
// opening of which nothing takes effect. So the word still names the second slab. Who opens that
// clears it.
func TestSlabsBesideOneThatFailed(t *testing.T) {
	halfOpened(t, 1, func(cl *pool.Pool, fails *bool) map[pool.Addr]int {
		two, err := cl.AllocateBlock(640, pool.Nil) // slabs 0 and 1
		must(t, err)
		nodes := map[pool.Addr]int{}
		for range 14 { // slabs 2 to 15
			a, err := cl.AllocateBlock(1024, pool.Nil)
			must(t, err)
			nodes[a] = 1024
		}
		cl.Free(two, 640)
		*fails = true
		if _, err := cl.AllocateBlock(64, pool.Nil); !errors.Is(err, verbs.ErrTimeout) {
			t.Fatalf("slab 0 was opened without a word: %v", err)
		}
		*fails = false
		a, err := cl.AllocateBlock(128, pool.Nil)
		must(t, err)
		nodes[a] = 128
		return nodes
	})
}
