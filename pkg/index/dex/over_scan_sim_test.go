package dex_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestScanEndsAtMixedSlots: a scan is about to READ leaves of a range that is given meanwhile. The
// next owner dies in its write-backs, so slots there do not verify until somebody takes the range.
// The scan does not wait for that: it ends.
func TestScanEndsAtMixedSlots(t *testing.T) {
	inSimulation(t, poolsim.Options{Servers: 1, Chunks: 60, ChunkBytes: 64 << 10, Locks: 64, Fabric: sim.Options{}}, scanToMixed)
}

func scanToMixed(c *poolsim.Cluster, p *simenv.Process) error {
	const kept, keys, node = 100, 200, 512
	device := &hookedDevice{Device: c.Fabric.Device(p)}
	x, s, err := openAll(c, p, device, index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: node, CacheBytes: 1 << 20})
	if err != nil {
		return err
	}
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	value := func(n uint64) []byte { return fmt.Appendf(nil, "value %08d", n) }
	for n := range uint64(keys) {
		if err := s.Upsert(key(n), value(n)); err != nil {
			return err
		}
	}
	if _, err := x.Give(nil, nil); err != nil { // writes back, and drops the frames
		return err
	}
	for i, r := range [][2][]byte{{nil, key(kept)}, {key(kept), nil}} {
		if err := x.Take(pool.Holding{Start: r[0], End: r[1], Epoch: uint64(2 + i)}); err != nil {
			return err
		}
	}
	mixed := false
	device.begin = func(list []verbs.Request) error {
		if list[0].Op != verbs.Read || len(list[0].Local) != node {
			return nil
		}
		leaf := nodeAt(c, pool.NewAddr(1, list[0].Remote), node)
		at := bytes.Index(leaf, value(kept))
		if at < 0 {
			return nil
		}
		device.begin = nil
		if _, err := x.Give(key(kept), nil); err != nil {
			return err
		}
		leaf[at], mixed = 'V', true
		return nil
	}
	shown := 0
	if err := s.Scan(key(kept), keys, false, func(_, _ []byte) bool { shown++; return true }); err != nil {
		return err
	}
	if shown > 0 || !mixed {
		return fmt.Errorf("the scan shows %d pairs of a range that was given; an entry of it was mixed: %v", shown, mixed)
	}
	return nil
}

// nodeAt returns the memory of the node at a.
func nodeAt(c *poolsim.Cluster, a pool.Addr, bytes int) []byte {
	for _, k := range c.Chunks() {
		if at := int(a - k.First); a >= k.First && at+bytes <= len(k.Memory) {
			return k.Memory[at : at+bytes]
		}
	}
	return nil
}
