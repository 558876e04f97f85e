package sim_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// modelled runs body in a world with the model, one server, and queue pairs of clients with a NIC
// and a process each.
func modelled(t *testing.T, caps verbs.Capabilities, clients int, body func(p *simenv.Process, c []modelClient, memory []byte)) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, Ordered: true})
	f := sim.New(w, sim.Options{Capabilities: caps})
	if err := w.Run(func(p *simenv.Process) {
		locks := make([]byte, loadData)
		_, address, err := f.NewServer(verbs.ServerOptions{Admission: new(toyWorld), Memory: []verbs.Memory{
			{ID: verbs.RegionData, Bytes: make([]byte, loadData)}, {ID: verbs.RegionLocks, Bytes: locks},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var list []modelClient
		for i := range clients {
			c := modelClient{world: w, process: w.NewProcess(fmt.Sprint("client ", i))}
			device := f.Device(c.process)
			arena, _ := device.NewArena(4096)
			c.local, _ = arena.Alloc(2048)
			conn, err := device.Connect(verbs.Target{Address: address}, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if c.qp, err = conn.NewQP(arena); err != nil {
				t.Fatal(err)
			}
			list = append(list, c)
		}
		body(p, list, locks)
	}); err != nil {
		t.Fatal(err)
	}
}

type modelClient struct {
	world   *simenv.World
	process *simenv.Process
	qp      verbs.QP
	local   []byte
}

// post posts one request and waits for it.
func (c *modelClient) post(r verbs.Request) error { return verbs.Post(c.qp, []verbs.Request{r}) }

// TestReleaseWaitsForSpinners: a WRITE of a lock in host memory waits for the atomics that came
// before it; one of data, or of a lock on the chip, does not.
func TestReleaseWaitsForSpinners(t *testing.T) {
	f := func(what string, caps verbs.Capabilities, region verbs.RegionID, least, most time.Duration) {
		t.Helper()
		const spinners = 40
		modelled(t, caps, spinners+1, func(p *simenv.Process, clients []modelClient, memory []byte) {
			binary.NativeEndian.PutUint64(memory, 7) // held
			g, done := env.NewWaitGroup(p), false
			for i := range spinners {
				c := &clients[i]
				g.Go("spinner", func() {
					for !done {
						if err := c.post(verbs.Request{Op: verbs.CompareSwap, Region: verbs.RegionLocks, Local: c.local[:8], Compare: 1 << 40, Swap: 2}); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			p.Sleep(100 * time.Microsecond)
			last, from := &clients[spinners], p.Now()
			if err := last.post(verbs.Request{Op: verbs.Write, Region: region, Local: last.local[:2]}); err != nil {
				t.Error(err)
			}
			if took := p.Now() - from; took < least || took > most {
				t.Errorf("%s takes %v beside %d that spin, want %v to %v", what, took, spinners, least, most)
			}
			done = true
			g.Wait(env.Forever)
			if region == verbs.RegionLocks && binary.NativeEndian.Uint64(memory) != 0 {
				t.Errorf("%s: the word is %d after the release", what, binary.NativeEndian.Uint64(memory))
			}
		})
	}
	// an unloaded round trip takes some 2.4 us, and an atomic that fails 300 ns
	f("a release in host memory", verbs.Capabilities{ReleaseByWrite: true}, verbs.RegionLocks, 9*time.Microsecond, 15*time.Microsecond)
	f("a WRITE of data", verbs.Capabilities{ReleaseByWrite: true}, verbs.RegionData, 2*time.Microsecond, 3*time.Microsecond)
	f("a release on the chip", verbs.Capabilities{ReleaseByWrite: true, DeviceMemory: 4096}, verbs.RegionLocks, 2*time.Microsecond, 4*time.Microsecond)
}

// TestAtomicsWaitInOrder: of many compare-and-swaps that wait for a word at once, exactly the first
// one succeeds, and what is behind an atomic in its list sees its effect.
func TestAtomicsWaitInOrder(t *testing.T) {
	const clients = 30
	modelled(t, verbs.Capabilities{}, clients, func(p *simenv.Process, list []modelClient, memory []byte) {
		g, got := env.NewWaitGroup(p), 0
		for i := range list {
			c := &list[i]
			g.Go("client", func() {
				// two atomics on the same bucket and a READ behind them
				if err := verbs.Post(c.qp, []verbs.Request{
					{Op: verbs.CompareSwap, Region: verbs.RegionLocks, Local: c.local[:8], Swap: uint64(i) + 1},
					{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Remote: 4096, Local: c.local[8:16], Add: 1},
					{Op: verbs.Read, Region: verbs.RegionLocks, Remote: 4096, Local: c.local[16:24]},
				}); err != nil {
					t.Error(err)
					return
				}
				if binary.NativeEndian.Uint64(c.local) == 0 {
					got++
				}
				if added, read := binary.NativeEndian.Uint64(c.local[8:]), binary.NativeEndian.Uint64(c.local[16:]); read <= added {
					t.Errorf("client %d added to %d, and then READ %d", i, added, read)
				}
			})
		}
		g.Wait(env.Forever)
		if n := binary.NativeEndian.Uint64(memory[4096:]); got != 1 || n != clients {
			t.Errorf("%d compare-and-swaps of one word succeeded, and %d of %d additions are there", got, n, clients)
		}
	})
}

// TestDeathInABucket: the list of a client that dies while it waits in a bucket has no effect, and
// those behind it do.
func TestDeathInABucket(t *testing.T) {
	const clients = 20
	modelled(t, verbs.Capabilities{}, clients, func(p *simenv.Process, list []modelClient, memory []byte) {
		g, done := env.NewWaitGroup(p), 0
		for i := range list {
			c := &list[i]
			c.process.Go("client", func() {
				if err := c.post(verbs.Request{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Local: c.local[:8], Add: 1}); err != nil {
					t.Error(err)
				}
				done++
			})
		}
		p.Sleep(3 * time.Microsecond) // some are done, the others wait
		dead := list[clients-2].process
		dead.Kill()
		p.Sleep(time.Millisecond)
		if n := binary.NativeEndian.Uint64(memory); done != clients-1 || n != clients-1 {
			t.Errorf("%d of %d clients ended, %d additions are there; one died in the queue", done, clients, n)
		}
		g.Wait(env.Forever)
	})
}

// TestClientsProcessor: lists that one goroutine posts side by side leave one after the other, and
// each is polled for. What a goroutine owes passes when its first list has been answered, once.
func TestClientsProcessor(t *testing.T) {
	modelled(t, verbs.Capabilities{}, 2, func(p *simenv.Process, c []modelClient, _ []byte) {
		m, most := sim.Paper(), 100*time.Nanosecond // in lines
		f := func(what string, want time.Duration, do func() error) {
			t.Helper()
			from := p.Now()
			if err := do(); err != nil {
				t.Fatal(err)
			}
			if took := p.Now() - from; took < want || took > want+most {
				t.Errorf("%s: took %v, want %v to %v", what, took, want, want+most)
			}
		}
		read := func(c *modelClient) []verbs.Request { return []verbs.Request{{Op: verbs.Read, Local: c.local[:8]}} }
		one := m.BaseRTT + m.Post + m.Doorbell + m.Poll
		f("a READ", one, func() error { return verbs.Post(c[0].qp, read(&c[0])) })
		f("two READs side by side", one+m.Post, func() error {
			for i := range c {
				if err := c[i].qp.Start(read(&c[i])); err != nil {
					return err
				}
			}
			if err := c[0].qp.Wait(); err != nil {
				return err
			}
			return c[1].qp.Wait()
		})
		const owed = 5 * time.Microsecond
		owe := func() { c[0].world.Current().Owe(simenv.Owed{Answered: owed, Fetched: 2 * owed}) }
		f("a READ of who owes", one+3*owed, func() error {
			owe()
			return verbs.Post(c[0].qp, read(&c[0]))
		})
		f("the next one", one, func() error { return verbs.Post(c[0].qp, read(&c[0])) })
		owe()
		f("a WRITE of who owes", one+owed, func() error {
			return verbs.Post(c[0].qp, []verbs.Request{{Op: verbs.Write, Local: c[0].local[:8]}})
		})
		owe()
		f("a WRITE and a READ of who owes", one+3*owed, func() error {
			return verbs.Post(c[0].qp, append([]verbs.Request{{Op: verbs.Write, Local: c[0].local[:8]}}, read(&c[0])...))
		})
		owe()
		f("a WRITE of who owes again", one+owed, func() error {
			return verbs.Post(c[0].qp, []verbs.Request{{Op: verbs.Write, Local: c[0].local[:8]}})
		})
		if left := c[0].world.Current().Owe(simenv.Owed{}); left != (simenv.Owed{Fetched: 2 * owed}) {
			t.Errorf("%v is left of what was owed", left)
		}
	})
}
