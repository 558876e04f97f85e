package poolsim_test

import (
	"errors"
	"testing"

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
