package pool_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestTenSizesTakeOneChunk: a client with nodes of ten sizes needs one chunk of each server.
func TestTenSizesTakeOneChunk(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Chunks: 12, ChunkBytes: 8 << 20})
	p := c.Open(t)
	for size := 100; size <= 1000; size += 100 {
		for range 20 {
			_, err := p.Allocate(size, pool.Nil)
			must(t, err)
		}
	}
	if n := c.UsedChunks(); n != len(p.Servers()) {
		t.Errorf("nodes of ten sizes take %d chunks of %d servers", n, len(p.Servers()))
	}
}

// TestSlabsChangeTheirClass: what a class gave back serves others; no two nodes in use overlap, and
// the table of a chunk says each of them. A node that was never handed out is zero, whatever its
// slab was before.
func TestSlabsChangeTheirClass(t *testing.T) {
	const chunks = 3
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: chunks, ChunkBytes: 1 << 20})
	p := c.Open(t)
	s := session(t, p)
	junk := buffer(t, s, 1024)
	for i := range junk {
		junk[i] = 0xA5
	}
	sizes := []int{64, 192, 1024, 1088, 9000, 33000, 150 << 10}
	random := rand.New(rand.NewPCG(7, 7))
	type node struct {
		a    pool.Addr
		size int
	}
	var there []node
	inUse := map[pool.Addr]node{} // by each 64 bytes
	known := map[node]bool{}      // nodes that were written
	full := 0
	for step := range 60 {
		size := sizes[random.IntN(len(sizes))]
		for range 1 + random.IntN(2<<20/size) {
			a, err := p.Allocate(size, pool.Nil)
			if errors.Is(err, pool.ErrPoolFull) {
				full++
				break
			}
			must(t, err)
			n := node{a, size}
			if memory := c.Memory(1, verbs.RegionData)[a.Offset():][:size]; !known[n] && bytes.IndexByte(memory, 0xA5) >= 0 {
				t.Fatalf("step %d: node %v of %d bytes was never handed out, and is not zero", step, a, size)
			}
			for off := 0; off < size; off += 64 {
				if other, ok := inUse[a+pool.Addr(off)]; ok {
					t.Fatalf("step %d: node %v of %d bytes overlaps %v of %d", step, a, size, other.a, other.size)
				}
				inUse[a+pool.Addr(off)] = n
			}
			s.Write(pool.Sole, a, junk[:min(size, len(junk))])
			must(t, s.Post())
			known[n] = true
			there = append(there, n)
		}
		checkTable(t, c, there[max(0, len(there)-100):], func(n node) (pool.Addr, int) { return n.a, n.size })
		random.Shuffle(len(there), func(i, j int) { there[i], there[j] = there[j], there[i] })
		keep := random.IntN(len(there)+1) * (step % 3) / 3
		for _, n := range there[keep:] {
			for off := 0; off < n.size; off += 64 {
				delete(inUse, n.a+pool.Addr(off))
			}
			p.Free(n.a, n.size)
		}
		there = there[:keep]
	}
	if full == 0 {
		t.Error("the pool was never full")
	}
	if n := c.UsedChunks(); n > chunks {
		t.Errorf("%d chunks", n)
	}
}

// TestVacantChunkOfAnotherUnit: a pool is not full while a chunk of this client is vacant, be it
// one for large nodes or one for small ones.
func TestVacantChunkOfAnotherUnit(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 1, ChunkBytes: 1 << 20})
	p := c.Open(t)
	for _, size := range []int{400 << 10, 64, 400 << 10, 900 << 10, 1024} {
		a, err := p.AllocateBlock(size, pool.Nil)
		if err != nil {
			t.Fatalf("a node of %d bytes: %v", size, err)
		}
		p.Free(a, size)
	}
}

// checkTable fails unless the tables of the server's chunks say all these nodes.
func checkTable[N any](t *testing.T, c *pooltest.Cluster, nodes []N, of func(N) (pool.Addr, int)) {
	t.Helper()
	memory, size := c.Memory(1, verbs.RegionData), uint64(c.Options.ChunkBytes)
	for _, n := range nodes {
		a, nodeBytes := of(n)
		from := a.Offset() / size * size
		slabs, unknown := pool.Slabs(memory[from:][:size], pool.NewAddr(1, from), size)
		found := unknown > 0
		for _, k := range slabs {
			if a >= k.First && a < k.First+pool.Addr(k.Nodes*k.NodeBytes) {
				found = int(a-k.First)%k.NodeBytes == 0 && k.NodeBytes == (nodeBytes+63)&^63
			}
		}
		if !found {
			t.Fatalf("node %v of %d bytes is not in the table of its chunk", a, nodeBytes)
		}
	}
}

// TestStrips: each node of a size with lock words has one of its own, which every client finds, and
// no node lies over it. It is zero at first, and atomics change it.
func TestStrips(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Chunks: 3})
	p, other := c.Open(t), c.Open(t)
	s := session(t, p)
	old := buffer(t, s, 8)
	words := map[pool.Addr]pool.Addr{} // whose each is
	sizes := []int{64, 320, 1024, 5000, 70 << 10}
	var strips, theirs []*pool.Strips
	for _, size := range sizes {
		mine, err := p.DeclareStrip(size)
		must(t, err)
		others, err := other.DeclareStrip(size)
		must(t, err)
		strips, theirs = append(strips, mine), append(theirs, others)
	}
	lines := map[pool.Addr]bool{} // of 64 bytes: of nodes
	for n := range 1000 {
		i := n % len(sizes)
		if n >= 20 {
			i = n % 3
		}
		a, err := p.Allocate(sizes[i], pool.Nil)
		must(t, err)
		for off := 0; off < sizes[i]; off += 64 {
			lines[a+pool.Addr(off)] = true
		}
		w, err := strips[i].WordOf(a)
		must(t, err)
		if again, err := theirs[i].WordOf(a); err != nil || again != w || w%8 != 0 || w.Server() != a.Server() {
			t.Fatalf("the lock word of %v is %v to its client, %v to another: %v", a, w, again, err)
		}
		if whose, ok := words[w]; ok {
			t.Fatalf("%v and %v have the lock word %v", whose, a, w)
		}
		words[w] = a
		s.FetchAdd(w, uint64(n)+1, old)
		must(t, s.Post())
		if string(old) != string(make([]byte, 8)) {
			t.Fatalf("the lock word of a new node is %x", old)
		}
	}
	for w, a := range words {
		if lines[w&^63] {
			t.Fatalf("the lock word %v of %v lies in a node", w, a)
		}
	}
	if _, err := strips[0].WordOf(pool.NewAddr(1, 1)); err == nil {
		t.Error("what is no node has a lock word")
	}
}
