package memserver

import (
	"fmt"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/internal/region"
)

// BenchmarkAllocate takes and gives back a chunk: two control calls, two stored ledgers, one
// zeroing beside it.
func BenchmarkAllocate(b *testing.B) {
	c := dirConfig(b.TempDir())
	c.MemoryBytes = 1 << 30
	s, _ := start(b, c)
	cl := client(b, s.Addresses().Control, "a", "tcp", nil)
	must(cl.Admit(1000, 0, limit))
	for b.Loop() {
		if err := cl.FreeChunk(7, 1, must(cl.AllocateChunk(7, 1, 1024, false, limit)), limit); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkZero is what zeroing costs once the pages are there and no cache has them.
func BenchmarkZero(b *testing.B) {
	c := dirConfig(b.TempDir())
	c.ChunkBytes, c.MemoryBytes = 8<<20, 1<<30
	s := must(New(c))
	defer s.Close()
	b.SetBytes(8 << 20)
	n := s.region.Chunks()
	for i := range n {
		if err := s.region.ZeroChunk(1 + i); err != nil {
			b.Fatal(err)
		}
	}
	i := uint32(0)
	for b.Loop() {
		if err := s.region.ZeroChunk(1 + i%n); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkStart finds a region of 1 GiB again and listens.
func BenchmarkStart(b *testing.B) {
	c := dirConfig(b.TempDir())
	c.MemoryBytes = 1 << 30
	must(New(c)).Close()
	for b.Loop() {
		must(New(c)).Close()
	}
}

// BenchmarkReserve takes all pages of a new region of 1 GiB.
func BenchmarkReserve(b *testing.B) {
	for b.Loop() {
		c := dirConfig(b.TempDir())
		c.MemoryBytes, c.Reserve = 1<<30, true
		must(New(c)).Close()
	}
	b.SetBytes(1 << 30)
}

// BenchmarkJoin lets a copy join a memory that is full, of 1 GiB in anonymous memory, until it is
// in sync.
func BenchmarkJoin(b *testing.B) {
	c := localConfig(b)
	c.Shm, c.Pod, c.MemoryBytes, c.ChunkBytes = "", "primary", 1<<30, 8<<20
	a := startCopyOf(b, c, nil, "")
	a.obey(view(1, c.Pod))
	noise := make([]byte, region.PieceBytes)
	for i := range noise {
		noise[i] = byte(i) | 1
	}
	full := a.region.Replica()
	for at := a.region.ChunkOffset(2); at < a.region.DataBytes; at += region.PieceBytes {
		if err := full.Put(at, noise); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(a.region.DataBytes))
	view := uint64(1)
	for b.Loop() {
		c := c
		c.Pod = fmt.Sprintf("copy-%d", view)
		copy := startCopyOf(b, c, nil, "")
		view++
		join(a, copy, view)
		b.StopTimer()
		copy.stop()
		view++
		a.obey(&rpcv1.VolumeView{Number: view, Primary: a.proc()})
		b.StartTimer()
	}
}
