package memory

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

// TestHints: what is asked for stays as it is, wherever it begins and ends, and asking for what is not there does nothing.
func TestHints(t *testing.T) {
	all := make([]uint64, 3*hugePage/8)
	for i := range all {
		all[i] = uint64(i)
	}
	for _, part := range [][]uint64{nil, all[:0], all[:1], all[1 : hugePage/8], all[7 : 2*hugePage/8], all} {
		Huge(part)
		if len(part) > 0 {
			Line(unsafe.Pointer(&part[0]))
			Lines(unsafe.Pointer(&part[len(part)-1]))
		}
	}
	Line(nil)
	Lines(nil)
	for i := range all {
		if all[i] != uint64(i) {
			t.Fatalf("word %d is %d", i, all[i])
		}
	}
}

// TestHuge: where the kernel gives huge pages to who asks for them, they are asked for.
func TestHuge(t *testing.T) {
	mode, _ := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if !strings.Contains(string(mode), "[madvise]") {
		return // elsewhere nobody has to ask, or nobody gets them
	}
	s := make([]uint64, 8*hugePage/8)
	flags := func() int {
		maps, err := os.ReadFile("/proc/self/smaps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(maps), " hg")
	}
	before := flags()
	Huge(s)
	if flags() == before {
		t.Error("no part of memory is marked")
	}
	runtime.KeepAlive(s)
}
