package indextest

import (
	"bytes"
	"fmt"
	"sort"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// space loads keys of 20 to 200 bytes into an index made for 256, in random and in sorted order:
// its nodes may take at most twice the bytes of keys and values.
func (r *runner) space(t *testing.T) {
	random := seeded(t)
	const n = 20000
	keys := make([][]byte, n)
	for i := range keys {
		k := make([]byte, 20+random.IntN(181))
		for j := range k {
			k[j] = byte('a' + random.IntN(26))
		}
		copy(k, fmt.Sprintf("/tenant%d/", random.IntN(4)))
		keys[i] = k
	}
	for _, sorted := range []bool{false, true} {
		for _, value := range []int{8, 32} {
			t.Run(fmt.Sprintf("sorted=%v/value=%d", sorted, value), func(t *testing.T) {
				if sorted {
					sort.Slice(keys, func(i, j int) bool { return bytes.Compare(keys[i], keys[j]) < 0 })
				}
				c := r.cluster(t, 64)
				x := r.open(t, c.Open(t), index.Options{MaxKeyBytes: 256, MaxValueBytes: value})
				s := session(t, x)
				for _, k := range keys {
					must(t, s.Upsert(k, k[:min(value, len(k))]))
				}
				found := check(t, x)
				ratio := float64(found.NodeBytes) / float64(found.PairBytes)
				t.Logf("%d nodes on %d levels, %d bytes for %d of keys and values: %.2f", found.Nodes, found.Levels, found.NodeBytes, found.PairBytes, ratio)
				if ratio > 2 || found.Pairs != n || found.Unlinked != 0 {
					t.Errorf("ratio %.2f, %+v", ratio, found)
				}
			})
		}
	}
}

// spaceBack loads an index with one client and empties it with another one: what is left is the
// chunk on each server that either client keeps for its next nodes, and that of the root: where
// nodes have many sizes, as in SMART, its size may have a chunk of its own. Meanwhile a third one
// goes on reading.
func (r *runner) spaceBack(t *testing.T) {
	const servers, all = 2, 20000
	n := scale(all)
	r.fleet = &fleet{}
	c := r.start(t, pooltest.Options{Servers: servers, Chunks: 512, ChunkBytes: 16 << 10, RenewEvery: time.Millisecond})
	most, nodes := 2*servers+1, 8
	if !r.Design.SharesAll {
		// Each client has an open chunk on each server, and a redo log. No leaf belongs to two
		// ranges, so each range keeps a leaf, which may be alone in its chunk; so may the root.
		most = 3*servers + 3 + mostRanges + 1
		n = scale(all * 2)
		nodes += 2 * mostRanges
	}
	if testing.Short() { // under the race detector it takes minutes, and what races needs no more
		n /= 8
	}
	o := index.Options{Uint64: true, MaxValueBytes: 8}
	x := r.open(t, c.Open(t), o)
	loader, deleter, reader := session(t, x), session(t, r.open(t, c.Open(t), o)), session(t, r.open(t, c.Open(t), o))
	key := func(i int) []byte { return number(uint64(i) * 0x9E3779B97F4A7C15) }
	for i := range n {
		must(t, loader.Insert(key(i), number(uint64(i))))
	}
	loaded := c.UsedChunks()
	t.Logf("%d chunks are loaded, %d may be left", loaded, most)
	if loaded < 4*most && n >= all {
		t.Fatalf("%d chunks are loaded: that %d are left would prove little", loaded, most)
	}
	for i := range n {
		must(t, deleter.Delete(key(i)))
	}
	i := 0
	awaitChunks(c, most, func() {
		if _, err := reader.Lookup(key(i%n), nil); err != index.ErrNotFound {
			t.Fatalf("lookup of what was deleted: %v", err)
		}
		i++
	})
	if left := c.UsedChunks(); left > most {
		t.Errorf("of %d chunks %d are left", loaded, left)
	}
	// A merge whose locks somebody holds is left to the next delete, so some empty leaves may stay.
	if found := r.audited(t, c, x); found.Pairs != 0 || found.Nodes > nodes {
		t.Errorf("what is left: %+v", found)
	}
}

// audited is check, and compares the survey of the index with what its clients allocated: nothing
// of it lies elsewhere or is in their hands, and next to nothing else is handed out. With a log,
// that and what changes replaced lately.
func (r *runner) audited(t *testing.T, c *pooltest.Cluster, x index.Index) index.Structure {
	t.Helper()
	found := check(t, x)
	report, err := c.Audit(found.Parts())
	if err != nil {
		t.Errorf("audit: %v", err)
	}
	most, lost := 0, 0
	if !r.Design.SharesAll {
		most = mostUnlisted
	}
	for _, n := range report.Lost {
		if n.Living && !n.Dead {
			lost++
		}
	}
	t.Logf("%d nodes of the index, %d that nobody has, %d on their way back or lost", report.Parts, report.Free, len(report.Lost))
	if lost > most {
		t.Errorf("%d nodes are handed out, and are no part of the index", lost)
	}
	return found
}

// mostUnlisted is how many nodes clients of a design with owners have that are no part of the
// index: their logs, and 32 blocks for each session that waits to give them back, and for the
// client.
const mostUnlisted = 8 * 65

// awaitChunks does something until at most so many chunks are used, or for a minute none has come
// back.
func awaitChunks(c *pooltest.Cluster, most int, do func()) {
	used, end := c.UsedChunks(), time.Now().Add(time.Minute)
	for now := used; now > most && time.Now().Before(end); now = c.UsedChunks() {
		if now < used {
			used, end = now, time.Now().Add(time.Minute)
		}
		do()
	}
}

// longSpaceBack loads long values with one client, replaces half of them with another one and
// deletes all of them with a third: of their memory at most a tenth is left, but for a chunk of
// each size on each server that a client keeps for what comes next.
func (r *runner) longSpaceBack(t *testing.T) {
	const servers, sizes = 2, 2
	n := scale(6000)
	c := r.start(t, pooltest.Options{Servers: servers, Chunks: 256, ChunkBytes: 64 << 10, RenewEvery: time.Millisecond})
	o := index.Options{Uint64: true, MaxValueBytes: 1000, InlineBytes: 50}
	x := r.open(t, c.Open(t), o)
	loader, changer, deleter := session(t, x), session(t, r.open(t, c.Open(t), o)), session(t, r.open(t, c.Open(t), o))
	key := func(i int) []byte { return number(uint64(i) * 0x9E3779B97F4A7C15) }
	value := make([]byte, 1000)
	for i := range n {
		must(t, loader.Insert(key(i), value))
	}
	loaded := c.UsedChunks()
	for i := range n {
		if i%2 == 0 {
			must(t, changer.Update(key(i), value[:990]))
		}
	}
	changed := c.UsedChunks()
	for i := range n {
		must(t, deleter.Delete(key(i)))
	}
	kept := 3*servers*sizes + loaded/10
	awaitChunks(c, kept, func() {
		if _, err := changer.Lookup(key(0), nil); err != index.ErrNotFound {
			t.Fatalf("lookup of what was deleted: %v", err)
		}
	})
	left := c.UsedChunks()
	t.Logf("%d chunks loaded, %d when half of the values were replaced, %d in the end", loaded, changed, left)
	if left > kept {
		t.Errorf("of %d chunks %d are left, at most %d may be", loaded, left, kept)
	}
	if found := r.audited(t, c, x); found.Pairs != 0 || found.Blocks != 0 {
		t.Errorf("what is left: %+v", found)
	}
}

// allocations checks that point operations do not allocate.
func (r *runner) allocations(t *testing.T) {
	for _, o := range []index.Options{{Uint64: true, MaxValueBytes: 8}, {MaxKeyBytes: 32, MaxValueBytes: 64}, {MaxKeyBytes: 32, MaxValueBytes: 64, InlineBytes: 1}} {
		c := r.cluster(t, 8)
		x := r.open(t, c.Open(t), o)
		if m, ok := x.(*member); ok { // whose owner has all keys
			x = m.Partitioned
		}
		s := session(t, x)
		for i := range 2000 {
			must(t, s.Insert(number(uint64(i)*2), number(7)))
		}
		key, absent, dst := number(100), number(101), make([]byte, 0, 64)
		var batch [][]byte
		for n := range uint64(100) {
			batch = append(batch, number(n*37))
		}
		i := uint64(0)
		keepOrPut := func([]byte, bool) ([]byte, index.Action) {
			i++
			dst = append(dst[:0], byte(i), byte(i))
			return dst, index.Action(i % 2) // Keep, Put
		}
		for what, do := range map[string]func() error{
			"lookup": func() error { _, err := s.Lookup(key, dst); return err },
			"miss": func() error {
				if _, err := s.Lookup(absent, dst); err != index.ErrNotFound {
					return fmt.Errorf("lookup: %w", err)
				}
				return nil
			},
			"upsert": func() error { i++; dst = append(dst[:0], byte(i), byte(i)); return s.Upsert(key, dst) },
			"update": func() error { return s.Update(key, dst[:0]) },
			"insert and delete": func() error {
				if err := s.Insert(absent, dst[:0]); err != nil {
					return err
				}
				return s.Delete(absent)
			},
			"batch":  func() error { return s.LookupBatch(batch, func(int, []byte, error) {}) },
			"modify": func() error { return s.Modify(key, keepOrPut) },
			"scan":   func() error { return s.Scan(key, 50, false, func(_, _ []byte) bool { return true }) },
		} {
			// Others of this process may allocate, too, now and then.
			if n := testing.AllocsPerRun(2000, func() { must(t, do()) }); n != 0 {
				t.Errorf("%s (uint64=%v): %.1f allocations", what, o.Uint64, n)
			}
		}
	}
}
