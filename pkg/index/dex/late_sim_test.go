package dex_test

import (
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

// TestEntriesOfLateAnswers: between a lookup's READ of a leaf and its answer, another session
// changes the key, and the leaf leaves the cache again. What was READ must not be kept then:
// neither the entry, nor the leaf, by a change that comes next.
func TestEntriesOfLateAnswers(t *testing.T) {
	inSimulation(t, poolsim.Options{Servers: 1, Chunks: 40, ChunkBytes: 64 << 10, Locks: 64, Fabric: sim.Options{}}, func(c *poolsim.Cluster, p *simenv.Process) error {
		return lateAnswers(t, c, p)
	})
}

func lateAnswers(t *testing.T, c *poolsim.Cluster, p *simenv.Process) error {
	const keys, node = 4000, 512
	late := newLateDevice(c.Fabric.Device(p), node)
	opts := index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: node, CacheBytes: 32 << 10}
	x, reader, err := openAll(c, p, late, opts)
	if err != nil {
		return err
	}
	writer, err := x.Session()
	if err != nil {
		return err
	}
	for n := range uint64(keys) {
		if err := writer.Upsert(simKey(n), fmt.Appendf(nil, "%d", n)); err != nil {
			return err
		}
	}
	reads := func() uint64 { n := reader.Counters(); return uint64(n.Requests[verbs.Read]) }
	changed, was, kept := 0, 0, 0
	for n := uint64(0); n < keys; n += 7 {
		for hot := uint64(0); hot < 1000; hot += 5 { // leaves that are worth their frames
			if _, err := reader.Lookup(simKey(hot), nil); err != nil {
				return err
			}
		}
		if n%2 == 0 {
			late.after = func(a pool.Addr) error {
				if dex.Framed(x, a) { // the reader has its lock
					return nil
				}
				changed++
				if err := writer.Upsert(simKey(n), []byte("new")); err != nil {
					return err
				}
				return dex.Forget(x, a)
			}
		}
		if _, err := reader.Lookup(simKey(n), nil); err != nil {
			return err
		}
		met := changed > was
		was, late.after = changed, nil
		if met && n%4 == 0 { // of the same leaf, most of the time
			if err := reader.Upsert(simKey(n+1), []byte("beside")); err != nil {
				return err
			}
		}
		before := reads()
		v, err := reader.Lookup(simKey(n), nil)
		if err != nil {
			return err
		}
		if !met && reads() == before {
			kept++
		}
		if met && string(v) != "new" {
			return fmt.Errorf("key %d is %q, and was changed before the lookup began", n, v)
		}
	}
	t.Logf("%d keys changed between READ and answer; %d others found in the cache the second time", changed, kept)
	if changed < 100 || kept < 100 {
		t.Errorf("%d keys changed between READ and answer; %d others found in the cache the second time: this tests nothing", changed, kept)
	}
	return nil
}

// lateDevice does something once after a READ of a node, before its answer is there for whoever
// waits for it.
type lateDevice struct {
	hookedDevice
	after func(pool.Addr) error
}

// newLateDevice makes one for nodes of so many bytes, on the only memory server.
func newLateDevice(d verbs.Device, node int) *lateDevice {
	late := &lateDevice{hookedDevice: hookedDevice{Device: d}}
	late.over = func(list []verbs.Request) error {
		read := pool.Nil // the node that the list READs last
		for i := range list {
			if list[i].Op == verbs.Read && len(list[i].Local) == node {
				read = pool.NewAddr(1, list[i].Remote)
			}
		}
		do := late.after
		if read == pool.Nil || do == nil {
			return nil
		}
		late.after = nil
		return do(read)
	}
	return late
}
