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

// TestChangesInPlace: keys that are there change again and again without a round trip, and the
// memory server has all of it in the end. Where a leaf is written back by one WRITE that takes
// effect as a whole, deleted ones leave room for others; elsewhere full leaves are written back.
func TestChangesInPlace(t *testing.T) {
	for _, whole := range []int{8, 4096} {
		inSimulation(t, poolsim.Options{Servers: 2, Chunks: 60, ChunkBytes: 64 << 10, Locks: 64, Fabric: sim.Options{Capabilities: verbs.Capabilities{WholeWrite: whole, WholeAlways: true}}},
			func(c *poolsim.Cluster, p *simenv.Process) error { return changesInPlace(c, p, whole > 8) })
	}
}

func changesInPlace(c *poolsim.Cluster, p *simenv.Process, whole bool) error {
	const keys = 300
	x, s, err := openAll(c, p, nil, index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 512, CacheBytes: 1 << 20})
	if err != nil {
		return err
	}
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<32) }
	value := func(n, round uint64) []byte {
		return []byte(fmt.Sprintf("%d of %d                ", round, n))[:16-n%3]
	}
	var ks, vs [][]byte
	change := func(round uint64) error {
		ks, vs = ks[:0], vs[:0]
		for n := range uint64(keys) {
			ks, vs = append(ks, key(n)), append(vs, value(n, round))
		}
		if err := s.Prepare(ks, vs); err != nil {
			return err
		}
		for n := range ks {
			if err := s.Upsert(ks[n], vs[n]); err != nil {
				return err
			}
		}
		return nil
	}
	for range 2 { // leaves that were divided have frames again
		if err := change(0); err != nil {
			return err
		}
	}
	const rounds = 5
	before := s.Counters()
	for round := range uint64(rounds) {
		if err := change(1 + round); err != nil {
			return err
		}
	}
	after := s.Counters()
	if trips := after.RoundTrips - before.RoundTrips; trips != 0 {
		return fmt.Errorf("%d changes of %d keys took %d round trips", rounds*keys, keys, trips)
	}
	// deleted keys leave room for the same keys at once
	before = after
	for n := uint64(0); n < keys; n += 2 {
		if err := s.Delete(key(n)); err != nil {
			return err
		}
		if err := s.Insert(key(n), value(n, rounds)); err != nil {
			return err
		}
	}
	after = s.Counters()
	if trips := after.RoundTrips - before.RoundTrips; whole != (trips == 0) {
		return fmt.Errorf("%d keys were deleted and inserted with %d round trips", keys/2, trips)
	}
	if _, err := x.Give(nil, nil); err != nil { // writes all back
		return err
	}
	if err := x.Take(pool.Holding{Epoch: 2}); err != nil {
		return err
	}
	for n := range uint64(keys) {
		got, err := s.Lookup(key(n), nil)
		if err != nil || string(got) != string(value(n, rounds)) {
			return fmt.Errorf("key %d has %q, %v; %q was put", n, got, err, value(n, rounds))
		}
	}
	if _, err := x.(index.Checker).Check(); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	return x.Close()
}

// TestMixturesAreReadAgain: what a lookup READs of a leaf without a frame lacks a key that is there
// all the time, as may be beside a flush of one WRITE for which the key went to another slot. By
// then the leaf has a frame. The lookup must find the key.
func TestMixturesAreReadAgain(t *testing.T) {
	inSimulation(t, poolsim.Options{Servers: 1, Chunks: 60, ChunkBytes: 64 << 10, Locks: 64, Fabric: sim.Options{Capabilities: verbs.Capabilities{WholeWrite: 4096, WholeAlways: true}}}, mixtures)
}

func mixtures(c *poolsim.Cluster, p *simenv.Process) error {
	const keys, node = 400, 256
	device := &hookedDevice{Device: c.Fabric.Device(p)}
	x, reader, err := openAll(c, p, device, index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: node, CacheBytes: 16 << 10,
		Switches: map[string]bool{"offloading": false}})
	if err != nil {
		return err
	}
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<40) }
	if err := x.BulkLoad(func(yield func(k, v []byte) bool) error {
		for n := uint64(0); n < keys && yield(key(n), []byte("old")); n++ {
		}
		return nil
	}, 1); err != nil {
		return err
	}
	other, err := x.Session()
	if err != nil {
		return err
	}
	mixed := 0
	for round := 0; round < 20 && mixed < 20; round++ {
		for n := range uint64(keys) {
			for hot := uint64(0); hot < 60; hot += 7 { // leaves that are worth their frames
				if _, err := reader.Lookup(key(hot), nil); err != nil {
					return err
				}
			}
			read, met := pool.Addr(0), false
			device.begin = func(list []verbs.Request) error {
				if a := pool.NewAddr(1, list[0].Remote); len(list) == 1 && list[0].Op == verbs.Read && len(list[0].Local) == node && !dex.Framed(x, a) {
					read, device.begin = a, nil
				}
				return nil
			}
			device.over = func(list []verbs.Request) error {
				if read == 0 || len(list) != 1 || list[0].Op != verbs.Read || pool.NewAddr(1, list[0].Remote) != read {
					return nil
				}
				device.over = nil
				if err := other.Update(key(n), []byte("new")); err != nil {
					return err
				}
				met = dex.Framed(x, read) && dex.TakeOut(x, read, list[0].Local, key(n))
				return nil
			}
			_, err := reader.Lookup(key(n), nil)
			device.begin, device.over = nil, nil
			if err != nil {
				return fmt.Errorf("key %d, which is there all the time (READ without it: %v): %w", n, met, err)
			}
			if met {
				mixed++
			}
		}
	}
	if mixed == 0 {
		return errors.New("no leaf that was READ had a frame by then: this tests nothing")
	}
	return nil
}
