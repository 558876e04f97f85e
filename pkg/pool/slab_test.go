package pool

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// TestShapes: of nodes of any size in chunks of any size, runs lie side by side without overlap, a
// place in a chunk says which node begins there, and little is left over.
func TestShapes(t *testing.T) {
	for _, chunk := range []uint64{3072, 8 << 10, 16 << 10, 64 << 10, 100 << 10, 1 << 20, 8 << 20, 24 << 20, 64 << 20, 1 << 30} {
		g := geometryOf(chunk)
		if chunk >= 1<<20 && chunk <= 64<<20 && g.slab != 64<<10 || g.tables > chunk/16 {
			t.Errorf("a chunk of %d bytes has slabs of %d and a table of %d", chunk, g.slab, g.tables)
		}
		for size := nodeAlign; size <= g.mostNode(); size = roundNode(size + 1 + size/7) {
			for _, strip := range []bool{false, true} {
				checkShape(t, &g, g.shapeOf(size, strip), size)
			}
		}
		most := g.mostNode()
		if s := g.shapeOf(most, false); s.run != g.slabs {
			t.Errorf("a node of %d bytes in a chunk of %d: %+v", most, chunk, s)
		}
		if s := g.shapeOf(most+nodeAlign, false); s.run != 0 {
			t.Errorf("a node of %d bytes in a chunk of %d: %+v", most+nodeAlign, chunk, s)
		}
	}
}

func checkShape(t *testing.T, g *geometry, s shape, size int) {
	t.Helper()
	if s.run == 0 {
		if !s.strip {
			t.Fatalf("no room for nodes of %d bytes in a chunk of %d", size, g.chunk)
		}
		return
	}
	some, before, covered := 0, g.tables, uint64(0)
	runs := g.slabs / s.run
	for i := 0; i < runs; i++ {
		if i == 5 && runs > 10 {
			i = runs - 3
			before = 0
		}
		at := i * s.run
		strip, first, nodes := g.runAt(s, at)
		if strip < before || s.strip && first < strip+uint64(8*nodes) || first%nodeAlign != 0 {
			t.Fatalf("%+v in %+v: the run at %d begins at %d behind %d", s, g, at, first, before)
		}
		before = first + uint64(nodes*size)
		some += nodes
		if at > 0 {
			covered = uint64(nodes * size * runs)
		}
		for n := 0; n < nodes; n += 1 + nodes/7 {
			if in, index, ok := g.locate(s, first+uint64(n*size)); !ok || in != at || index != n {
				t.Fatalf("%+v in %+v: node %d of the run at %d is found as %d, %d, %v", s, g, n, at, in, index, ok)
			}
		}
		if _, _, ok := g.locate(s, first+1); ok && nodes > 0 {
			t.Fatalf("%+v in %+v: the midst of a node is one", s, g)
		}
	}
	if some == 0 || before > g.chunk {
		t.Fatalf("%+v in %+v: %d nodes, the last one ends at %d", s, g, some, before)
	}
	if g.chunk >= 1<<20 && size <= 8<<10 && (s.run != 1 || covered < (g.chunk-g.tables)*6/7) {
		t.Fatalf("%+v in %+v: %d bytes of nodes", s, g, covered)
	}
	if got, ok := s.word(g).decode(g); !ok || got != s {
		t.Fatalf("%+v in %+v is read as %+v, %v", s, g, got, ok)
	}
}

// TestSlabWordsThatSayNothing: a word that no client writes is found to be none, and each run is
// read once.
func TestSlabWordsThatSayNothing(t *testing.T) {
	const chunk = 1 << 20
	g := geometryOf(chunk)
	table := make([]byte, TableBytes(chunk))
	put := func(at int, w slabWord) { binary.LittleEndian.PutUint64(table[8*at:], uint64(w)) }
	put(1, g.shapeOf(1024, false).word(&g))
	large := g.shapeOf(120<<10, true)
	put(4, large.word(&g))
	put(5, g.shapeOf(64, false).word(&g)) // in the middle of a run: it is not read
	put(12, slabWord(0xD5<<56|1<<48))
	put(13, g.shapeOf(1024, false).word(&g)|1<<30)
	first := NewAddr(3, 5*chunk)
	all, unknown := Slabs(table, first, chunk)
	if large.run != 2 {
		t.Fatalf("%+v", large)
	}
	if unknown != 2 || len(all) != 2 || all[0].First != first+64<<10 || all[0].Nodes != 64 || all[0].Strip != Nil ||
		all[1].Strip != first+4*64<<10 || all[1].First != all[1].Strip+64 || all[1].Nodes != 1 {
		t.Errorf("%d unknown, %+v", unknown, all)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10000 { // whatever it is, it is read without a panic
		for i := range table {
			table[i] = byte(random.Uint32())
		}
		put(random.IntN(16), slabWord(random.Uint64()>>24|0xD5<<56))
		for _, k := range first1(Slabs(table, first, chunk)) {
			if end := k.First + Addr(k.Nodes*k.NodeBytes); end > first+chunk {
				t.Fatalf("%+v", k)
			}
		}
	}
}

func first1(all []Slab, _ int) []Slab { return all }

// TestLockSpread: nodes of any size, as they lie in slabs, share the locks of a table about as
// evenly as nodes side by side do.
func TestLockSpread(t *testing.T) {
	const chunk, chunks, locks = 8 << 20, 4, 16 << 10
	g := geometryOf(chunk)
	p := &Pool{dense: make([]atomic.Int32, 2)}
	p.list.Store(new([]*server))
	p.add(&server{id: 1, grant: Grant{Locks: locks}})
	spread := func(offsets iter.Seq[uint64]) (n, taken, most int) {
		var nodes [locks]int
		for o := range offsets {
			l, err := p.lockOf(NewAddr(1, o))
			if err != nil {
				t.Fatal(err)
			}
			if n++; nodes[l.index] == 0 {
				taken++
			}
			nodes[l.index]++
			most = max(most, nodes[l.index])
		}
		return n, taken, most
	}
	for _, strip := range []bool{false, true} {
		for _, size := range []int{64, 128, 192, 256, 512, 576, 1024, 1088, 2048, 4096} {
			s := g.shapeOf(size, strip)
			n, taken, most := spread(func(yield func(uint64) bool) {
				left := locks
				for i := range uint64(chunks * g.slabs) {
					_, first, count := g.runAt(s, int(i)%g.slabs)
					for at := range uint64(min(count, left)) {
						yield((1+i/uint64(g.slabs))*chunk + first + at*uint64(size))
					}
					left -= min(count, left)
				}
			})
			_, beside, _ := spread(func(yield func(uint64) bool) {
				for at := range uint64(n) {
					yield(chunk + at*uint64(size))
				}
			})
			t.Logf("%d nodes of %d bytes, strip %v: %d of %d locks, at most %d on one; %d side by side", n, size, strip, taken, locks, most, beside)
			// nodes of 1088 bytes, 60 in each slab, meet the hash where it is weakest
			if taken < beside*7/10 || most > 8 {
				t.Errorf("nodes of %d bytes, strip %v: %d of %d locks, %d side by side, at most %d on one", size, strip, taken, locks, beside, most)
			}
		}
	}
}
