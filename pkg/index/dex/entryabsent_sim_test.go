package dex_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestKeyOfCrowdedLeafIsThere: before a lookup's READ of a leaf without a frame takes effect,
// another session changes the key's entry and fills a frame with the leaf, which has no room for
// the value: so the key is removed from the leaf for a while. The lookup must find the key.
func TestKeyOfCrowdedLeafIsThere(t *testing.T) {
	inSimulation(t, poolsim.Options{Servers: 1, Chunks: 60, ChunkBytes: 64 << 10, Locks: 64, Fabric: sim.Options{Capabilities: verbs.Capabilities{WholeWrite: 8}}}, func(c *poolsim.Cluster, p *simenv.Process) error {
		return crowdedLeaves(c, p)
	})
}

func crowdedLeaves(c *poolsim.Cluster, p *simenv.Process) error {
	const loaded, keys, node = 400, 800, 256
	device := &hookedDevice{Device: c.Fabric.Device(p)}
	x, reader, err := openAll(c, p, device, index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: node, CacheBytes: 16 << 10,
		Switches: map[string]bool{"offloading": false}})
	if err != nil {
		return err
	}
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n%loaded<<40+n/loaded<<30) }
	value := func(n uint64, now string) []byte { return []byte(now + "                ")[:[]int{3, 3, 3, 16}[n%4]] }
	if err := x.BulkLoad(func(yield func(k, v []byte) bool) error {
		for n := uint64(0); n < loaded && yield(key(n), value(n, "old")); n++ {
		}
		return nil
	}, 1); err != nil {
		return err
	}
	other, err := x.Session()
	if err != nil {
		return err
	}
	for n := uint64(loaded); n < keys; n++ {
		if err := other.Insert(key(n), value(n, "old")); err != nil {
			return err
		}
	}
	crowded, using := 0, false // the writer of the log READs leaves, too
	for round := 0; round < 40 && crowded < 5; round++ {
		for n := range uint64(keys) {
			for hot := uint64(0); hot < 60; hot += 7 { // leaves that are worth their frames
				if _, err := reader.Lookup(key(hot), nil); err != nil {
					return err
				}
			}
			before, met := dex.Crowded(x), false
			device.begin = func(list []verbs.Request) error {
				if using || len(list) != 1 || list[0].Op != verbs.Read || len(list[0].Local) != node {
					return nil
				}
				a := pool.NewAddr(1, list[0].Remote)
				if dex.Framed(x, a) {
					return nil
				}
				device.begin, using = nil, true
				defer func() { using = false }()
				if _, err := other.Lookup(key(n), nil); err != nil || !dex.HasEntry(x, key(n)) {
					return err
				}
				if err := other.Update(key(n), value(n, "new")); err != nil {
					return err
				}
				for _, beside := range []uint64{n + loaded, n - loaded, n + 1, n - 1} {
					if beside < keys && !dex.Framed(x, a) && !dex.HasEntry(x, key(beside)) {
						if err := other.Insert(key(beside), value(beside, "no")); !errors.Is(err, index.ErrExists) {
							return fmt.Errorf("key %d is inserted: %w", beside, err)
						}
					}
				}
				met = dex.Framed(x, a) && dex.Crowded(x) > before
				return nil
			}
			_, err := reader.Lookup(key(n), nil)
			device.begin = nil
			if err != nil {
				return fmt.Errorf("key %d, which is there all the time (its leaf had no room: %v): %w", n, met, err)
			}
			if met {
				crowded++
			}
		}
	}
	if crowded == 0 {
		return errors.New("no leaf was without room while it was READ: this tests nothing")
	}
	return nil
}
