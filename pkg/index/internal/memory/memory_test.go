package memory

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// TestHints: what is asked for stays as it is, wherever it begins and ends, and asking for what is
// not there does nothing.
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

// TestHuge: where the kernel gives huge pages to who asks for them, they are asked for. What is
// looked at is the part of the address space that the middle of the slice lies in: parts that are
// marked alike and touch become one, so their number says nothing.
func TestHuge(t *testing.T) {
	mode, _ := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if !strings.Contains(string(mode), "[madvise]") {
		return // elsewhere nobody has to ask, or nobody gets them
	}
	s := make([]uint64, 8*hugePage/8)
	Huge(s)
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	if flags := flagsAt(string(maps), uintptr(unsafe.Pointer(&s[len(s)/2]))); !slices.Contains(flags, "hg") {
		t.Errorf("the part of memory has the flags %q, and hg is not among them", flags)
	}
	runtime.KeepAlive(s)
}

// flagsAt returns the flags that smaps, in the form of /proc/self/smaps, tells of the part of
// memory that an address lies in.
func flagsAt(smaps string, address uintptr) []string {
	inside := false
	for line := range strings.Lines(smaps) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			inside = from <= address && address < to
		}
		if flags, found := strings.CutPrefix(line, "VmFlags:"); found && inside {
			return strings.Fields(flags)
		}
	}
	return nil
}
