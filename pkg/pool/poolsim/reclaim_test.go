package poolsim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// raw registers and connects a client that nobody renews.
func raw(t *testing.T, control pool.Control) uint16 {
	t.Helper()
	id, err := control.Register(time.Second)
	must(t, err)
	_, err = control.Connect(1, id, time.Second)
	must(t, err)
	return id
}

// TestEpochs: the servers count epochs as memory servers do, through leases that run out and through restarts.
func TestEpochs(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		control := c.Control(p)
		one, two := raw(t, control), raw(t, control)
		renew := func(client uint16, passed, wanted, epoch, safe uint64) {
			t.Helper()
			r, err := control.Renew(1, client, pool.Epochs{Passed: passed, Wanted: wanted}, time.Second)
			must(t, err)
			if r != (pool.Renewal{Lease: lease, Epoch: epoch, Safe: safe}) {
				t.Errorf("client %d: %+v, want epoch %d, safe %d", client, r, epoch, safe)
			}
		}
		renew(one, 1, 3, 2, 1)
		renew(one, 2, 3, 2, 1)
		for range 20 { // the other one lets its lease run out
			p.Sleep(lease / 10)
			_, err := control.Renew(1, one, pool.Epochs{Passed: 2, Wanted: 3}, time.Second)
			must(t, err)
		}
		if _, err := control.Renew(1, two, pool.Epochs{}, time.Second); !errors.Is(err, pool.ErrFenced) {
			t.Errorf("it renews: %v", err)
		}
		renew(one, 3, 3, 3, 3)
		three := raw(t, control)
		c.Server(1).Restart(false)
		if _, err := control.Renew(1, one, pool.Epochs{Passed: 3}, time.Second); !errors.Is(err, verbs.ErrRefused) {
			t.Errorf("a client of before the restart: %v", err)
		}
		four := raw(t, control)
		renew(four, 1, 3, 1, 0)
		must(t, control.Fence(1, []uint16{one, three}, time.Second))
		renew(four, 1, 3, 2, 1)
	})
}

// TestAdoption: chunks of the dead go to who asks, one by one, with their content.
func TestAdoption(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		control := c.Control(p)
		one, two, three := raw(t, control), raw(t, control), raw(t, control)
		chunk, err := control.AllocateChunk(1, one, 512, false, time.Second)
		must(t, err)
		c.Memory(1, verbs.RegionData)[chunk] = 42
		none := func(client uint16, nodeBytes int) {
			t.Helper()
			if got, err := control.AllocateChunk(1, client, nodeBytes, true, time.Second); !errors.Is(err, pool.ErrPoolFull) {
				t.Errorf("client %d adopts chunk %#x for nodes of %d bytes: %v", client, got, nodeBytes, err)
			}
		}
		none(two, 512)
		must(t, control.Fence(1, []uint16{one}, time.Second))
		none(two, 1024)
		got, err := control.AllocateChunk(1, two, 512, true, time.Second)
		must(t, err)
		if got != chunk || c.Memory(1, verbs.RegionData)[chunk] != 42 {
			t.Errorf("adopted is %#x, want %#x with its content", got, chunk)
		}
		none(three, 512)
		if err := control.FreeChunk(1, three, chunk, time.Second); err == nil {
			t.Error("a chunk is freed by who has it not")
		}
		must(t, control.FreeChunk(1, two, chunk, time.Second))
		again, err := control.AllocateChunk(1, three, 512, false, time.Second)
		must(t, err)
		if c.Memory(1, verbs.RegionData)[again] != 0 {
			t.Error("a chunk from the quota is not zero")
		}
	})
}
