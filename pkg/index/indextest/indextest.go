// Package indextest is the conformance suite of package index: every design passes it on every
// provider. A design's test calls [Run], and its TestMain calls [Main], since some tests start
// further processes.
//
// Random tests print their seed; DMINDEX_TEST_SEED replays one, DMINDEX_TEST_SCALE multiplies the
// amount of work (1 by default).
package indextest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// Suite says what is tested and what the design promises.
type Suite struct {
	Design index.Design
	Costs  Costs // at most, with inner nodes cached and without conflicts

	// FreeInserts: an insert of a new key takes no lock, and goes on where all are held.
	FreeInserts bool

	// Format: the suite is of another format of a design that passes all of it, or of a baseline of
	// benchmarks made of its code. Then it runs on shared memory alone, and without what does not
	// depend on the format.
	Format bool

	// CostsWith are those with some switches off; nil = they are not tested.
	CostsWith func(switches map[string]bool) Costs
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	if s.Format {
		if testing.Short() { // goroutines meet the same code in the other format
			return
		}
		r := runner{Suite: s, provider: "shm"}
		t.Run("Linearizable", r.linearizable)
		t.Run("Scans", r.scans)
		t.Run("Model", r.model)
		t.Run("SmallTree", r.smallTree)
		t.Run("Cost", r.cost)
		t.Run("LongCost", r.longCost)
		t.Run("BulkLoad", r.bulkLoad)
		t.Run("SpaceBack", r.spaceBack)
		t.Run("Format", r.format)
		return
	}
	for _, provider := range pooltest.Providers() {
		t.Run(provider, func(t *testing.T) {
			r := runner{Suite: s, provider: provider}
			// Under the race detector that fabric is enough which writes buffers on goroutines of
			// its own.
			if provider != "shm" || !testing.Short() {
				r.onFabric(t)
			}
			if provider != "shm" { // nothing of the fabric is in what follows
				return
			}
			t.Run("Switches", r.switched)
			if !testing.Short() {
				t.Run("Space", r.space)
				if !invariants.Enabled { // checks allocate
					t.Run("Allocations", r.allocations)
				}
			}
		})
	}
}

// onFabric runs what meets each fabric; under the race detector, what several sessions do at once.
func (r *runner) onFabric(t *testing.T) {
	t.Run("Linearizable", r.linearizable)
	t.Run("Counters", r.counters)
	t.Run("Scans", r.scans)
	t.Run("BulkLoad", r.bulkLoad)
	t.Run("SpaceBack", r.spaceBack)
	t.Run("Cut", r.cut)
	if testing.Short() {
		return
	}
	t.Run("Model", r.model)
	t.Run("SmallTree", r.smallTree)
	if r.Design.SharesAll { // who serves what is not decided here
		t.Run("Processes", r.processes)
		t.Run("Killed", r.killed)
	}
	t.Run("Cost", r.cost)
	t.Run("LongCost", r.longCost)
	t.Run("Full", r.full)
	t.Run("LongSpaceBack", r.longSpaceBack)
	t.Run("LongFull", r.longFull)
	t.Run("Format", r.format)
	t.Run("Refusals", r.refusals)
	t.Run("ModifyRefusals", r.modifyRefusals)
	if r.Design.SharesAll { // others change leaves without their locks
		t.Run("Deadline", r.deadline)
	}
}

type runner struct {
	Suite
	provider string
	brief    bool // of many runs of the same test
	turn     int  // of very many runs, which one this is, from 1 on; 0 = of none
	// changes those that indexes are opened with; nil = none
	options func(index.Options) index.Options
	fleet   *fleet // of the last cluster, if ranges have owners
}

// scale multiplies the work of a test.
func scale(n int) int {
	if f, err := strconv.ParseFloat(os.Getenv("DMINDEX_TEST_SCALE"), 64); err == nil && f > 0 {
		return max(1, int(f*float64(n)))
	}
	return n
}

// seeded makes a random source and says, if the test fails, how to replay it.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("DMINDEX_TEST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with DMINDEX_TEST_SEED=%d go test -run '^%s$'", seed, t.Name())
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

// cluster starts memory servers; large is for tests that need more than a few MiB.
func (r *runner) cluster(t testing.TB, chunks int) *pooltest.Cluster {
	t.Helper()
	return r.start(t, pooltest.Options{Chunks: chunks})
}

// start is cluster with options of the test.
func (r *runner) start(t testing.TB, o pooltest.Options) *pooltest.Cluster {
	t.Helper()
	r.fleet = &fleet{}
	o.Provider, o.Executor = r.provider, r.Design.Executor
	return pooltest.New(t, o)
}

// roomyCache bounds the cache of a client that keeps all that a test uses. Designs make room for a
// whole cache when they open: for those of their own, which are eight times as large, that took a
// large part of the time of short tests.
const roomyCache = 8 << 20

// roomy is o with that bound, unless it has another one.
func roomy(o index.Options) index.Options {
	if o.CacheBytes == 0 {
		o.CacheBytes = roomyCache
	}
	return o
}

// open opens the index in p.
func (r *runner) open(t testing.TB, p *pool.Pool, o index.Options) index.Index {
	t.Helper()
	o = roomy(o)
	if r.options != nil {
		o = r.options(o)
	}
	x, err := r.Design.Open(p, o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Design.SharesAll {
		x = r.fleet.join(t, x, o)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("close the index: %v", err)
		}
	})
	return x
}

func session(t testing.TB, x index.Index) index.Session {
	t.Helper()
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.SetLimit(patience)
	return s
}

// check walks the whole structure, if the design can.
func check(t testing.TB, x index.Index) index.Structure {
	t.Helper()
	c, ok := x.(index.Checker)
	if !ok {
		t.Fatal("the design has no checker")
	}
	found, err := c.Check()
	if err != nil {
		t.Errorf("check of the structure: %v", err)
	}
	if v, ok := x.(index.Surveyor); ok {
		survey(t, v, &found)
	}
	return found
}

// survey compares where leaves begin with what the checker found.
func survey(t testing.TB, x index.Surveyor, found *index.Structure) {
	t.Helper()
	var last []byte
	leaves, size := 0, 0
	err := x.Survey(func(low []byte, bytesOf int) error {
		if leaves > 0 && bytes.Compare(low, last) <= 0 {
			return fmt.Errorf("a leaf begins at %x behind one that begins at %x", low, last)
		}
		last = append(last[:0], low...)
		leaves++
		size += bytesOf
		return nil
	})
	inner := found.Nodes - leaves - found.Unlinked
	if err != nil || leaves == 0 || inner < found.Levels-1 || uint64(size) > found.NodeBytes {
		t.Errorf("a survey finds %d leaves of %d bytes: %v; the checker %+v", leaves, size, err, *found)
	}
	all := uint64(0)
	for i, p := range found.Memory {
		if i > 0 && p.Addr < found.Memory[i-1].Addr+pool.Addr(found.Memory[i-1].Bytes) {
			t.Errorf("%+v and %+v overlap", found.Memory[i-1], p)
		}
		all += uint64(p.Bytes)
	}
	if n := len(found.Memory); n != found.Nodes+found.Blocks || all != found.NodeBytes+found.BlockBytes {
		t.Errorf("%d pieces of memory with %d bytes: %d nodes with %d and %d blocks with %d", n, all, found.Nodes, found.NodeBytes, found.Blocks, found.BlockBytes)
	}
}

// number is a uint64 key.
func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// pair is what a scan visits.
type pair struct{ key, value string }

// scan collects what a scan visits.
func scan(s index.Session, start []byte, limit int, reverse bool) (got []pair, err error) {
	err = s.Scan(start, limit, reverse, func(k, v []byte) bool {
		got = append(got, pair{string(k), string(v)})
		return true
	})
	return got, err
}

// ordered reports whether pairs are in strict order.
func ordered(pairs []pair, reverse bool) error {
	for i := 1; i < len(pairs); i++ {
		a, b := pairs[i-1].key, pairs[i].key
		if reverse {
			a, b = b, a
		}
		if a >= b {
			return fmt.Errorf("scan visits %x after %x", pairs[i].key, pairs[i-1].key)
		}
	}
	return nil
}

// wantError fails unless err is target.
func wantError(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", what, err, target)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience bounds what must not hang, on a machine that is busy with other things, or stands still
// for seconds.
const patience = 30 * time.Second
