package memserver

import (
	"testing"
)

// BenchmarkAllocate takes and gives back a chunk: two control calls, two stored ledgers, one zeroing beside it.
func BenchmarkAllocate(b *testing.B) {
	c := dirConfig(b.TempDir())
	c.MemoryBytes = 1 << 30
	s, _ := start(b, c)
	cl := client(b, s.Addresses().Control, "a", "tcp", nil)
	must(cl.Admit(1000, 0, limit))
	for b.Loop() {
		if err := cl.FreeChunk(7, 1, must(cl.AllocateChunk(7, 1, limit)), limit); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkZero is what zeroing costs once the pages are there.
func BenchmarkZero(b *testing.B) {
	c := dirConfig(b.TempDir())
	c.ChunkBytes, c.MemoryBytes = 8<<20, 64<<20
	s := must(New(c))
	defer s.Close()
	b.SetBytes(8 << 20)
	for b.Loop() {
		s.region.zeroChunk(3)
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
