package dex_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestChangesInPlace: keys that are there change again and again without a round trip, and the
// memory server has all of it in the end.
func TestChangesInPlace(t *testing.T) {
	dex.OnFabrics(t, func(t *testing.T, o sim.Options) {
		inSimulation(t, poolsim.Options{Servers: 2, Chunks: 60, ChunkBytes: 64 << 10, Locks: 64, Fabric: o}, changesInPlace)
	})
}

func changesInPlace(c *poolsim.Cluster, p *simenv.Process) error {
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
	for n := uint64(0); n < keys; n += 2 { // full leaves are written back, and have room again
		if err := s.Delete(key(n)); err != nil {
			return err
		}
		if err := s.Insert(key(n), value(n, rounds)); err != nil {
			return err
		}
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
