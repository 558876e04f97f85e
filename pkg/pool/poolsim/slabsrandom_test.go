package poolsim_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// torn is a device whose lists of WRITEs fail for a while, most of them: a part of such a list
// takes effect at once, and the rest when the test says so.
type torn struct {
	verbs.Device
	r      *rand.Rand
	memory []byte
	fails  bool
	late   [][]verbs.Request
}

type tornConn struct {
	verbs.Conn
	d *torn
}

type tornQP struct {
	verbs.QP
	d      *torn
	failed bool
}

func (d *torn) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	c, err := d.Device.Connect(t, limit)
	return tornConn{c, d}, err
}

func (c tornConn) NewQP(a *verbs.Arena) (verbs.QP, error) {
	q, err := c.Conn.NewQP(a)
	return &tornQP{QP: q, d: c.d}, err
}

func (q *tornQP) Start(list []verbs.Request) error {
	d := q.d
	if !d.fails || list[0].Op != verbs.Write || d.r.IntN(3) == 0 {
		return q.QP.Start(list)
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].Local = slices.Clone(list[i].Local)
	}
	d.late = append(d.late, list)
	for range d.r.IntN(len(list) + 1) {
		d.come(len(d.late) - 1)
	}
	q.failed = true
	return nil
}

func (q *tornQP) Wait() error {
	if q.failed {
		return verbs.ErrTimeout
	}
	return q.QP.Wait()
}

// come lets the next WRITE of a list that failed take effect.
func (d *torn) come(list int) {
	r := d.late[list][0]
	copy(d.memory[r.Remote:], r.Local)
	if d.late[list] = d.late[list][1:]; len(d.late[list]) == 0 {
		d.late = slices.Delete(d.late, list, list+1)
	}
}

// TestSlabsOfManyThatFailed: nodes of many sizes come and go, and openings of slabs fail at any
// point. Their WRITEs take effect whenever it may be, those of different lists in any order. At
// each moment all nodes are in the tables, with their size and content.
func TestSlabsOfManyThatFailed(t *testing.T) {
	sizes := []int{64, 128, 256, 512, 640, 1024, 1500, 2000, 3000, 4000}
	failed := 0
	for seed := range uint64(200) {
		r, w := rand.New(rand.NewPCG(seed, 1)), simenv.New(simenv.Options{Seed: 1})
		c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Chunks: 2, ChunkBytes: 16 << 10})
		must(t, err)
		must(t, w.Run(func(p *simenv.Process) {
			d := &torn{Device: c.Fabric.Device(p), r: r, memory: c.Memory(1, verbs.RegionData)}
			cl, err := pool.Open(pool.Config{Env: p, Control: c.Control(p), Devices: []verbs.Device{d}, Identity: poolsim.Identity})
			must(t, err)
			cl.GiveUpInDoubt() // but for the openings of slabs
			nodes := &handedOut{size: map[pool.Addr]int{}, said: map[pool.Addr]int{}}
			for range 120 {
				switch r.IntN(8) {
				case 0:
					d.fails = !d.fails
				case 1, 2, 3, 4:
					size := sizes[r.IntN(len(sizes))]
					for range 1 + r.IntN(6) {
						if a, err := cl.AllocateBlock(size, pool.Nil); err == nil {
							nodes.add(a, size, d.memory)
						}
					}
				case 5, 6:
					for range r.IntN(len(nodes.list) + 1) {
						i := r.IntN(len(nodes.list))
						cl.Free(nodes.list[i], nodes.size[nodes.list[i]])
						nodes.remove(i)
					}
				case 7:
					if len(d.late) > 0 {
						d.come(r.IntN(len(d.late)))
					}
				}
				nodes.check(t, c, d.memory)
			}
			for failed += len(d.late); len(d.late) > 0; {
				d.come(r.IntN(len(d.late)))
				nodes.check(t, c, d.memory)
			}
			d.fails = false
			must(t, cl.Close())
		}))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if failed == 0 {
		t.Error("no opening failed: this tests nothing")
	}
}

// handedOut are the nodes that a client has.
type handedOut struct {
	list []pool.Addr
	size map[pool.Addr]int
	said map[pool.Addr]int // their sizes by the tables, when they were handed out
}

func (h *handedOut) add(a pool.Addr, size int, memory []byte) {
	h.list, h.size[a] = append(h.list, a), size
	copy(memory[a.Offset():], bytes.Repeat([]byte{0xA5}, size))
}

func (h *handedOut) remove(i int) {
	delete(h.size, h.list[i])
	delete(h.said, h.list[i])
	h.list = slices.Delete(h.list, i, i+1)
}

func (h *handedOut) check(t *testing.T, c *poolsim.Cluster, memory []byte) {
	t.Helper()
	say := map[pool.Addr]int{}
	for _, k := range c.Chunks() {
		for a, node := range k.Nodes() {
			say[a] = len(node)
		}
	}
	for _, a := range h.list {
		if h.said[a] == 0 {
			h.said[a] = say[a]
		}
		if say[a] < h.size[a] || say[a] != h.said[a] {
			t.Errorf("node %v of %d bytes: the tables say %d, and said %d", a, h.size[a], say[a], h.said[a])
		}
		if bytes.Contains(memory[a.Offset():][:h.size[a]], []byte{0}) {
			t.Errorf("node %v of %d bytes was overwritten", a, h.size[a])
		}
	}
}
