package indexsim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/smart"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestChangeInDoubtEndsItsClient: a client loses its connection after each part of its requests,
// while it inserts and deletes. If changes have no answer, they may yet take effect, and the client
// is given up: else it would go on to say that its operations are over, and such a swap could meet
// memory that is used again. So of a client that lives on nothing takes effect any more.
func TestChangeInDoubtEndsItsClient(t *testing.T) {
	d, err := index.Lookup(smart.Name)
	if err != nil {
		t.Fatal(err)
	}
	ended, lives, late := 0, 0, 0
	for part, through := 1, false; !through; part++ {
		w := simenv.New(simenv.Options{Seed: uint64(part), MaxEvents: 5_000_000})
		plan := &sim.Plan{
			Capabilities: verbs.Capabilities{WholeWrite: 8}, Tear: 2, Reorder: true, Delay: 100, Gap: 100,
			Faults: []sim.Fault{{Kind: sim.Drop, Process: "victim", Part: part}},
		}
		cl, err := poolsim.New(w, poolsim.Options{Servers: 2, Locks: 16, Chunks: 2, ChunkBytes: 64 << 10, Fabric: sim.Options{Plan: plan}})
		if err != nil {
			t.Fatal(err)
		}
		err = w.Run(func(p *simenv.Process) {
			v, over := w.NewProcess("victim"), p.NewEvent()
			v.Go("main", func() {
				defer over.Set()
				pl, err := cl.Open(v)
				if err != nil {
					return // in vain
				}
				x, err := d.Open(pl, crashOptions)
				if err != nil {
					return
				}
				s, err := x.Session()
				for n := 0; n < crashKeys && err == nil; n++ {
					if err = s.Insert([]byte(crashKey(n)), nil); err == nil && n%3 == 0 {
						err = s.Delete([]byte(crashKey(n)))
					}
				}
				if err == nil {
					through = true
					return
				}
				before, alive := memory(cl), pl.Alive() == nil
				v.Sleep(time.Second)
				same := before == memory(cl)
				switch {
				case alive && !same:
					w.Fail(fmt.Errorf("the client lives on, and something of it took effect after %w", err))
				case alive:
					lives++
				case !same:
					late++
				}
				ended++
			})
			over.Wait(env.Forever)
		})
		if err != nil {
			t.Fatalf("the connection is lost after part %d: %v", part, err)
		}
	}
	t.Logf("%d connections were lost; %d clients lived on, of %d others something took effect later", ended, lives, late)
	if late < 20 || lives < 20 {
		t.Errorf("of %d clients something took effect later, and %d lived on: this tests nothing", late, lives)
	}
}

// memory is what the memory servers have in their data regions.
func memory(cl *poolsim.Cluster) (all string) {
	for n := range cl.Options.Servers {
		all += string(cl.Memory(uint16(n+1), verbs.RegionData))
	}
	return all
}
