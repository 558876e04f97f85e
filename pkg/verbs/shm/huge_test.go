//go:build hugepages

package shm_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// TestHugePages: regions in huge pages, which they do not fill, are mapped, used and given back. It
// needs two free huge pages (vm.nr_hugepages), so it is behind a build tag; make rdma runs it on a
// machine that has them.
func TestHugePages(t *testing.T) {
	const page, size = 2 << 20, 256 << 10
	var memory []verbs.Memory
	for id := range verbs.RegionID(2) {
		fd, err := unix.MemfdCreate("huge", unix.MFD_HUGETLB|unix.MFD_HUGE_2MB|unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal("no huge pages of 2 MiB: ", err)
		}
		file := os.NewFile(uintptr(fd), "huge")
		t.Cleanup(func() { file.Close() })
		if err := file.Truncate(page); err != nil {
			t.Fatal(err)
		}
		b, err := unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal("no free huge page; set vm.nr_hugepages to 2: ", err)
		}
		t.Cleanup(func() { unix.Munmap(b) })
		memory = append(memory, verbs.Memory{ID: id, Bytes: b[:size], File: file})
	}
	tokens := new(verbstest.Tokens)
	address, s, err := start(t.TempDir(), verbs.ServerOptions{Memory: memory, Incarnation: 1, Admission: tokens})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := harness.Device()
	defer d.Close()
	arena, err := d.NewArena(1 << 12)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	b, err := arena.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	for n := range byte(3) {
		c, err := d.Connect(verbs.Target{Address: address, Token: tokens.Issue(verbs.Peer{Client: 1}), Incarnation: 1}, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		q, err := c.NewQP(arena)
		if err != nil {
			t.Fatal(err)
		}
		b[0] = n + 1
		if err := verbs.Post(q, []verbs.Request{{Op: verbs.Write, Remote: size - 8, Local: b}}); err != nil {
			t.Fatal(err)
		}
		if got := memory[0].Bytes[size-8]; got != n+1 {
			t.Errorf("the server sees %d, want %d", got, n+1)
		}
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}
